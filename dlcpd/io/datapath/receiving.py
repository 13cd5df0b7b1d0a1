"""The compiled data path's receiving half: a ring of messages, and the results that C leaves
there."""

import struct
from collections import Counter
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.core.wire.checksum import Keyring
from dlcpd.core.wire.datagram import DatagramGroup, Placed, Target
from dlcpd.core.wire.header import HEADER_SIZE, Flag, Header, Kind
from dlcpd.core.wire.header_batch import parse
from dlcpd.core.wire.rows import RowGroup
from dlcpd.core.wire.sizes import MAX_SEGMENT
from dlcpd.io.datapath.key_table import KeyTable
from dlcpd.io.datapath.library import CONTROL, DATAGRAM, GROUP, NONE, REJECTS, RING, STRAY, Library
from dlcpd.io.datapath.open_transfers import OpenTransfers
from dlcpd.io.udp.loss import NO_CORRUPTION, Corrupt, RandomLoss
from dlcpd.io.udp.mmsg import MSGHDR, address

RECEIVE_BYTES: Final = 2 << 20  # per call; with more, the first leave the cache before their use
JOINED: Final = 64  # datagrams of a message that GRO joins
JOINED_MESSAGES: Final = 8  # of 64 KB per system call: they stay in a second-level cache
SINGLE_MESSAGES: Final = 256  # of one datagram each
LONGEST: Final = HEADER_SIZE + MAX_SEGMENT  # bytes of the longest dlcpd datagram
_MAX_WAIT: Final = 1.0  # seconds; the kernel stamps with a wall clock, which may be stepped
_ASK, _ENDING = int(Flag.ASK), int(Flag.ENDING)
_RESULT: Final = struct.Struct(f"<iIIIIIIIIII{len(REJECTS)}I")  # of `struct ring`, from `error` on
_CLOCKS: Final = struct.Struct("<qq")


class CompiledRing:
    """The ring of one path. `gro`: whether the kernel joins datagrams."""

    def __init__(
        self,
        library: Library,
        table: OpenTransfers,
        *,
        gro: bool,
        loss: RandomLoss,
        corrupt: Corrupt = NO_CORRUPTION,
        keys: Keyring | None = None,
    ) -> None:
        self.library, self.table = library, table
        self._keyring, self._keys = Keyring() if keys is None else keys, KeyTable()
        self.full_calls = 0  # calls that filled every message, since one was joined
        self.calls = 0  # system calls of the last `receive`
        self._refused = 0  # datagrams without a place that C has refused, counted so far
        self._clocks = 0, 0  # wall clock and core's clock after it, ns
        self._count = JOINED_MESSAGES if gro else SINGLE_MESSAGES
        self._spacing = 1 << 16 if gro else -(-LONGEST // 64) * 64
        most = self._count * (JOINED if gro else 1)  # datagrams of one system call
        self.data = np.zeros(self._count * self._spacing, np.uint8)
        self.control = np.zeros((self._count, CONTROL), np.uint8)
        self.groups = np.zeros(2 * most, GROUP)
        self.waiting = np.zeros(most, DATAGRAM)
        self.strays = np.zeros(most, STRAY)
        self.messages = self._messages()
        self._ring = np.zeros(1, RING)
        self.at = address(self._ring)
        self._fill_in(loss, corrupt)
        self._bytes = self._ring.view(np.uint8).data
        fields: Any = RING.fields
        self._result_at, self._clocks_at = fields["error"][1], fields["wall"][1]

    def _messages(self) -> NDArray[Any]:
        number = np.arange(self._count, dtype=np.uint64)
        self._iov = np.zeros((self._count, 2), np.uint64)
        self._iov[:, 0] = address(self.data) + number * self._spacing
        self._iov[:, 1] = self._spacing
        messages = np.zeros(self._count, MSGHDR)
        messages["iov"], messages["iov_count"] = address(self._iov) + number * 16, 1
        messages["control"] = address(self.control) + number * CONTROL
        return messages

    def _fill_in(self, loss: RandomLoss, corrupt: Corrupt) -> None:
        ring = self._ring[0]
        ring["data"], ring["messages"] = address(self.data), address(self.messages)
        ring["table"] = self.table.at
        ring["groups"], ring["waiting"] = address(self.groups), address(self.waiting)
        ring["strays"] = address(self.strays)
        ring["message_count"], ring["spacing"] = self._count, self._spacing
        ring["group_max"], ring["waiting_max"] = len(self.groups), len(self.waiting)
        ring["stray_max"] = len(self.strays)
        ring["budget"], ring["longest"] = RECEIVE_BYTES, LONGEST
        ring["loss"], ring["random"] = loss.of_2_32, loss.state
        ring["corrupt"] = corrupt.of_2_32

    def receive(self, fd: int) -> tuple[list["CompiledBatch"], bool]:
        """The batch that waits, if any, and whether nothing is left. Raises: OSError.

        The batch points into this object's memory: use it before the next call.
        """
        self._ring["fd"] = fd
        self.update_keys()
        self.library.dlcpd_receive(self.at)
        return self.look()

    def update_keys(self) -> None:
        """Give C the current keys."""
        if self._keys.version != self._keyring.version:
            keys = KeyTable.of(self._keyring)
            self._ring["keys"], self._ring["key_mask"] = keys.at, keys.mask
            self._keys = keys  # the old table may be freed: C does not use it any more

    def digest(self, count: int) -> tuple[list["CompiledBatch"], bool]:
        """As `receive`, for `count` messages that are in the ring."""
        self._ring["group_count"] = self._ring["waiting_count"] = self._ring["stray_count"] = 0
        self._ring["datagrams"] = self._ring["lost"] = 0
        self._ring["rejects"][:, :-1] = 0
        self._ring["corrupted"] = 0
        self._ring["filled"] = count
        self.update_keys()
        self.library.dlcpd_digest(self.at, count)
        return self.look()

    def look(self) -> tuple[list["CompiledBatch"], bool]:
        """The results that C has left in the ring."""
        self._clocks = _CLOCKS.unpack_from(self._bytes, self._clocks_at)
        (
            error,
            groups,
            _,
            strays,
            self.calls,
            filled,
            datagrams,
            _,
            drained,
            lost,
            corrupted,
            *rejects,
            refused,
        ) = _RESULT.unpack_from(self._bytes, self._result_at)
        if error:
            raise OSError(error, "recvmmsg")
        if not datagrams:
            return [], bool(drained)
        rejects.append(refused - self._refused & 0xFFFFFFFF)
        self._refused = refused
        # of one `receive`, all calls but the last fill every message
        self.full_calls = 0 if datagrams > filled else self.full_calls + filled // self._count
        return [CompiledBatch(self, groups, strays, rejects, lost=lost, corrupted=corrupted)], bool(
            drained
        )

    def arrived_at(self, stamp: int) -> float:
        """On the core's clock: the time since a stamp was spent in this host, not in the network.
        The wall clock was read first: a preemption between the two makes a datagram look late,
        never early, and the base delay of a path comes from early ones."""
        wall, now = self._clocks
        waited = (wall - stamp) * 1e-9 if wall > stamp else 0.0
        return float(now * 1e-9 - (waited if waited < _MAX_WAIT else _MAX_WAIT))


class CompiledBatch:
    """A `Batch` that C has grouped and, where transfers are open, placed."""

    def __init__(
        self,
        ring: CompiledRing,
        groups: int,
        strays: int,
        rejects: list[int],
        *,
        lost: int,
        corrupted: int,
    ) -> None:
        self.opened = ring.table.opened
        self._ring, self._rejects, self.lost, self.corrupted = ring, rejects, lost, corrupted
        self._groups = ring.groups[:groups].tolist()
        self.strays: list[bytes] = []
        self.stray_arrival = 0.0
        if strays:
            rows = ring.strays[:strays].tolist()
            self.strays = [ring.data[at : at + length].tobytes() for at, length, _ in rows]
            self.stray_arrival = ring.arrived_at(rows[-1][2])

    @property
    def count(self) -> int:
        return len(self._groups)

    def groups(self, counters: Counter[str]) -> list[DatagramGroup]:
        for reason, count in zip(REJECTS, self._rejects, strict=True):
            if count and reason is not None:
                counters[reason] += count
        return [
            CompiledGroup(self._ring, number, fields, self.opened)
            for number, fields in enumerate(self._groups)
        ]


class CompiledGroup:
    """A `DatagramGroup`: number `number` of the ring."""

    __slots__ = (
        "_arrived", "_begin", "_number", "_opened", "_placed", "_ring", "_row", "asks", "count",
        "ending", "header", "marked", "newest", "size",
    )  # fmt: skip

    def __init__(
        self, ring: CompiledRing, number: int, fields: tuple[int, ...], opened: int
    ) -> None:
        self._ring, self._number, self._opened = ring, number, opened
        (
            token,
            operation,
            stream,
            transfer,
            segment,
            path,
            round_,
            tag,
            first_flags,
            flags,
            last_flags,
            self.count,
            self.size,
            packet,
            sent_at,
            self.newest,
            self.marked,
            self._arrived,
            self._row,
            self._begin,
            *placed,
        ) = fields
        self.header = Header(
            Kind.DATA,
            token,
            operation,
            stream,
            transfer,
            segment,
            round_,
            tag,
            first_flags,
            path,
            packet,
            sent_at,
        )
        self.asks, self.ending = bool(flags & _ASK), bool(last_flags & _ENDING)
        self._placed = tuple(placed)  # fresh, duplicate, odd, missing

    @property
    def arrived_at(self) -> float:
        return self._ring.arrived_at(self._arrived)

    def place(self, target: Target) -> Placed:
        if self._row == NONE:
            if target.handle == NONE:  # the table is full
                return self.copy().place(target)
            self._ring.library.dlcpd_place(self._ring.at, self._number, target.handle)
            self._placed = self._ring.groups[self._number].item()[-4:]
        elif target.handle != self._row or target.opened > self._opened:
            return Placed(0, self.count, 0)  # it went to a transfer that has ended since
        fresh, duplicate, odd, missing = self._placed
        target.left(missing)
        return Placed(fresh, duplicate, odd)

    def copy(self) -> RowGroup:
        """Its datagrams as rows; only while they wait to be placed."""
        at = self._ring.waiting[self._begin : self._begin + self.count].tolist()
        rows = np.zeros((len(at), max(length for _, length in at)), np.uint8)
        for row, (start, length) in zip(rows, at, strict=True):
            row[:length] = self._ring.data[start : start + length]
        return RowGroup(
            self.header,
            parse(rows[:, :HEADER_SIZE]),
            rows,
            np.arange(len(rows)),
            np.array([length for _, length in at], np.intp),
            (self.arrived_at,),
            len(rows),
            self.marked,
        )
