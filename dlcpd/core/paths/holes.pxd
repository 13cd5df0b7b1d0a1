cdef class Holes:
    cdef public long long count
    cdef public double _seen_at
    cdef public long long _mistrust

    cpdef void on_datagrams(self, long long datagrams, long long more, double at)
