"""Counts and limits the memory that an engine holds for each session besides its arena."""

from dataclasses import dataclass, field
from typing import Final

from dlcpd.contract.errors import ArenaFull

NO_LIMIT: Final = 1 << 62
MB: Final = 1_000_000


@dataclass(slots=True, eq=False)
class MemoryBudget:
    """Budget of one engine. Every session may hold `assured` bytes; the bytes above that of all
    sessions together are at most `shared`."""

    session: int = NO_LIMIT  # bytes that one session may hold
    shared: int = NO_LIMIT  # bytes
    assured: int = 0  # bytes of each session
    beyond: int = 0  # bytes that sessions hold above what they are assured of

    @classmethod
    def of(cls, total: int, session: int, sessions: int) -> "MemoryBudget":
        """Half of `total` is assured to `sessions` sessions, the rest is shared."""
        assured = min(total // 2 // sessions, session)
        return cls(session, total - assured * sessions, assured)


@dataclass(slots=True, eq=False)
class Holdings:
    """Bytes held for one session: scratch memory, residuals, state of operations in flight."""

    budget: MemoryBudget = field(default_factory=MemoryBudget)
    held: int = 0  # bytes

    def take(self, size: int) -> None:
        """Add `size` bytes to those held."""
        before, assured = self.held, self.budget.assured
        self.held = after = before + size
        if after > assured:
            self.budget.beyond += after - max(before, assured)

    def give(self, size: int) -> None:
        """Subtract `size` bytes from those held."""
        before, assured = self.held, self.budget.assured
        self.held = after = before - size
        if before > assured:
            self.budget.beyond -= before - max(after, assured)

    def has_room(self, size: int) -> bool:
        """Whether `size` bytes more would be within the budget."""
        budget, after = self.budget, self.held + size
        if after <= budget.assured:
            return True
        more = after - max(self.held, budget.assured)
        return after <= budget.session and budget.beyond + more <= budget.shared

    def check(self, size: int, what: str) -> None:
        """Raises: ArenaFull if `what` needs more than the budget allows."""
        if not self.has_room(size):
            raise self.lack(size, what)

    def lack(self, size: int, what: str) -> ArenaFull:
        """The error that `what` cannot have `size` bytes."""
        return ArenaFull(
            f"{what} needs {size / MB:.1f} MB of the daemon's own memory; it holds "
            f"{self.held / MB:.1f} MB for this session, at most {self.budget.session / MB:.0f} "
            f"([daemon] max_session_memory_bytes), and {self.budget.beyond / MB:.0f} of "
            f"{self.budget.shared / MB:.0f} MB that sessions share (max_memory_bytes)"
        )

    def close(self) -> None:
        """The session is over: release all bytes held for it."""
        self.give(self.held)
        self.budget = MemoryBudget()
