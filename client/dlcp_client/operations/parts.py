"""Joins the outcomes of an operation's engines."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from msgspec.structs import replace

from dlcpd.contract.messages import Completed


@dataclass(slots=True)
class Parts:
    """The answers of the engines of one operation. Repeated answers change nothing."""

    unanswered: set[int] = field(default_factory=set)  # engines without an outcome
    unreleased: set[int] = field(default_factory=set)  # engines that may access the memory
    _whole: Completed | None = None

    @classmethod
    def of(cls, engines: Iterable[int]) -> "Parts":
        numbers = set(engines)
        return cls(numbers, set(numbers))

    def answer(self, engine: int, part: Completed) -> Completed | None:
        """Handle a part's outcome. Returns that of the whole once every engine has answered."""
        if engine in self.unanswered:
            self.unanswered.remove(engine)
            self._whole = part if self._whole is None else total(self._whole, part)
        return None if self.unanswered else self._whole

    def release(self, engine: int) -> bool:
        """Note that an engine has released the memory. True: all have."""
        self.unreleased.discard(engine)
        return not self.unreleased


def total(one: Completed, other: Completed) -> Completed:
    """Add the counts. The fraction of energy is at most the larger of the two."""
    return replace(
        one,
        sent=one.sent + other.sent,
        retransmitted=one.retransmitted + other.retransmitted,
        waived=one.waived + other.waived,
        reapplied=one.reapplied + other.reapplied,
        lost=one.lost + other.lost,
        energy=max(one.energy, other.energy),
    )
