cdef class DeliveryRate:
    cdef public double rate
    cdef public object _rates
    cdef public long long _seen
    cdef public object _since

    cpdef void on_arrivals(self, long long packets)
    cpdef void assume(self, double rate)
    cpdef void forget(self)
