"""Engines in the middle of their work, and a peer gone mad that holds the tokens of the session.

It sends what the ranks themselves say, with one or several things wrong (tests/attack/mutator.py).
It may disturb: operations fail with named errors. It must not crash an engine, make it grow, or
change a result. DLCPD_MUTATED says how many datagrams it sends; docs/wire.md, "Refused datagrams".
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from typing import Final, Self

import numpy as np
import pytest

from dlcp_lab.simulation.reference import draw, rank_ordered
from dlcpd.contract.errors import MalformedDatagram
from dlcpd.contract.messages import Completed, Failed
from dlcpd.core.wire import control, probes
from dlcpd.core.wire.header import VERSION, Flag, Header, Kind
from dlcpd.core.wire.sizes import BASE
from dlcpd.io.config import EngineConfig
from tests.attack.mutator import Mutator
from tests.attack.tap import BURST, Burst, TappedJob, anonymous_memory, grown, queued
from tests.checks import Measured
from tests.io.engines import PATIENCE, token

WORLD: Final = 3
DATAGRAMS: Final = int(os.environ.get("DLCPD_MUTATED", "100000"))
SOURCES: Final = 4  # sockets that the mutated ones come from, none of them a peer's
WAITING: Final = 4 << 20  # bytes in an engine's receive queue at which the flood pauses: of 32 MB
COUNTS: Final = (288 * 3, 288 * 24)  # elements: an all-reduce in one step, and one in two
PER_OPERATION: Final = 1000  # datagrams of the flood for each operation, at most
DEADLINE: Final = 0.5  # seconds; what a forged COMPLETE makes a rank wait
# Mutated datagrams with valid tokens end about half of the operations: 162 of 303 and 172 of 306
# were right on an idle machine, 145 of 303 on a busy one. Of a job that has stopped none would be.
LEAST_RIGHT: Final = 0.2
NAMED: Final = {
    "ranks_disagree", "replica_divergence", "deadline_exceeded", "operation_aborted", "peer_lost",
    "session_closed",
}  # fmt: skip
# What memory may grow by: 256 KB of early data and 2.3 MB of pieces per peer, READYs that came
# early, the timers of what was disturbed; and what the allocator keeps of it.
MOST_GROWTH: Final = 48 << 20  # bytes of an engine, whatever the number of datagrams
WARM: Final = 0.1  # of the datagrams, before memory is looked at first
# Counted by the header alone, so that nothing but a mutated one can be counted so.
BY_HEADER: Final = ("short", "kind", "flags", "tag")
PREFIX: Final = token(0, 0).to_bytes(8, "little")[6:]  # of all tokens
EXACT: Final = 5000  # datagrams of the check of counters


@pytest.fixture
def job() -> Iterator[TappedJob]:
    """Both data paths, with and without offload."""
    ways = (("auto", True), ("numpy", True), ("auto", False))
    configs = [
        EngineConfig(
            host=f"host{rank}",
            digest_every=1,
            segment_size=BASE,
            chunk_bytes=8 * BASE,
            data_path=data_path,
            offload=offload,
        )
        for rank, (data_path, offload) in enumerate(ways)
    ]
    made = TappedJob(configs)
    yield made
    made.close()


class Flood(threading.Thread):
    """Forwards what the ranks say, and sends mutated copies, `allowed` of them in all."""

    def __init__(self, job: TappedJob) -> None:
        super().__init__(daemon=True)
        self.job, self.allowed = job, 0
        self.sent, self.pieces = 0, 0
        self.refusals: list[Counter[str]] = [Counter() for _ in range(WORLD)]
        self.ports = [endpoints[0].port for endpoints in job.endpoints]
        self._stop_now, self._sending = threading.Event(), threading.Lock()
        self._bursts = [Burst([each[0] for each in job.endpoints]) for _ in range(SOURCES)]
        self._mutator: Mutator | None = None
        self._session, self._random = 0, np.random.default_rng(7)

    def run(self) -> None:
        try:
            while not self._stop_now.is_set():
                self.job.forward()
                with self._sending:
                    going = self.sent < self.allowed and queued(self.ports)[0] < WAITING
                    if going:
                        self._burst()
                if not going:
                    time.sleep(0.0005)
        finally:
            for burst in self._bursts:
                burst.close()

    def rest(self) -> None:
        """Go on forwarding, and send nothing of its own any more."""
        with self._sending:
            self.allowed = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop_now.set()
        self.join(PATIENCE)

    def _burst(self) -> None:
        session, heard = self.job.session, self.job.heard
        if session != self._session or self._mutator is None:
            self._session = session
            self._mutator = Mutator(session, tokens(session))
        batch: list[tuple[int, bytes]] = []
        while len(batch) < BURST - 8:  # one may become several
            (_, target), kinds = list(heard.items())[self._random.integers(len(heard))]
            if not kinds:
                break
            some = list(kinds.values())[self._random.integers(len(kinds))]
            data = some[self._random.integers(len(some))]
            batch += [(target, each) for each in self._mutator(data)]
        for rank, data in batch:
            self.pieces += data[1:2] == bytes([Kind.PIECE])
            self.refusals[rank][refusal(data)] += 1
        self._bursts[self._random.integers(SOURCES)].send(batch)
        self.sent += len(batch)


def tokens(session: int) -> set[int]:
    """All that are valid."""
    return {token(a, b, session) for a in range(WORLD) for b in range(WORLD)}


def refusal(data: bytes) -> str:
    """Why the header alone is refused; empty where it is not."""
    if data[:1] != bytes([VERSION]) or data[14:16] != PREFIX:
        return "kernel_dropped"
    try:
        Header.unpack_untrusted(data)
    except MalformedDatagram as exc:
        return exc.reason
    return ""


def certain_refusal(data: bytes, known: set[int]) -> str:
    """Why a datagram is refused whatever the session is doing; empty where that may decide."""
    if reason := refusal(data):
        return reason
    header, body = Header.unpack_untrusted(data), control.body_untrusted(data)
    if header.token not in known:
        return "token"
    try:
        match header.kind:
            case Kind.READY:
                control.unpack_ready_untrusted(body, carries=bool(header.flags & Flag.CARRIES))
            case Kind.CREDIT:
                control.unpack_credit_untrusted(body)
            case Kind.COMPLETE:
                control.unpack_transfers_untrusted(body)
            case Kind.PROBE:
                probes.unpack_probe_untrusted(data)
            case Kind.PROBE_ACK:
                probes.unpack_answer_untrusted(data)
    except MalformedDatagram as exc:
        return exc.reason
    return ""


def all_reduce(job: TappedJob, number: int) -> tuple[Counter[str], bool]:
    """One operation on all ranks: how it ended on each, and whether the session ended with it.

    Raises: AssertionError for a wrong result or an error without a name.
    """
    count = COUNTS[number % len(COUNTS)]
    parts = draw("float32", WORLD, count, 1000 * job.session + number)
    outcomes = job.all_reduce(number, parts, deadline=DEADLINE)
    expected = rank_ordered(parts, "float32", "sum").tobytes()
    ended, over = Counter[str](), False
    for rank, outcome in zip(job.ranks, outcomes, strict=True):
        if isinstance(outcome, Completed):
            assert rank.tensor(0, count).tobytes() == expected, (job.session, number)
            ended["right"] += 1
        else:
            assert isinstance(outcome, Failed) and outcome.code in NAMED, outcome
            ended[outcome.code] += 1
            over |= not outcome.operation
    return ended, over


def counters(job: TappedJob) -> list[Counter[str]]:
    """Of each engine, once all that was sent is read."""
    ports, until = [each[0].port for each in job.endpoints], time.monotonic() + PATIENCE
    while queued(ports)[0]:
        assert time.monotonic() < until, "an engine does not read any more"
        time.sleep(0.01)
    found = [Counter(engine.counters()) for engine in job.engines]
    for each in found:
        del each["gro_useless"]  # refuses nothing, and comes again while datagrams come singly
    return found


def count_exactly(job: TappedJob, flood: Flood) -> int:
    """To ranks at rest: datagrams that must be refused, each counted once and under its reason."""
    job.reopen()
    assert all_reduce(job, 1)[0] == {"right": WORLD}
    known, mutator = tokens(job.session), Mutator(1, tokens(job.session))
    heard = [
        (target, some[-1]) for (_, target), each in job.heard.items() for some in each.values()
    ]
    bad: list[tuple[int, bytes]] = []
    while len(bad) < EXACT:
        rank, data = heard[len(bad) % len(heard)]
        bad += [(rank, each) for each in mutator(data) if certain_refusal(each, known)]
    sent = [Counter[str]() for _ in range(WORLD)]
    for rank, data in bad:
        sent[rank][certain_refusal(data, known)] += 1
    before, dropped = counters(job), queued(flood.ports)[1]
    with closing(Burst([each[0] for each in job.endpoints])) as burst:
        for at in range(0, len(bad), BURST):
            burst.send(bad[at : at + BURST])
            while queued(flood.ports)[0] > WAITING:
                time.sleep(0.001)
    after = counters(job)
    assert queued(flood.ports)[1] == dropped + sum(each["kernel_dropped"] for each in sent)
    for old, new, each in zip(before, after, sent, strict=True):
        assert +grown(old, new) == each
    return len(bad)


@pytest.mark.timeout(900)
@pytest.mark.check(
    20, "mutated datagrams of a token's holder: no crash, no growth, no wrong result"
)
def test_mutated_datagrams(job: TappedJob, measured: Measured) -> None:
    before, ended, number, warm = counters(job), Counter[str](), 0, [0] * WORLD
    with Flood(job) as flood:
        dropped = queued(flood.ports)[1]
        while flood.sent < DATAGRAMS:
            assert flood.is_alive()
            number += 1
            flood.allowed = min(flood.allowed + PER_OPERATION, DATAGRAMS)
            news, over = all_reduce(job, number)
            ended += news
            if over:
                job.reopen()
                number = 0
                for engine in job.engines:
                    engine.report()  # reads its events: a full socket would stop it
            if not any(warm) and flood.sent > WARM * DATAGRAMS:
                warm = [anonymous_memory(engine.process.pid) for engine in job.engines]
        flood.rest()
        growth = [grown(*each) for each in zip(before, counters(job), strict=True)]
        dropped = queued(flood.ports)[1] - dropped
        dropped -= sum(each["kernel_dropped"] for each in flood.refusals)
        memory = [anonymous_memory(engine.process.pid) for engine in job.engines]
        more = max(after - first for after, first in zip(memory, warm, strict=True))
        counted = count_exactly(job, flood)

    assert [engine.process.poll() for engine in job.engines] == [None] * WORLD
    assert more < MOST_GROWTH
    assert ended["right"] > LEAST_RIGHT * ended.total()
    refused = 0
    for found, sent in zip(growth, flood.refusals, strict=True):
        for reason in BY_HEADER:
            refused += found[reason]
            # a whole made of mutated pieces may have a header that is refused in its turn
            assert sent[reason] - dropped <= found[reason] <= sent[reason] + flood.pieces, reason
    codes = ", ".join(f"{code} {count}" for code, count in ended.most_common())
    measured(
        f"{flood.sent:,} sent, {dropped} dropped by the kernel, {refused:,} refused by the header "
        f"alone; {job.session} sessions, outcomes: {codes}; "
        f"memory {more / (1 << 20):+.1f} MB; of {counted:,} at rest each counted once"
    )
