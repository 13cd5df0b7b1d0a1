from dlcpd.core.paths.delivery cimport DeliveryRate


cdef class Feedback:
    cdef public object delay
    cdef public double round_trip, answered, arrived_at
    cdef public long long acked, sent, arrived, lost, marked


cdef class Round:
    cdef public double delay
    cdef public long long arrived, lost, marked


cdef class Least:
    cdef public double value, _of_span

    cpdef void see(self, double value)
    cpdef void next_span(self)


cdef class CongestionControl:
    cdef public double share
    cdef public bint enabled, port
    cdef public double window
    cdef public bint slow_start
    cdef public double queue_delay, target, round_trip, gain, rate, pace
    cdef public long long worthwhile
    cdef public double marked
    cdef public bint idle
    cdef public DeliveryRate delivery
    cdef public Least _base, _answer
    cdef public double _span_since
    cdef public Round _round
    cdef public long long _round_end
    cdef public bint _dry, _spare
    cdef public double _tokens, _tokens_at

    cpdef void _set_pace(self)
    cpdef long long allowance(self, double now)
    cpdef void spend(self, long long packets)
    cpdef double ready_at(self)
    cpdef void ran_dry(self)
    cpdef void _begin_anew(self)
    cpdef void on_credit(self, double now, Feedback news)
    cpdef void _measure(self, double now, double delay, Feedback news)
    cpdef void _follow(self, Round this)
