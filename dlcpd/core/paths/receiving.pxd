cimport cython

from dlcpd.core.paths.holes cimport Holes
from dlcpd.core.paths.space cimport SpaceReceiver


cdef class ReceivingPaths:
    cdef public list paths
    cdef public Holes holes
    cdef public bint asked, pending

    @cython.locals(space=SpaceReceiver)
    cpdef void on_ask(self, long long path, long long traffic_class)
    cpdef void on_stamp(
        self, long long path, long long traffic_class, long long sent_at, double arrived_at
    )
    cpdef list credits(self, double now)
