"""Sockets, shared memory, epoll and the clock: everything the pure parts must not touch."""
