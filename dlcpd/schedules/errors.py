"""What can be wrong with a schedule."""


class BadSchedule(ValueError):
    """It must not be run; says which rank, which step, and why."""

    def __init__(self, rank: int, position: int, step: object, why: str) -> None:
        super().__init__(f"rank {rank}, step {position}, {step}: {why}")


class Stuck(BadSchedule):
    """It cannot come to its end: this step waits for what never happens."""


class UnknownSchedule(ValueError):
    """No schedule of that name does this collective."""
