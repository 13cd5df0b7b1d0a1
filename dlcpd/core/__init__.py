"""The transport, pure: bytes and `now` in, values out. No socket, clock, thread or log."""

from dlcpd import transfer_form as _transfer_form  # noqa: F401  # before any module that it finds
