"""Received datagrams as rows of an array: in numpy, the specification of the C implementation."""

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from dlcpd.contract.errors import MalformedDatagram
from dlcpd.contract.traffic import Ecn
from dlcpd.core.wire import header_batch
from dlcpd.core.wire.bitmap import Segments
from dlcpd.core.wire.checksum import Keyring
from dlcpd.core.wire.datagram import Bytes, DatagramGroup, Placed, Target
from dlcpd.core.wire.header import HEADER_SIZE, Flag, Header, Kind
from dlcpd.core.wire.header_batch import NUMBER, SEGMENT, Words

CE: Final = int(Ecn.CE)
ASK: Final = int(Flag.ASK) << 16  # in a header's first word
ENDING: Final = int(Flag.ENDING) << 16


class ArrivalTimes(Protocol):
    """Arrival times by burst, looked up for the few that are asked for; a list will do."""

    def __getitem__(self, burst: int, /) -> float:
        """Seconds, on the core's clock."""


@dataclass(slots=True)
class RowGroup:
    """A `DatagramGroup` of rows of a `Received`.

    `words` are the headers, which agree with `header`, the first of them, in all but segment,
    flags, drop precedence, packet number and time. `rows[index[i]][:lengths[i]]` is datagram i.
    """

    header: Header
    words: Words
    rows: Bytes
    index: Segments
    lengths: NDArray[np.intp]
    arrivals: ArrivalTimes = (0.0,)
    burst: int = 1 << 30  # rows per arrival
    marked: int = 0

    @property
    def count(self) -> int:
        return len(self.index)

    @property
    def size(self) -> int:
        return int(self.lengths.sum())

    @property
    def newest(self) -> int:
        return int(self.words[-1, NUMBER])

    @property
    def asks(self) -> bool:
        return bool(np.count_nonzero(self.words[:, 0] & ASK))

    @property
    def ending(self) -> bool:
        return bool(int(self.words[-1, 0]) & ENDING)

    @property
    def arrived_at(self) -> float:
        return self.arrivals[int(self.index[0]) // self.burst]

    def place(self, target: Target) -> Placed:
        segments = (self.words[:, SEGMENT] & 0xFFFF).astype(np.intp)
        return target.place(self.rows, self.index, self.lengths, segments, self.header.round)

    def copy(self) -> "RowGroup":
        rows = self.rows[self.index]
        return replace(
            self,
            words=self.words.copy(),
            rows=rows,
            index=np.arange(len(rows)),
            lengths=self.lengths.copy(),
            arrivals=(self.arrived_at,),
            burst=max(len(rows), 1),
        )


@dataclass(slots=True)
class Received:
    """A `Batch` of rows.

    `rows[index[i]][:lengths[i]]` is datagram i; rows is io's receive buffer, valid
    until the next receive. `strays` are datagrams that did not fit the row raster.
    """

    path: int
    arrivals: ArrivalTimes  # when the kernel received each burst
    burst: int  # rows per burst: row r came with burst r // burst
    rows: Bytes  # (n, header + segment_size)
    index: Segments
    lengths: NDArray[np.intp]
    strays: list[bytes] = field(default_factory=list)
    stray_arrival: float = 0.0  # seconds, of the newest stray
    tos: NDArray[np.int32] | None = None  # (bursts,) TOS byte of each; None: none is congested
    congested: bool = False  # some are marked Congestion Experienced (RFC 3168)
    lost: int = 0  # discarded on purpose, to inject loss
    corrupted: int = 0  # changed on purpose
    keys: Keyring | None = None  # of the senders; None: checksums are not verified

    @property
    def count(self) -> int:
        return len(self.index)

    def groups(self, counters: Counter[str]) -> list[DatagramGroup]:
        """Runs of rows that one header stands for. Control among the rows moves to `strays`."""
        short = self.lengths < HEADER_SIZE
        if count := int(np.count_nonzero(short)):
            counters["short"] += count
            self._keep(~short)
        if not len(self.index):
            return []
        words = header_batch.parse(self._heads())
        if self.keys:
            words = self._genuine(words, self.keys, counters)
            if not len(words):
                return []
        out: list[DatagramGroup] = []
        control: list[bytes] = []
        for a, b in pairwise(header_batch.group_starts(words)):
            try:
                header = Header.unpack_untrusted(words[a].tobytes())
            except MalformedDatagram as exc:
                counters[exc.reason] += b - a
                continue
            if header.kind is Kind.DATA:
                out.append(self._group(header, words[a:b], slice(a, b)))
            else:
                control += self._stray(slice(a, b))
        self.strays = control + self.strays
        return out

    def _genuine(self, words: Words, keys: Keyring, counters: Counter[str]) -> Words:
        """Remove DATA whose checksums do not match, as if they were lost."""
        at = np.flatnonzero(header_batch.well_formed_data(words))
        if not len(at):
            return words
        if len(at) == len(words):
            good = keys.genuine(words, self.rows, self.index, self.lengths)
        else:
            good = np.ones(len(words), bool)
            good[at] = keys.genuine(words[at], self.rows, self.index[at], self.lengths[at])
        if count := len(good) - int(np.count_nonzero(good)):
            counters["checksum"] += count
            self._keep(good)
            return words[good]
        return words

    def _group(self, header: Header, words: Words, at: slice) -> RowGroup:
        index = self.index[at]
        group = RowGroup(
            header, words, self.rows, index, self.lengths[at], self.arrivals, self.burst
        )
        if self.tos is not None and self.congested:
            group.marked = int(np.count_nonzero(self.tos[index // self.burst] & CE == CE))
        return group

    def _stray(self, at: slice) -> list[bytes]:
        rows = self.index[at].tolist()
        self.stray_arrival = self.stray_arrival or self.arrivals[rows[-1] // self.burst]
        lengths = self.lengths[at].tolist()
        return [self.rows[r, :n].tobytes() for r, n in zip(rows, lengths, strict=True)]

    def _heads(self) -> Bytes:
        """The first HEADER_SIZE bytes of every datagram; `index` ascends, so its ends show gaps."""
        first, last = int(self.index[0]), int(self.index[-1])
        if last - first + 1 == len(self.index):
            return self.rows[first : last + 1, :HEADER_SIZE]
        return self.rows[self.index, :HEADER_SIZE]

    def _keep(self, these: np.ndarray[Any, np.dtype[np.bool_]]) -> None:
        self.index, self.lengths = self.index[these], self.lengths[these]


def alone(header: Header, data: bytes, arrived_at: float) -> RowGroup:
    """A group of one datagram, whose `header` has been checked."""
    row = np.frombuffer(data, np.uint8)[None]
    return RowGroup(
        header,
        header_batch.parse(row[:, :HEADER_SIZE]),
        row,
        np.zeros(1, np.intp),
        np.array([len(data)], np.intp),
        (arrived_at,),
        1,
    )
