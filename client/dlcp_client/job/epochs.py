"""How processes agree on the next epoch of a job: bids and rolls in the job's store.

The store decides: a roll is written by compare-and-set, so there is one for each epoch, and whoever
reads it reads the same. A part of the job that does not reach the store agrees on nothing.
"""

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from dlcp_client.job.roll import NEW, Bid, Rule, in_order
from dlcp_client.job.store import Store
from dlcpd.contract.errors import BadMessage, PeerLost
from dlcpd.contract.messages import MAX_WORLD

ROOT: Final = "dlcp/epochs"
LOOK: Final = 0.05  # seconds between two looks at the store: 256 ranks are 15,000 requests a second
MAX_BIDS: Final = 4 * MAX_WORLD  # of one epoch; further ones are not looked at


@dataclass(frozen=True, slots=True)
class Roll:
    """An epoch that was agreed on: seats by rank, and the numbers of their bids."""

    epoch: int
    seats: tuple[int, ...]
    bids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Round:
    """The agreement on one epoch of the job `lineage`, by members of epoch `base` and newcomers."""

    store: Store
    lineage: str
    epoch: int
    base: int

    def bid(self, seat: int, lost: frozenset[int] = frozenset()) -> int:
        """Ask for a place; the number of the bid."""
        number = self.store.add(self._key("bids"), 1)
        self._say(number, seat, lost)
        return number

    def _say(self, number: int, seat: int, lost: frozenset[int]) -> None:
        self.store.set(self._key(f"bid/{number}"), json.dumps([self.base, seat, sorted(lost)]))

    def newcomers(self) -> int:
        """How many processes have asked for a place so far."""
        return self.store.add(self._key("bids"), 0)

    def bids(self) -> list[Bid]:
        """Those that stand in the store. One whose text is not there yet comes later."""
        count = min(self.store.add(self._key("bids"), 0), MAX_BIDS)
        keys = {number: self._key(f"bid/{number}") for number in range(1, count + 1)}
        return [
            self._bid(number, self.store.get(key))
            for number, key in keys.items()
            if self.store.check([key])
        ]

    def _bid(self, number: int, text: bytes) -> Bid:
        """Raises: BadMessage."""
        try:
            base, seat, lost = _integers(json.loads(text), 2)
        except (ValueError, TypeError, RecursionError) as exc:
            raise BadMessage(f"bid {number} of epoch {self.epoch} in the store is none") from exc
        # who comes from another epoch, as after an attempt that failed for some, has no seat here
        return Bid(number, seat if base == self.base and seat >= 0 else NEW, frozenset(lost))

    def roll(self) -> Roll | None:
        """What was agreed; None before."""
        key = self._key("roll")
        return _roll(self.epoch, self.store.get(key)) if self.store.check([key]) else None

    def call(self, bids: list[Bid]) -> Roll:
        """Agree on `bids`, unless somebody was faster; what was agreed."""
        rows = [[bid.seat, bid.number] for bid in in_order(bids)[:MAX_WORLD]]
        return _roll(self.epoch, self.store.compare_set(self._key("roll"), "", json.dumps(rows)))

    def agree(
        self, number: int, rule: Rule | None, lost: Callable[[], frozenset[int]], deadline: float
    ) -> Roll:
        """Wait for the roll, and call it when `rule` allows; who has none only waits.

        `number`: of this process's own bid; `lost`: seats that it knows to be lost by now, which
        it tells the others.

        Raises: PeerLost naming the seats that are missing.
        """
        began, known = time.monotonic(), frozenset[int]()
        while (roll := self.roll()) is None:
            bids = self.bids()
            own = next((bid for bid in bids if bid.number == number), None)
            if own is not None and (now_lost := lost()) != known:
                known = now_lost
                self._say(number, own.seat, known)
            now = time.monotonic()
            if rule and rule.complete(bids, now - began):
                return self.call(bids)
            if now >= deadline:
                raise PeerLost(_missing(self.epoch, rule, bids, now - began))
            time.sleep(LOOK)
        return roll

    def _key(self, what: str) -> str:
        return f"{ROOT}/{self.lineage}/{self.epoch}/{what}"


@contextmanager
def store_errors() -> Iterator[None]:
    """Raises: PeerLost where the store itself does not answer."""
    try:
        yield
    except RuntimeError as exc:  # the store's own error is one
        raise PeerLost(
            f"the job's store does not answer ({exc}): without it no epoch can be agreed on; "
            f"restart the job from its last checkpoint"
        ) from exc


def _missing(epoch: int, rule: Rule | None, bids: list[Bid], waited: float) -> str:
    if rule is None:
        return (
            f"epoch {epoch}: nobody let this process in within {waited:.1f} s; the job does so "
            f"where it calls elastic.boundary()"
        )
    names = ", ".join(map(str, sorted(rule.missing(bids))))
    return (
        f"epoch {epoch}: after {waited:.1f} s rank(s) {names} are missing, and {rule.quorum} of "
        f"the {rule.size} ranks have to go on together; quorum= allows fewer"
    )


def _roll(epoch: int, text: bytes) -> Roll:
    """Raises: BadMessage."""
    try:
        rows = [_integers(row, 2) for row in json.loads(text)]
        seats, numbers = zip(*((seat, number) for seat, number in rows), strict=True)
    except (ValueError, TypeError, RecursionError) as exc:
        raise BadMessage(f"the roll of epoch {epoch} in the store is none") from exc
    return Roll(epoch, seats, numbers)


def _integers(values: Any, count: int) -> list[Any]:
    """`values`, whose first `count` are integers, as is all in a list after them.

    Raises: TypeError.
    """
    if not isinstance(values, list):
        raise TypeError("no list")
    rest = [value for each in values[count:] for value in each]
    if any(type(value) is not int for value in [*values[:count], *rest]):
        raise TypeError("no integers")
    return values
