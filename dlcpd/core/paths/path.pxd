cimport cython

from dlcpd.core.paths.rtt cimport Rtt
from dlcpd.core.paths.space cimport SpaceReceiver, SpaceSender


cdef class PathSender:
    cdef public double share
    cdef public bint congestion_control, port, up, expecting, answered
    cdef public long long stalls
    cdef public dict spaces
    cdef public object link

    @cython.locals(found=SpaceSender)
    cpdef SpaceSender space(self, long long traffic_class)
    @cython.locals(own=SpaceSender)
    cpdef Rtt rtt(self, long long traffic_class)
    cpdef void heard(self)
    cpdef bint check(self)
    cpdef void demote(self)


cdef class PathReceiver:
    cdef public dict spaces

    @cython.locals(found=SpaceReceiver)
    cpdef SpaceReceiver space(self, long long traffic_class)
