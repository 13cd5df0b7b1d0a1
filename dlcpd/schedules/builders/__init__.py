"""Builders: pure functions from a rank and parameters equal on all ranks to its program."""
