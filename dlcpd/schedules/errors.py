"""Errors of schedules."""


class BadSchedule(ValueError):
    """A schedule must not be run; the text names rank, step and reason."""

    def __init__(self, rank: int, position: int, step: object, why: str) -> None:
        super().__init__(f"rank {rank}, step {position}, {step}: {why}")


class Stuck(BadSchedule):
    """A schedule does not terminate: this step never begins."""


class UnknownSchedule(ValueError):
    """There is no such collective, or no such schedule for it."""
