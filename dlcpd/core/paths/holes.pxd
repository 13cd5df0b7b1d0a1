cdef class Holes:
    cdef public long long count, _mistrust
    cdef public double _seen_at

    cpdef void on_datagrams(self, long long datagrams, long long more, double at)
