"""The transport, pure: bytes and `now` in, values out. No socket, clock, thread or log."""
