"""The collectives of a process group whose results are not yet in the caller's tensors."""

from .work import GroupWork


class UnreadWorks:
    """Works in the order of their calls, until their results are copied back.

    A caller may never wait for a work, so each new one looks at the oldest.
    """

    def __init__(self) -> None:
        self._works: dict[GroupWork, None] = {}
        self.begun = 0  # collectives so far

    def add(self, work: GroupWork) -> None:
        """Add a new work. If the oldest one has ended, copy its results back."""
        oldest = next(iter(self._works), None)
        if oldest is not None:
            oldest.is_completed()  # copies its results back: the caller may never wait for it
        self._works[work] = None
        self.begun += 1

    def ended(self, work: GroupWork) -> None:
        """Remove a work whose results are in place, or that failed."""
        self._works.pop(work, None)

    def all(self) -> list[GroupWork]:
        """The works, oldest first."""
        return list(self._works)

    def clear(self) -> None:
        """Forget all works."""
        self._works.clear()
