cimport cython

from dlcpd.core.paths.path cimport PathSender
from dlcpd.core.paths.receiving cimport ReceivingPaths
from dlcpd.core.paths.space cimport SpaceSender


cdef class Paths:
    cdef public list tx
    cdef public ReceivingPaths rx
    cdef public object routes
    cdef public list health
    cdef public object full
    cdef public list _route, carriers
    cdef public set _told_down
    cdef public double cover, quickest, queue
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
