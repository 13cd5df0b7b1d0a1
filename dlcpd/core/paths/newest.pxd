cpdef long long microseconds(double now)


cdef class Newest:
    cdef public long long stamp
    cdef public double at

    cpdef bint see(self, long long stamp, double at)
