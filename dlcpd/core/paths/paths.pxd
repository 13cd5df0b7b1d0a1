cimport cython

from dlcpd.core.paths.holes cimport Holes
from dlcpd.core.paths.path cimport PathReceiver, PathSender
from dlcpd.core.paths.space cimport SpaceReceiver, SpaceSender


cdef class Paths:
    cdef public list tx, rx
    cdef public object routes
    cdef public list health
    cdef public object full
    cdef public list _route, _carriers
    cdef public set _told_down
    cdef public Holes holes
    cdef public bint asked, pending
    cdef public double cover, quickest
    cdef public list _load
    cdef public object _random

    @cython.locals(sender=PathSender)
    cpdef SpaceSender space(self, long long path, long long traffic_class)
    @cython.locals(path=PathSender, space=SpaceSender, total="long long")
    cpdef long long in_flight(self, object traffic_class=*)
    @cython.locals(space=SpaceSender, sender=PathSender)
    cpdef tuple pick(self, long long traffic_class, long long run, long long credit, double now)
    cpdef void on_sent(self, long long path, long long datagrams)
    cpdef long long for_control(self, long long attempt)
    cpdef long long for_credit(self)
    @cython.locals(space=SpaceReceiver)
    cpdef void on_ask(self, long long path, long long traffic_class)
    cpdef void on_stamp(
        self, long long path, long long traffic_class, long long sent_at, double arrived_at
    )
    cpdef list credits(self, double now)
