"""Who is let stay when more come than there is room for: nobody can keep others out by number."""

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class Crowd(Generic[T]):
    """Members, each of an owner - a user, an address. When it is full, who comes takes the place
    of the oldest member of whoever has most: those who have few stay, and so does who is quick.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._members: dict[Hashable, dict[T, None]] = {}  # by owner, in the order they came
        self._owners: dict[T, Hashable] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def add(self, owner: Hashable, member: T) -> T | None:
        """Let `member` in. The one that has to leave for it, if any: it is forgotten here."""
        leaves = self.oldest() if len(self) >= self._most else None
        if leaves is not None:
            self.discard(leaves)
        self._owners[member] = owner
        self._members.setdefault(owner, {})[member] = None
        return leaves

    def discard(self, member: T) -> None:
        """Forget `member`, if it is here."""
        owner = self._owners.pop(member, None)
        if owner is None:
            return
        del self._members[owner][member]
        if not self._members[owner]:
            del self._members[owner]

    def oldest(self) -> T | None:
        """The oldest member of the owner who has most; None of nobody."""
        largest = max(self._members.values(), key=len, default=None)
        return next(iter(largest)) if largest else None
