"""Builders: pure functions from a rank, and what all ranks know, to that rank's program."""
