"""Cost of checksum and encryption: CPU time per payload byte, sending and receiving together.

Two sockets on loopback, both ends in one thread. Segments go from one array to another as between
two engines, without schedule or congestion control. `python -m dlcp_lab.bench.protection`
"""

import argparse
import select
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, Self

import numpy as np

from dlcp_lab.report.measured import WORDS, Gap, attempt, figure
from dlcp_lab.report.statistic import NotMeasured, Spread, ratios
from dlcpd.cli import table
from dlcpd.core.transfer.incoming import Incoming, NoPlacement, Placement
from dlcpd.core.transfer.receiver import TransferReceiver
from dlcpd.core.wire.checksum import Checksum, Keyring
from dlcpd.core.wire.datagram import Transmit
from dlcpd.core.wire.header import Header, Key, Kind
from dlcpd.core.wire.sizes import MAX_SEGMENT
from dlcpd.io.config import EngineConfig
from dlcpd.io.datapath.choices import COMPILED, NUMPY
from dlcpd.io.datapath.compiled import compiled
from dlcpd.io.datapath.library import installed
from dlcpd.io.udp.encryption import AES_256_GCM, encryption
from dlcpd.io.udp.udp_path import UdpPath

PEER: Final = 1
TOKEN: Final = 0x5EC0_0000_0000_0001
SEGMENTS: Final = 1408, MAX_SEGMENT  # bytes: Ethernet without jumbo frames, and with
BATCH: Final = 180  # datagrams sent in a row; 1.6 MB at most, well within a receive buffer
BATCHES: Final = 8  # per transfer
PATIENCE: Final = 5.0  # seconds without a datagram after which the kernel has dropped some
REFERENCES: Final = "numpy, checksum", "C, checksum"  # other ways are compared with these


@dataclass
class ProtectedSockets:
    """Two sockets with one data path and one kind of protection."""

    name: str
    source: UdpPath
    sink: UdpPath
    placement: Placement = field(default_factory=NoPlacement)
    counters: Counter[str] = field(default_factory=Counter)
    operation: int = 0

    @classmethod
    def plain(cls, data_path: str, *, checksum: bool) -> Self:
        """Datagrams in clear, with or without a checksum."""
        both, keys = compiled(data_path), Keyring()
        config = EngineConfig(receive_buffer=32 << 20)
        source, sink = (UdpPath(0, config, Counter(), Counter(), both, keys=keys) for _ in range(2))
        source.connect(PEER, *sink.address)
        if checksum:
            source.seal(PEER, Checksum(b"secret"))
            keys.add(TOKEN, Checksum(b"secret"))
        name = f"{'C' if both else 'numpy'}, {'checksum' if checksum else 'none'}"
        return cls(name, source, sink, both.table if both else NoPlacement())

    @classmethod
    def encrypted(cls) -> Self:
        """Encrypted datagrams. Raises: BadConfig."""
        ends = []
        config = EngineConfig(receive_buffer=32 << 20)
        for secrets in ((b"in", b"out"), (b"out", b"in")):
            keys = encryption(AES_256_GCM)
            assert keys is not None  # noqa: S101  # a cipher was named
            keys.add(PEER, TOKEN, *secrets)
            ends.append(keys.path(0, config, Counter(), Counter()))
        source, sink = ends
        source.connect(PEER, *sink.address)
        return cls(f"numpy, {AES_256_GCM}", source, sink)

    def transfer(self, payload: np.ndarray, target: np.ndarray, segment: int) -> float:
        """Carry `payload`, a whole number of segments, to `target`; returns CPU seconds.

        Raises: NotMeasured if the kernel dropped datagrams.
        """
        self.operation += 1
        receiver = TransferReceiver(len(payload) // segment)
        incoming = Incoming(Key(0, self.operation, 0), 1, receiver, target, segment)
        began = time.thread_time()
        self.placement.open(TOKEN, incoming)
        for first in range(0, receiver.segments, BATCH):
            segments = np.arange(first, min(first + BATCH, receiver.segments), dtype=np.intp)
            self.source.send(self._batch(payload, segments, segment))
            self._receive(incoming, receiver.segments - first - len(segments))
        self.placement.close(incoming)
        return time.thread_time() - began

    def _batch(self, payload: np.ndarray, segments: np.ndarray, segment: int) -> Transmit:
        first = Header(Kind.DATA, TOKEN, self.operation, packet_number=1 + int(segments[0]))
        none = np.zeros(len(segments), np.uint8)
        return Transmit(PEER, 0, first, none, payload, segments, segment, none)

    def _receive(self, incoming: Incoming, left: int) -> None:
        """Receive until at most `left` segments are missing. Raises: NotMeasured."""
        while incoming.receiver.missing > left:
            if not select.select([self.sink], [], [], PATIENCE)[0]:
                raise NotMeasured(
                    "the kernel dropped datagrams, so the measurement is invalid; run it on "
                    "an idle machine"
                )
            for batch in self.sink.receiver.receive():
                for group in batch.groups(self.counters):
                    group.place(incoming)

    def close(self) -> None:
        """Close both sockets."""
        self.source.socket.close()
        self.sink.socket.close()


def ways() -> Iterator[ProtectedSockets]:
    """All ways that this machine supports."""
    for data_path in (COMPILED, NUMPY) if installed() else (NUMPY,):
        for checksum in (False, True):
            yield ProtectedSockets.plain(data_path, checksum=checksum)
    yield ProtectedSockets.encrypted()


def measured(segment: int, rounds: int) -> dict[str, list[float] | Gap]:
    """Nanoseconds per payload byte of each round, by way. Ways alternate; a first round, which is
    not counted, warms up. A way that fails is left out, and has a gap."""
    payload = np.random.default_rng(1).integers(0, 256, segment * BATCH * BATCHES, np.uint8)
    target, each = np.zeros_like(payload), list(ways())
    costs: dict[str, list[float] | Gap] = {way.name: [] for way in each}
    try:
        for number in range(rounds + 1):
            for way in each:
                of_way = costs[way.name]
                if isinstance(of_way, Gap):
                    continue
                cost = attempt({"way": way.name}, partial(_cost, way, payload, target, segment))
                if isinstance(cost, Gap):
                    costs[way.name] = cost
                elif number:
                    of_way.append(cost)
    finally:
        for way in each:
            way.close()
    return costs


def _cost(way: ProtectedSockets, payload: np.ndarray, target: np.ndarray, segment: int) -> float:
    """Nanoseconds per byte of one transfer. Raises: NotMeasured; RuntimeError for wrong bytes."""
    target[:] = 0
    seconds = way.transfer(payload, target, segment)
    if not np.array_equal(payload, target):
        raise RuntimeError(f"{way.name}: the received bytes differ from the sent ones")
    return seconds / len(payload) * 1e9


def main(arguments: list[str] | None = None, say: Callable[[str], None] = print) -> int:
    """Print a table. Spreads are from the 10th to the 90th percentile."""
    parser = argparse.ArgumentParser(prog="dlcp_lab.bench.protection", description=__doc__)
    parser.add_argument("--rounds", type=int, default=31, help="of each way (%(default)s)")
    options = parser.parse_args(arguments)
    rows: list[list[object]] = []
    gaps: list[Gap] = []
    for segment in SEGMENTS:
        costs = measured(segment, max(options.rounds, 1))
        for name, values in costs.items():
            rows.append([name, segment, *_cells(values, [costs.get(r) for r in REFERENCES])])
        gaps += [gap for gap in costs.values() if isinstance(gap, Gap)]
    header = ("data path, protection", "segment(B)", "ns/B", *(f"times {r}" for r in REFERENCES))
    say(table.render(header, rows, left=1))
    for gap in gaps:
        say(gap.line())
    return 1 if gaps else 0


Costs = list[float] | Gap


def _cells(values: Costs, references: Sequence[Costs | None]) -> list[object]:
    """Spread of the costs, and of their ratios to each reference, round by round; None if this
    machine lacks the reference."""
    if isinstance(values, Gap):
        return [WORDS, *[None] * len(references)]
    others = [None if isinstance(one, Gap) else one for one in references]
    return [
        _shown(Spread.of(values)),
        *(None if one is None else figure(partial(_ratio, values, one)) for one in others),
    ]


def _ratio(values: Sequence[float], others: Sequence[float]) -> str:
    """Raises: NotMeasured."""
    return _shown(ratios(values, others))


def _shown(spread: Spread) -> str:
    return f"{spread.p50:.2f} ({spread.p10:.2f}..{spread.p90:.2f})"


if __name__ == "__main__":
    sys.exit(main())
