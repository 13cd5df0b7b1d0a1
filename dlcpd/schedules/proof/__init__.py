"""Checks of schedules: the proof that they are well-formed, and the reference interpreter."""
