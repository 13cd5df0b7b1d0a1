"""Chooses the schedule and the kernel of a program in the job's own runs of it."""

from .tuned import TunedProgram, tune

__all__ = ["TunedProgram", "tune"]
