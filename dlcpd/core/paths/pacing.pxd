cdef class Pacer:
    cdef public double rate_bps, _tokens, _at

    cpdef long long allowance(self, double now)
    cpdef void spend(self, long long size)
    cpdef double ready_at(self, long long size, double now)
