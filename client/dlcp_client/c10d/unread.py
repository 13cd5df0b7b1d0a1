"""The collectives of a process group whose results are not yet in the caller's tensors."""

from .work import Work


class Unread:
    """Works in the order of their calls, until their results are copied back.

    A caller may never wait for a work, so each new one looks at the oldest.
    """

    def __init__(self) -> None:
        self._works: dict[Work, None] = {}
        self.begun = 0  # collectives so far

    def add(self, work: Work) -> None:
        """Add a new work. If the oldest one has ended, copy its results back."""
        oldest = next(iter(self._works), None)
        if oldest is not None:
            oldest.is_completed()  # copies its results back: the caller may never wait for it
        self._works[work] = None
        self.begun += 1

    def ended(self, work: Work) -> None:
        """Remove a work whose results are in place, or that failed."""
        self._works.pop(work, None)

    def all(self) -> list[Work]:
        """The works, oldest first."""
        return list(self._works)

    def clear(self) -> None:
        """Forget all works."""
        self._works.clear()
