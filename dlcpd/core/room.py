"""Bytes that several holders keep between them, so that many small bounds are one."""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Room:
    """At most about `most` bytes."""

    most: int
    used: int = 0

    @property
    def full(self) -> bool:
        """Whether what is used is more than that."""
        return self.used > self.most
