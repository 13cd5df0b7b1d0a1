"""Measures what a receiver of bounded data would gain if it waited longer before it waives.

`python -m dlcp_lab.simulation.waiting`: bounded all-reduces of two hosts in virtual time, over
seeds. A waived segment was either lost or only late. A second run with the same seeds doubles the
time for which a receiver waits until it judges what is missing.
"""

from dataclasses import dataclass, field
from functools import partial
from math import isclose
from statistics import fmean, stdev
from typing import Any, Final

import numpy as np

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcpd.core.session.outbox import ANSWER_DELAY
from dlcpd.core.session.session import Session
from dlcpd.core.timers import Timer, TimerTable
from dlcpd.core.wire.control import body_untrusted, unpack_bits_untrusted
from dlcpd.core.wire.header import Flag, Header, Kind

ROUND_TRIP: Final = 10e-3  # seconds
LOSS: Final = 0.01  # of all datagrams
BOUND: Final = 0.1
RATE: Final = 8_256.0  # datagrams per second: 100 Mb/s
SEGMENT: Final = 1408  # bytes
SEGMENTS: Final = 256  # of one rank's contribution
GRANT: Final = 32 << 20  # bytes in flight, which nothing here reaches
CONTRIBUTION: Final = 0  # number of the transfer; the result of the peer is 1
WARM: Final = 3  # operations that measure the path first
OPERATIONS: Final = 20  # that are measured, per seed
SEEDS: Final = 10
JITTERS: Final = (0.0, 1e-3, 4e-3)  # seconds

Place = tuple[int, int, int, int]  # of a segment: operation, sender, transfer, segment


@dataclass
class Patience(TimerTable):
    """Timers of an endpoint; those of the stop rule for contributions take `times` as long."""

    net: "PatientNetwork | None" = None
    times: float = 1.0

    def set(self, key: Any, at: float) -> None:
        """Longer waits than a round trip, and `ANSWER_DELAY`, are those of repetitions."""
        judges = key[1] is Timer.VERDICT and key[2].transfer == CONTRIBUTION
        if self.net is not None and judges:
            wait = at - self.net.now
            if wait < ROUND_TRIP and not isclose(wait, ANSWER_DELAY, abs_tol=1e-9):
                at = self.net.now + self.times * wait
        super().set(key, at)


@dataclass(repr=False)
class PatientNetwork(SimNetwork):
    """Two hosts whose receivers wait `times` as long. It notes which segments arrive, sooner or
    later, and which are waived."""

    times: float = 1.0
    arriving: set[Place] = field(default_factory=set)
    waived: set[Place] = field(default_factory=set)
    # what the last FINAL named: by operation, sender and transfer, the offer and its segments
    asked: dict[tuple[int, int, int], tuple[int, list[int]]] = field(default_factory=dict)

    def open_session(self, rank: int, number: int) -> Session:
        """Sessions take the timers of their endpoint."""
        self.endpoints[rank].timers = Patience(net=self, times=self.times)
        return super().open_session(rank, number)

    def carry(self, source: int, target: int, data: bytes) -> list[bytes]:
        """As `tamper`."""
        header = Header.unpack_untrusted(data)
        if header.kind is Kind.FINAL:
            self._on_final(target, header, data)
        elif header.kind is Kind.ACK:
            offer, missing = self.asked[header.operation, source, header.transfer]
            if offer == header.round:
                self._waive(source, header, missing)
        if self._rng.random() < LOSS:
            return []
        if header.kind is Kind.DATA:
            self.arriving.add((header.operation, source, header.transfer, header.segment))
        return [data]

    def _on_final(self, sender: int, header: Header, data: bytes) -> None:
        bits = unpack_bits_untrusted(body_untrusted(data), SEGMENTS)
        missing = np.flatnonzero(bits).tolist()
        self.asked[header.operation, sender, header.transfer] = header.round, missing
        if header.flags & Flag.WAIVED:
            self._waive(sender, header, missing)

    def _waive(self, sender: int, header: Header, missing: list[int]) -> None:
        self.waived |= {(header.operation, sender, header.transfer, at) for at in missing}


@dataclass(frozen=True)
class Outcome:
    """Of one seed."""

    milliseconds: float  # mean of the operations
    waived: int  # segments
    late: int  # of them: a datagram with the segment arrived later


def measure(jitter: float, times: float, seed: int, operations: int = OPERATIONS) -> Outcome:
    """Bounded all-reduces of a seed, one after the other."""
    link = SimLink(delay=ROUND_TRIP / 2, rate=RATE, queue=400, jitter=jitter)
    net = PatientNetwork(
        2, link, seed=seed, times=times, segment_size=SEGMENT, chunk_segments=SEGMENTS, grant=GRANT
    )
    net.tamper = net.carry
    rng = np.random.default_rng(seed)
    spent = []
    for number in range(1, WARM + operations + 1):
        begun = net.now
        size = 2 * SEGMENTS * SEGMENT // 4
        parts = [rng.standard_normal(size).astype(np.float32) for _ in range(2)]
        net.submit_all(number, parts, max_loss=BOUND, name="layer")
        net.run(enough=partial(net.ended, number))
        spent.append(1e3 * (net.now - begun))
        net.run(until=0.1)
    waived = {each for each in net.waived if each[0] > WARM}
    counted = sum(net.done(rank)[n].stats.lost for rank in range(2) for n in net.done(rank))
    if counted != len(net.waived):
        raise AssertionError(f"{len(net.waived)} segments waived, {counted} counted")
    return Outcome(fmean(spent[WARM:]), len(waived), len(waived & net.arriving))


def main() -> None:
    """A line per jitter: the waived segments, those only late, and the cost of waiting twice."""
    print("jitter    waived    only late    time, ms    waiting twice as long, ms")
    for jitter in JITTERS:
        once = [measure(jitter, 1.0, seed) for seed in range(SEEDS)]
        twice = [measure(jitter, 2.0, seed) for seed in range(SEEDS)]
        more = [b.milliseconds - a.milliseconds for a, b in zip(once, twice, strict=True)]
        waived, late = sum(each.waived for each in once), sum(each.late for each in once)
        time = fmean(each.milliseconds for each in once)
        error = stdev(more) / SEEDS**0.5
        print(
            f"{1e3 * jitter:.0f} ms {waived:9} {late:9} {time:14.1f}"
            f" {fmean(more):+14.2f}, standard error {error:.2f}"
        )


if __name__ == "__main__":
    main()
