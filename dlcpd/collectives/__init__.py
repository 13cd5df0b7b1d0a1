"""Runs schedules over the transport, pure: what goes where, and what becomes of what is lost."""
