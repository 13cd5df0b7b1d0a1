"""A limit of bytes that several buffers share, instead of many small ones."""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Room:
    """At most about `most` bytes."""

    most: int
    used: int = 0

    @property
    def full(self) -> bool:
        """Whether `used` exceeds `most`."""
        return self.used > self.most
