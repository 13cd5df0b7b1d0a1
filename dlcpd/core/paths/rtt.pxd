cdef class Rtt:
    cdef public double smoothed, variation, minimum, latest
    cdef public bint measured

    cpdef void update(self, double sample)
    cpdef double timeout(self, long long attempt=*)
