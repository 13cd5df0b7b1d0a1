"""Bounded loss of one operation on one rank: drop precedences, waived segments, residuals.

The sender marks the segments of least energy, agrees to the segments that a receiver asks to
waive, and keeps those as a residual for the next operation of the same name (P3, P4), together
with the rounding errors of a codec.
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.collectives.loss.accounts import Accounts, LedgerRow
from dlcpd.collectives.loss.encoded import Encoded
from dlcpd.collectives.loss.recording import Losses, Missing
from dlcpd.collectives.loss.stretch import Stretch
from dlcpd.collectives.order import Order
from dlcpd.contract.traffic import PROTECTED
from dlcpd.core.transfer.budget import Budget
from dlcpd.core.transfer.incoming import Incoming
from dlcpd.core.transfer.packetizer import exempt_segments, rotated_order, segment_count
from dlcpd.core.transfer.permit import MUST_ARRIVE, Permit
from dlcpd.core.transfer.sender import TransferSender
from dlcpd.core.wire import control
from dlcpd.core.wire.bitmap import Segments, bits_of
from dlcpd.core.wire.datagram import Bytes
from dlcpd.numerics.elements import STORAGE
from dlcpd.numerics.magnitude import Energies, OperationEnergy, drop_precedences, energies
from dlcpd.numerics.residual import Hole, Key, cut
from dlcpd.numerics.returning import add_back, share_of_range

PIECE: Final = 256 << 10  # bytes measured at once: 0.1 ms, or 1 ms if pages are not mapped yet
NOTHING: Final = np.empty(0, np.intp)


@dataclass(frozen=True, slots=True)
class Marks:
    """How the segments of a lossy transfer are sent."""

    order: Segments
    drop_precedences: NDArray[np.uint8] | np.uint8
    weight: Energies
    budget: Budget | None
    permit: Permit | None


@dataclass(slots=True, eq=False)
class Bounded:
    """Bounded loss of one operation; `tensor` is this rank's contribution."""

    order: Order
    tensor: Bytes
    accounts: Accounts
    lost: int = 0  # segments missing at this rank
    vetoed: int = 0  # segments not waived because they held too much of the energy
    encoded: Encoded | None = field(init=False)  # if contributions are
    _energy: OperationEnergy = field(init=False)
    _holes: dict[tuple[int, int], Hole] = field(default_factory=dict)  # by rank, transfer
    _reapplied: list[Hole] = field(init=False)
    _remaining: list[Hole] = field(default_factory=list)  # the part of it that did not fit
    _waived: dict[tuple[int, int], Missing] = field(default_factory=dict)  # as `_holes`
    _lost: list[Missing] = field(default_factory=list)

    def __post_init__(self) -> None:
        loss = self.order.loss
        encodes, spare = self.order.encodes, self.accounts.spare
        self.encoded, self._reapplied = Encoded.of(self.order, spare) if encodes else None, []
        if loss.feedback and loss.name:
            self._reapplied = self.accounts.residuals.take(self._key)
        if self._reapplied:
            order = self.order
            self._remaining = add_back(
                self.tensor,
                self._reapplied,
                order.dtype,
                loss.scale,
                source=order.ticket,
                most=share_of_range(order.dtype, order.reduce, order.group.size),
            )

    @property
    def _key(self) -> Key:
        dtype = self.order.dtype
        return self.order.loss.name, dtype, len(self.tensor) // STORAGE[dtype].itemsize

    @property
    def brought_back(self) -> Sequence[Hole]:
        """Residuals of earlier operations that were added to the tensor, in this order."""
        return self._reapplied

    @property
    def reapplied(self) -> int:
        """Number of their segments."""
        return sum(hole.waived for hole in self._reapplied)

    @property
    def losses(self) -> Losses:
        """Segments that were waived, of sends and of receives."""
        return Losses(list(self._waived.values()), self._lost)

    @property
    def waived(self) -> int:
        """Number of waived segments of this rank's contribution."""
        return sum(len(missing.segments) for missing in self._waived.values())

    @property
    def energy(self) -> float:
        """Fraction of the contribution's sum of squares that was waived."""
        return self._energy.spent_share

    # --- energies and budgets ------------------------------------------------------------

    def measure(self, spans: dict[int, tuple[int, int, int]]) -> Iterator[int]:
        """Compute the energies of what will be sent: `spans` has, by position of the transfer,
        (start, size, segment size) in bytes.

        Yields the bytes of each piece of work. The result does not depend on the pieces.
        """
        parts: dict[int, Energies] = {}
        for position, (start, size, segment_size) in spans.items():
            parts[position] = np.empty(segment_count(size, segment_size))
            rows = max(PIECE // segment_size, 1)
            for first in range(0, len(parts[position]), rows):
                low, high = first * segment_size, min((first + rows) * segment_size, size)
                piece = self.tensor[start + low : start + high]
                found = energies(piece, self.order.dtype, segment_size)
                parts[position][first : first + rows] = found
                yield len(piece)
        self._energy = OperationEnergy(parts)

    def measure_wires(
        self, encoded: Encoded, wires: dict[int, tuple[Bytes, int, int]]
    ) -> Iterator[int]:
        """As `measure`, of encoded bytes: (these, bytes of the tensor, segment size)."""
        parts, heads = dict[int, Energies](), dict[int, int]()
        for position, (wire, size, segment_size) in wires.items():
            parts[position], heads[position] = encoded.energies(wire, size, segment_size)
            yield len(wire)
        self._energy = OperationEnergy(parts, heads)

    def budget(self, stretch: Stretch, segment_size: int) -> Budget | None:
        """The budget of segments that may be missing of a transfer; None: none may."""
        layers, exempt, start, size = stretch
        if layers.lossless or not self.order.loss.waive:
            return None
        rows = layers.of_segments(start, size, segment_size)
        keys = layers.classes[rows].astype(np.int64) << 32 | layers.bounds[rows]
        return Budget.new(keys, exempt_segments(exempt, start, size, segment_size))

    def marks(self, position: int, stretch: Stretch, segment_size: int) -> Marks:
        """How to send the transfer at `position`."""
        size = stretch.size
        seed = self.order.seed ^ self.order.ticket << 20 ^ position
        # P5: rotate the segment that comes last
        turned = rotated_order(
            segment_count(size, segment_size),
            short_tail=bool(size % segment_size),
            rng=random.Random(seed),  # noqa: S311  # guards nothing
        )
        budget = self.budget(stretch, segment_size)
        ranks = self._drop_precedences(position, seed, budget, turned)
        fits = control.most_permitted(segment_size) >= len(turned)
        permit = self._permit(position, budget) if budget is not None and fits else None
        return Marks(turned, ranks, self._energy.of(position), budget, permit)

    def _permit(self, position: int, budget: Budget) -> Permit:
        """The segments that the receiver may waive without asking."""
        limit, costs = self._energy.costs(position, self.order.loss.bound)
        costs[budget.untouchable] = MUST_ARRIVE
        return Permit(limit, costs)

    def _drop_precedences(
        self, position: int, seed: int, budget: Budget | None, order: Segments
    ) -> NDArray[np.uint8] | np.uint8:
        basis = self.order.loss.drop_precedences
        if budget is None or basis == "none":
            return np.uint8(PROTECTED)
        ranks = drop_precedences(self._energy.of(position), budget, order)
        if basis == "chance":
            touchable = np.flatnonzero(~budget.untouchable)
            ranks[touchable] = np.random.default_rng((seed, position)).permutation(ranks[touchable])
        return ranks

    # --- waived segments ---------------------------------------------------------------------

    def on_waived(
        self, number: int, rank: int, position: int, sender: TransferSender, missing: Segments
    ) -> Segments:
        """`rank` asks to waive `missing` of the send at `position`, or has waived them under its
        permit. Keeps them and returns nothing, or returns the segments that are beyond the bound,
        of segments or of energy, or hold NaN or Inf.

        NaN and Inf must arrive, so that every rank's loss scaler sees the overflow; a residual
        with them would spoil the next step instead.
        """
        bits = bits_of(missing, sender.segments)
        if sender.budget is None or not sender.budget.covers(bits):
            return missing  # no more than the bound, whatever a peer asks
        place = rank, sender.key.transfer
        known = self._waived.get(place)
        if not len(missing) or (known and np.array_equal(known.segments, missing)):
            return NOTHING  # the ACK was lost: agree again, count once
        assert sender.weight is not None  # noqa: S101  # lossy transfers were measured
        if not sender.permits(bits):
            bound = self.order.loss.bound
            too_much = self._energy.beyond(position, missing, sender.weight, bound)
            if len(too_much):
                self.vetoed += len(too_much)
                return too_much
        self._energy.spend(position, sender.weight[missing])
        self._waive(place, sender, missing)
        paths, counts = np.unique(sender.path_of[missing], return_counts=True)
        self._waived[place] = found = Missing(
            rank,
            sender.key.transfer,
            sender.segments,
            sender.segment_size,
            missing,
            dict(zip(paths.tolist(), counts.tolist(), strict=True)),
        )
        self._book(number, self._here, rank, found)
        return NOTHING

    def _waive(self, place: tuple[int, int], sender: TransferSender, missing: Segments) -> None:
        if self.encoded is not None:
            self.encoded.waive(sender, missing)
            return
        self._holes[place] = cut(
            sender.payload,
            sender.origin,
            missing,
            sender.segment_size,
            self.order.dtype,
            scale=self.order.loss.scale,
            source=self.order.ticket,
        )

    def book(self, number: int, incoming: Incoming) -> None:
        """Count the missing segments, and zero them here: the sender keeps them."""
        size = incoming.segment_size
        missing = np.flatnonzero(~incoming.receiver.received)
        for segment in missing.tolist():
            incoming.buffer[segment * size : (segment + 1) * size] = 0
        self.lost += len(missing)
        found = Missing(
            incoming.rank, incoming.key.transfer, incoming.receiver.segments, size, missing, {}
        )
        self._lost.append(found)
        self._book(number, incoming.rank, self._here, found)

    def _book(self, number: int, sender: int, owner: int, found: Missing) -> None:
        row = LedgerRow(
            number,
            self.order.loss.name,
            sender,
            owner,
            found.transfer,
            len(found.segments),
            found.out_of,
            found.paths,
        )
        self.accounts.record(row)

    @property
    def _here(self) -> int:
        """This rank, in the session."""
        return self.order.group.members[self.order.group.rank]

    # --- ends ------------------------------------------------------------------------------

    def keep(self) -> None:
        """The result is complete: keep the residual for the next operation of this name, and
        free the memory of the reapplied one."""
        for hole in self._reapplied:
            if hole.coded:
                self.accounts.spare.give(hole.values)
        if self.order.loss.feedback:
            holes = list(self._holes.values()) if self.encoded is None else self.encoded.holes()
            self.accounts.residuals.put(self._key, [*self._remaining, *holes])

    def put_back(self) -> None:
        """The operation failed: keep the residual that it had reapplied."""
        if self._reapplied:
            self.accounts.residuals.put(self._key, self._reapplied)
