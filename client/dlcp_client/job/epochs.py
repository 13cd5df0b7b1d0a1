"""Agreement on the next epoch of a job: bids and member lists in the job's store.

The store decides: a member list is written by compare-and-set, so there is one per epoch, and all
readers see the same. A part of the job that does not reach the store cannot agree on an epoch.
"""

import hashlib
import json
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Final

from dlcp_client.job.next_members import NEW, Bid, NextMembersRule, in_order
from dlcp_client.job.secret import JobSecret
from dlcp_client.job.signed_store import SignedStore, StoreLost
from dlcp_client.job.store import Store
from dlcpd.contract.errors import BadMessage, NotAuthorised, PeerLost
from dlcpd.contract.limits import MAX_WORLD

ROOT: Final = "dlcp/epochs"
LOOK: Final = 0.05  # seconds between two reads of the store: 15,000 requests/s of 256 ranks
SHARE: Final = 4  # reads take at most 1/SHARE of the time, for any number of bids
MAX_BIDS: Final = 4 * MAX_WORLD  # of one epoch; further ones are ignored
MAX_NONCE: Final = 64  # characters


@dataclass(frozen=True, slots=True)
class EpochMembers:
    """An epoch that was agreed on. By rank: seats, numbers of the bids, and their nonces."""

    epoch: int
    seats: tuple[int, ...]
    bids: tuple[int, ...]
    nonces: tuple[str, ...]

    def rank_of(self, bid: Bid | None) -> int | None:
        """The rank of the process that made the bid; None: it is not in the list."""
        return self.nonces.index(bid.nonce) if bid and bid.nonce in self.nonces else None

    @property
    def digest(self) -> str:
        """Identifies the list, so that different lists of one epoch share no keys."""
        rows = repr((self.epoch, self.seats, self.bids, self.nonces))
        return hashlib.sha256(rows.encode()).hexdigest()[:16]


@dataclass(frozen=True, slots=True)
class EpochAgreement:
    """The agreement on one epoch of the job `lineage`, by members of epoch `base` and new ranks.

    `lineage` is unique to a launch and part of every key: so a text that was signed for another
    launch, epoch or bid is refused.
    """

    store: Store
    lineage: str
    epoch: int
    base: int
    secret: JobSecret | None = None

    @property
    def place(self) -> str:
        """The epoch's prefix in the store."""
        return f"{ROOT}/{self.lineage}/{self.epoch}"

    def bid(self, seat: int, lost: frozenset[int] = frozenset()) -> Bid:
        """Publish a bid for a place in the epoch."""
        number = self._signed_store.draw("bids")
        made = Bid(number, seat, lost, secrets.token_hex(8))
        self._say(made)
        return made

    def _say(self, bid: Bid) -> None:
        text = json.dumps([self.base, bid.seat, sorted(bid.lost), bid.nonce])
        self._signed_store.write(f"bid/{bid.number}", text)

    def newcomers(self) -> bool:
        """Whether a process has bid for a place. A process that ended before publishing its bid
        does not count."""
        return bool(self.bids())

    def bids(self) -> list[Bid]:
        """The readable bids in the store. A bid without text yet may appear later."""
        signed_store = self._signed_store
        count = min(signed_store.count("bids"), MAX_BIDS)
        found = (self._bid(signed_store, number) for number in range(1, count + 1))
        return [bid for bid in found if bid is not None]

    def _bid(self, signed_store: SignedStore, number: int) -> Bid | None:
        """The bid, or None: missing, or invalid, which must not block the agreement."""
        try:
            text = signed_store.read(
                f"bid/{number}", f"bid {number} of epoch {self.epoch} in the store"
            )
            base, seat, lost, nonce = _bid_of(text) if text is not None else _NO_BID
        except (BadMessage, NotAuthorised):
            return None
        if not nonce:
            return None
        # a process of another epoch, as after a partial failure, has no seat here
        return Bid(number, seat if base == self.base and seat >= 0 else NEW, lost, nonce)

    def members(self) -> EpochMembers | None:
        """The member list; None before the agreement. Raises: BadMessage, NotAuthorised."""
        text = self._signed_store.read("members", self._list)
        return None if text is None else _members(self.epoch, text)

    def call(self, bids: list[Bid]) -> EpochMembers:
        """Agree on `bids`, unless another process did so first. Returns the member list."""
        rows = [[bid.seat, bid.number, bid.nonce] for bid in in_order(bids)[:MAX_WORLD]]
        text = self._signed_store.settle("members", json.dumps(rows), self._list)
        return _members(self.epoch, text)

    def agree(
        self,
        own: Bid | None,
        rule: NextMembersRule | None,
        lost: Callable[[], frozenset[int]],
        deadline: float,
    ) -> EpochMembers:
        """Wait for the member list, and write it when `rule` allows; without a rule, only wait.

        `own`: this process's bid, written again if the store loses it. `lost`: returns the seats
        that it knows to be lost now; the bid publishes them. Raises: PeerLost naming the missing
        seats; StoreLost.
        """
        began = time.monotonic()
        while (members := self.members()) is None:
            looked = time.monotonic()
            bids = self.bids()
            own = own and self._kept(own, bids, lost())
            now = time.monotonic()
            if rule and rule.complete(bids, now - began):
                return self.call(bids)
            if now >= deadline:
                self._check_kept(own, bids)
                raise PeerLost(_missing(self.epoch, rule, bids, now - began))
            time.sleep(max(LOOK, (SHARE - 1) * (now - looked)))
        return members

    def _kept(self, own: Bid, bids: list[Bid], lost: frozenset[int]) -> Bid:
        """`own` as in the store. It is published again if the store has another or no bid there."""
        found = next((bid for bid in bids if bid.number == own.number), None)
        if found is not None and found.nonce != own.nonce:  # the store's count was reset
            own = replace(own, number=self._signed_store.draw("bids"))
        elif found is not None and found.lost == lost:
            return own
        own = replace(own, lost=lost)
        self._say(own)
        return own

    def _check_kept(self, own: Bid | None, bids: list[Bid]) -> None:
        """Raises: StoreLost if this process's bid is not in the store."""
        if own is not None and own.nonce not in {bid.nonce for bid in bids}:
            raise StoreLost(
                f"epoch {self.epoch}: {self._signed_store.name} does not keep the bid of this "
                "rank; restart the job from its last checkpoint, with a store that no other "
                "job uses"
            )

    @property
    def _list(self) -> str:
        """Names the member list in errors."""
        return f"the member list of epoch {self.epoch} in the store"

    @property
    def _signed_store(self) -> SignedStore:
        return SignedStore(self.store, self.secret, place=self.place)


def _missing(epoch: int, rule: NextMembersRule | None, bids: list[Bid], waited: float) -> str:
    if rule is None:
        return (
            f"epoch {epoch}: the job did not admit this process within {waited:.1f} s; it "
            "admits processes where it calls elastic.boundary()"
        )
    names = ", ".join(map(str, sorted(rule.missing(bids))))
    return (
        f"epoch {epoch}: rank(s) {names} are missing after {waited:.1f} s, and at least "
        f"{rule.quorum} of the {rule.size} ranks must continue together; quorum= allows fewer"
    )


def _bid_of(text: str) -> tuple[int, int, frozenset[int], str]:
    """Base epoch, seat, lost seats and nonce. Raises: BadMessage."""
    try:
        base, seat, lost, nonce = json.loads(text)
        if not (_whole([base, seat, *lost]) and _is_nonce(nonce)):
            raise BadMessage("the store holds an invalid bid")
        return base, seat, frozenset(lost), nonce
    except (ValueError, TypeError, RecursionError) as exc:
        raise BadMessage("the store holds an invalid bid") from exc


def _members(epoch: int, text: str) -> EpochMembers:
    """Parse a member list. Raises: BadMessage."""
    try:
        rows = [(seat, number, nonce) for seat, number, nonce in json.loads(text)]
        seats, numbers, nonces = zip(*rows, strict=True)
        seated = [seat for seat in seats if seat != NEW]
    except (ValueError, TypeError, RecursionError) as exc:
        raise BadMessage(f"the store holds an invalid member list of epoch {epoch}") from exc
    whole = _whole([*seats, *numbers]) and all(map(_is_nonce, nonces))
    if not whole or len(rows) > MAX_WORLD or len(set(seated)) < len(seated):
        raise BadMessage(f"the store holds an invalid member list of epoch {epoch}")
    return EpochMembers(epoch, seats, numbers, nonces)


def _whole(values: list[Any]) -> bool:
    """Whether all are integers in the range of seats and numbers."""
    return all(type(value) is int and NEW <= value < 1 << 31 for value in values)


def _is_nonce(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_NONCE


_NO_BID: Final = (0, NEW, frozenset[int](), "")
