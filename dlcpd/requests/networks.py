"""The networks of a session by operation number: a plan changes while a job runs.

All ranks must derive an operation from one network, though they begin it at different times. An
offered network is therefore settled in two steps:

1. Each engine promises: until it is told the result, it begins no operation beyond a limit, WINDOW
   after the last one begun, in each stream.
2. Rank 0 names the first operation of the new network in each stream, above the limits of all
   ranks; or cancels the offer.

So no rank can have begun an operation from `first` on with the old network, and each rank knows
`first` before it begins that operation.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dlcpd.schedules.network import TYPICAL, Costs, JobNetwork

# Operations of a stream that a rank may begin while an offer is settled: the one that is prepared.
# More delay a new plan, by a second each on slow links; the next one waits for a round trip to rank
# 0. Equal on all ranks: daemons with another window need another PEER_VERSION.
WINDOW: Final = 1
REST: Final = WINDOW + 1  # first operation of a new network in a stream that no rank has begun
MAX_EPOCHS: Final = 8  # networks that operations can still need: those of streams that stand still

Numbers = Mapping[int, int]  # of operations, by stream


@dataclass(frozen=True, slots=True)
class Epoch:
    """A network, and the first operation that is derived from it, by stream."""

    network: JobNetwork | None
    firsts: Numbers
    rest: int  # of streams that are not in `firsts`

    def first(self, stream: int) -> int:
        """First operation of a stream."""
        return self.firsts.get(stream, self.rest)


@dataclass(slots=True)
class Networks:
    """`first`: the network that the session was opened with; None: not known. `costs`: of the
    job's engines, for networks that are offered."""

    first: JobNetwork | None = None
    costs: Costs = TYPICAL
    _epochs: list[Epoch] = field(init=False)  # the oldest first
    _offer: JobNetwork | None = field(default=None, init=False)
    _limits: Numbers = field(default_factory=dict, init=False)  # of the offer

    def __post_init__(self) -> None:
        self._epochs = [Epoch(self.first, {}, 0)]

    def at(self, stream: int, number: int) -> JobNetwork | None:
        """The network of an operation: the newest that has come into force."""
        return self._epoch(stream, number).network

    def waits(self, stream: int, number: int) -> bool:
        """Whether an operation may not begin before the offer is settled."""
        return self._offer is not None and number > self._limits.get(stream, WINDOW)

    def promise(self, offer: JobNetwork, begun: Numbers) -> Numbers | None:
        """The limits of the streams that have `begun`; the same for a repeated offer. None: this
        rank cannot take the offer, as others are not settled or still needed."""
        if self._offer is not None:
            return self._limits if self._offer.version == offer.version else None
        self._epochs = self._needed(begun)
        if len(self._epochs) >= MAX_EPOCHS:
            return None
        self._offer = offer
        self._limits = {stream: number + WINDOW for stream, number in begun.items()}
        return self._limits

    def adopt(self, version: int, firsts: Numbers, rest: int) -> bool:
        """Use the offered network from these operations on. False: they are not above the limits,
        and the old network stays. A no-op if the offer is settled."""
        offer, limits = self._offer, self._limits
        if offer is None or offer.version != version:
            return True
        self._offer, self._limits = None, {}
        epoch = Epoch(offer, dict(firsts), rest)
        below = any(epoch.first(stream) <= limit for stream, limit in limits.items())
        if below or rest <= WINDOW or min(firsts.values(), default=REST) <= WINDOW:
            return False
        self._epochs.append(epoch)
        return True

    def cancel(self, version: int) -> None:
        """The old network stays. A no-op if the offer is settled."""
        if self._offer is not None and self._offer.version == version:
            self._offer, self._limits = None, {}

    def _epoch(self, stream: int, number: int) -> Epoch:
        return next(e for e in reversed(self._epochs) if e.first(stream) <= number)

    def _needed(self, begun: Numbers) -> list[Epoch]:
        """The epochs of operations that have not begun."""
        streams = {*begun, *(stream for each in self._epochs for stream in each.firsts), -1}
        return [
            epoch
            for epoch in self._epochs
            if any(
                self._epoch(stream, max(begun.get(stream, 0) + 1, epoch.first(stream))) is epoch
                for stream in streams  # -1: one that no rank has begun
            )
        ]
