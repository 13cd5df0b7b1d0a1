from dlcpd.core.paths.congestion cimport CongestionControl
from dlcpd.core.paths.newest cimport Newest
from dlcpd.core.paths.rtt cimport Rtt

cpdef long long unwrap(long long number, long long near)


cdef class SpaceSender:
    cdef public long long sent, asked, acked, arrived, lost, marked, lost_at_most, bytes, again
    cdef public long long _echo
    cdef public double _echo_at
    cdef public object _offset
    cdef public Rtt rtt
    cdef public CongestionControl congestion
    cdef public object link

    cpdef long long limit(self, long long credit)
    cpdef long long worthwhile(self, long long credit)
    cpdef long long room(self, double now)
    cpdef bint is_answer(self, object credit, double now)
    cpdef bint _brings_back(self, object credit, double now)
    cpdef bint _sample(self, object credit, double now)
    cpdef double _transit(self, object credit)
    cpdef void abandon(self)


cdef class SpaceReceiver:
    cdef public long long largest, received, echo, marked, pending
    cdef public bint asked
    cdef public Newest _stamp

    cpdef bint on_stamp(self, long long sent_at, double arrived_at)
