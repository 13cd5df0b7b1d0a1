"""Bounded table with fair eviction: the oldest entry of the largest owner goes."""

from collections.abc import Hashable
from typing import Generic, TypeVar

T = TypeVar("T", bound=Hashable)


class FairTable(Generic[T]):
    """Members, each of an owner: a user or an address. When full, a new member replaces the oldest
    member of the owner with most members. So owners with few members keep them, and members that
    leave soon are rarely evicted.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._members: dict[Hashable, dict[T, None]] = {}  # by owner, in the order they came
        self._owners: dict[T, Hashable] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def add(self, owner: Hashable, member: T) -> T | None:
        """Add `member`. Returns the member that was removed for it, or None."""
        leaves = self.oldest() if len(self) >= self._most else None
        if leaves is not None:
            self.discard(leaves)
        self._owners[member] = owner
        self._members.setdefault(owner, {})[member] = None
        return leaves

    def discard(self, member: T) -> None:
        """Remove `member`, if present."""
        owner = self._owners.pop(member, None)
        if owner is None:
            return
        del self._members[owner][member]
        if not self._members[owner]:
            del self._members[owner]

    def oldest(self) -> T | None:
        """The oldest member of the owner with most members; None if empty."""
        largest = max(self._members.values(), key=len, default=None)
        return next(iter(largest)) if largest else None
