"""The transport, pure: bytes and `now` in, values out. No socket, clock, thread, log or randomness."""
