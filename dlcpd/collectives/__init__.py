"""Collectives over the transport, pure: which chunk goes where, and what becomes of it."""
