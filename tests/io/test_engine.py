"""Whole engines on loopback: real processes, sockets and shared memory."""

import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import numpy as np
import pytest

from dlcp_lab.simulation.reference import draw, rank_ordered
from dlcpd.contract.frames import encode
from dlcpd.contract.messages import Completed, Failed, Hello, Released
from dlcpd.core.wire.header import Header, Kind
from dlcpd.core.wire.sizes import BASE
from dlcpd.daemon.peers.line import REFUSED
from dlcpd.io import commands, control_events
from dlcpd.io.config import EngineConfig
from tests.io.engines import ARENA, FORKED, PATIENCE, Engine, Job, failure, token

Jobs = Callable[..., Job]


@pytest.fixture
def job() -> Iterator[Jobs]:
    """Starts engines; ends them with the test."""
    jobs: list[Job] = []

    def start(
        world_size: int = 2, *, host: str = "127.0.0.1", paths: int = 1, **options: Any
    ) -> Job:
        def configure(rank: int) -> EngineConfig:
            return EngineConfig(
                host=f"host{rank}",
                paths=((host, 0),) * paths,
                digest_every=1,
                inject_seed=rank,
                **options,
            )

        jobs.append(Job(world_size, configure, FORKED))
        return jobs[-1]

    yield start
    for started in jobs:
        started.close()


def exact(job: Job, number: int, count: int, dtype: str = "float32", op: str = "sum") -> None:
    parts = draw(dtype, len(job.ranks), count, number)
    outcomes = job.all_reduce(number, parts, dtype=dtype, reduce=op)
    expected = rank_ordered(parts, dtype, op).tobytes()
    for rank, outcome in zip(job.ranks, outcomes, strict=True):
        assert isinstance(outcome, Completed), outcome
        assert outcome.released
        assert rank.tensor(0, count, dtype).tobytes() == expected


# --- results -----------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [0.0, 0.05])
@pytest.mark.parametrize(
    ("host", "paths", "offload"),
    [("127.0.0.1", 1, True), ("127.0.0.1", 2, True), ("127.0.0.1", 2, False), ("::1", 2, True)],
)
def test_exact(job: Jobs, host: str, paths: int, offload: bool, loss: float) -> None:
    started = job(host=host, paths=paths, offload=offload, inject_loss=loss)
    cases = [
        (1, "float32"),
        (63, "float16"),
        (352, "float32"),
        (353, "bfloat16"),
        (100_000, "int32"),
        (200_001, "float64"),
        (1_000_000, "float32"),
    ]
    for number, (count, dtype) in enumerate(cases, 1):
        exact(started, number, count, dtype)
    lost = sum(engine.counters().get("injected_loss", 0) for engine in started.engines)
    assert bool(lost) == bool(loss)


def test_three_ranks(job: Jobs) -> None:
    started = job(3, chunk_bytes=50 * 1408)
    for number, count in enumerate((2, 1000, 300_000), 1):
        exact(started, number, count, op="avg")


@pytest.mark.parametrize("paths", [1, 2])
def test_bounded(job: Jobs, paths: int) -> None:
    """Equal everywhere, within the bound, booked on both sides, and nothing lost for ever."""
    started = job(paths=paths, inject_loss=0.03, chunk_bytes=100 * BASE, segment_size=BASE)
    produced = delivered = np.zeros(300_000)
    rng = np.random.default_rng(1)
    for number in range(1, 4):
        parts = [rng.integers(1, 50, 300_000).astype(np.float32) for _ in range(2)]
        outcomes = job_outcomes(started.all_reduce(number, parts, max_loss=0.05, name="w"))
        results = [rank.tensor(0, 300_000).copy() for rank in started.ranks]
        assert results[0].tobytes() == results[1].tobytes()
        assert sum(o.lost for o in outcomes) == sum(o.waived for o in outcomes)
        produced, delivered = produced + np.sum(parts, axis=0), delivered + results[0]
    rest = [np.zeros(300_000, np.float32) for _ in range(2)]
    assert sum(o.reapplied for o in job_outcomes(started.all_reduce(4, rest, name="w"))) > 0
    assert (delivered + started.ranks[0].tensor(0, 300_000) == produced).all()
    for rank, engine in enumerate(started.engines):
        session = engine.report()["sessions"]["1"]
        assert session["residual_bytes"] == 0
        owned = [row for row in session["ledger"] if row["owner"] == rank]
        assert owned
        assert all(row["segments"] <= 5 for row in owned)


def job_outcomes(messages: list[Any]) -> list[Completed]:
    assert all(isinstance(message, Completed) for message in messages), messages
    return messages


def test_many_in_flight_without_in_place(job: Jobs) -> None:
    started, count, size = job(), 5000, 20_480
    parts = {n: draw("float32", 2, count, n) for n in range(1, 101)}
    for number, pair in parts.items():
        for rank, part in zip(started.ranks, pair, strict=True):
            rank.tensor(number * size, count)[:] = part
            place = {"input": number * size, "output": number * size}
            rank.submit(number, count=count, in_place=False, **place)
    for rank in started.ranks:
        released: set[int] = set()
        while len(released) < len(parts):
            message = rank.receive()
            assert isinstance(message, Completed | Released), message
            if isinstance(message, Released) or message.released:
                released.add(message.operation)
            if isinstance(message, Completed):
                released |= set(message.also_released)
    for number, pair in parts.items():
        expected = rank_ordered(pair, "float32", "sum").tobytes()
        for rank in started.ranks:
            assert rank.tensor(number * size, count).tobytes() == expected


def test_a_capped_engine_still_delivers(job: Jobs) -> None:
    started = job(rate_limit_bps=100e6)
    exact(started, 1, 200_000)


# --- what a client may not do ----------------------------------------------------------------

BAD = [
    ("outside the arena", {"input": ARENA - 64, "count": 100}, "bad_message", "arena"),
    ("unaligned", {"input": 4}, "bad_message", "arena"),
    ("min with loss", {"reduce": "min", "max_loss": 0.1, "name": "n"}, "bad_policy", "exact"),
    ("loss without a name", {"max_loss": 0.1}, "bad_policy", "name"),
    ("average of integers", {"dtype": "int32", "reduce": "avg"}, "bad_policy", "use sum"),
]


@pytest.mark.parametrize(
    ("options", "code", "told"), [case[1:] for case in BAD], ids=[case[0] for case in BAD]
)
def test_a_bad_submit_fails_and_the_next_operation_works(
    job: Jobs, options: dict[str, Any], code: str, told: str
) -> None:
    started = job()
    for rank in started.ranks:
        rank.submit(1, **options)
        number, got, text = failure(rank.outcome(1))
        assert (number, got) == (1, code)
        assert told in text
    exact(started, 2, 1000)


def test_a_number_out_of_order_is_refused(job: Jobs) -> None:
    started = job()
    for number in (7, 2):
        started.ranks[0].submit(number)
        _, code, text = failure(started.ranks[0].outcome(number))
        assert (code, text) == ("bad_message", f"operation {number} after 0")
    exact(started, 1, 1000)
    started.ranks[0].submit(1)
    answer = started.ranks[0].outcome(1)
    if isinstance(answer, Released):  # of the one that was done; peers may need it that long
        answer = started.ranks[0].outcome(1)
    assert failure(answer)[1] == "bad_message"
    exact(started, 2, 1000)


def test_peers_hear_of_an_operation_that_could_not_begin(job: Jobs) -> None:
    started = job()
    started.ranks[0].submit(1, output=4)
    failure(started.ranks[0].outcome(1))
    event = started.engines[0].receive()
    assert isinstance(event, control_events.OperationsFailed)
    [failed] = event.failures
    assert (failed.stream, failed.operation, failed.ranks) == (0, 1, [1])
    assert failed.code == "bad_message"


@pytest.mark.parametrize(
    "frame",
    [b"\xc1", b"garbage", msgpack.packb([99, {}]), encode(Hello(1, "me"))],
    ids=["no msgpack", "other msgpack", "no such kind", "not for a lane"],
)
def test_a_bad_frame_ends_its_session_and_is_counted(job: Jobs, frame: bytes) -> None:
    started = job()
    started.ranks[0].lane.send(frame)
    number, code, _ = failure(started.ranks[0].receive())
    assert (number, code) == (0, "bad_message")
    ended = started.engines[0].receive()
    assert isinstance(ended, control_events.SessionEnded)
    assert (ended.session, ended.code) == (1, "bad_message")
    report = started.engines[0].report()
    assert (report["counters"]["bad_message"], report["sessions"]) == (1, {})


# --- ends ------------------------------------------------------------------------------------


def test_the_end_of_a_lane_is_told_to_control(job: Jobs) -> None:
    started = job()
    exact(started, 1, 1000)
    started.ranks[0].lane.close()
    begun = [commands.Begun(0, 1)]
    assert started.engines[0].receive() == control_events.LeftOpen(1, 0), "without a Leave"
    assert started.engines[0].receive() == control_events.SessionLeft(1, 1, begun, last=True)
    assert started.engines[0].receive() == control_events.SessionDelivered(1)
    started.engines[0].close_session()
    deadline = time.monotonic() + PATIENCE
    while started.engines[0].report()["sessions"]:  # it closes after the wake-up of the command
        assert time.monotonic() < deadline


def test_a_rank_whose_session_closes_is_lost_to_those_that_wait_for_it(job: Jobs) -> None:
    started = job()
    started.ranks[0].submit(1)
    while not started.engines[0].report()["sessions"]["1"]["waiting"]:
        time.sleep(0.01)
    started.engines[0].close_session()
    lost = started.ranks[0].outcome(1)
    assert isinstance(lost, Failed)
    assert (lost.code, lost.rank) == ("session_closed", -1)
    assert [(row.code, row.peer) for row in failures(started.engines[0])] == [("peer_lost", 0)]


@pytest.mark.parametrize(("host", "paths"), [("127.0.0.1", 1), ("127.0.0.1", 2), ("::1", 1)])
def test_a_killed_engine_is_named_to_the_other_rank(job: Jobs, host: str, paths: int) -> None:
    """Within a second where the kernel says that its port is closed, however long a host that
    merely stands still is waited for."""
    started = job(host=host, paths=paths, peer_timeout=3600.0)
    exact(started, 1, 1000)
    started.ranks[0].submit(2, deadline=3600.0)
    started.engines[1].kill()
    number, code, text = failure(started.ranks[0].outcome(2))
    assert (number, code) == (2, "peer_lost")
    assert "rank 1 on host1" in text
    assert "its UDP port is closed: its process has ended" in text
    number, code, _ = failure(started.ranks[0].receive())
    assert (number, code) == (0, "peer_lost")
    events = [started.engines[0].receive() for _ in range(2)]
    assert [type(e) for e in events] == [
        control_events.OperationsFailed,
        control_events.SessionFailed,
    ]
    started.ranks[0].submit(3)
    refused = started.ranks[0].outcome(3)
    assert isinstance(refused, Failed)
    assert (refused.code, refused.rank, refused.host) == ("peer_lost", 1, "host1")
    assert refused.awaiting == "rank(s) 1 to submit operation 3 (all_reduce)"


def test_an_engine_that_stands_still_is_suspected_and_goes_on(job: Jobs) -> None:
    """Stopped for as long as it takes to be suspected, and for longer."""
    started = job(suspect_after=0.3)
    parts = draw("float32", 2, 100_000, 1)
    started.engines[1].process.send_signal(signal.SIGSTOP)
    for rank, part in zip(started.ranks, parts, strict=True):
        rank.memory[: part.nbytes] = part.view(np.uint8)
        rank.submit(1, count=part.size)
    suspected = started.engines[0].receive()
    assert isinstance(suspected, control_events.PeerChanged)
    assert (suspected.rank, suspected.state) == (1, "peer_suspected")
    assert suspected.silent >= 0.3
    [peer] = started.engines[0].report()["sessions"]["1"]["peers"]
    assert peer["silent"] >= 0.3
    started.engines[1].process.send_signal(signal.SIGCONT)
    for rank in started.ranks:
        assert isinstance(rank.outcome(1), Completed)
        assert rank.tensor(0, 100_000).tobytes() == rank_ordered(parts, "float32", "sum").tobytes()
    heard = started.engines[0].receive()
    assert isinstance(heard, control_events.PeerChanged)
    assert (heard.rank, heard.state) == (1, "peer_heard")
    [peer] = started.engines[0].report()["sessions"]["1"]["peers"]
    assert peer["silent"] == 0


def test_a_sign_from_control_ends_nothing_while_the_peer_answers(job: Jobs) -> None:
    started = job()
    started.ranks[0].submit(1)
    for _ in range(20):
        started.engines[0].send(commands.PeerDoubted(1, 1, "a sign"))
        time.sleep(0.05)
    started.ranks[1].submit(1)
    for rank in started.ranks:
        assert isinstance(rank.outcome(1), Completed)


def test_a_sign_from_control_and_silence_end_the_session(job: Jobs) -> None:
    started = job(peer_timeout=3600.0)
    exact(started, 1, 1000)
    started.engines[1].process.send_signal(signal.SIGSTOP)
    try:
        started.ranks[0].submit(2, deadline=3600.0)
        started.engines[0].send(commands.PeerDoubted(1, 1, REFUSED))
        _, code, text = failure(started.ranks[0].outcome(2))
    finally:
        started.engines[1].process.send_signal(signal.SIGCONT)
    assert code == "peer_lost"
    assert "the port of its daemon is closed: its process has ended" in text


def test_what_control_learned_reaches_the_client(job: Jobs) -> None:
    started = job()
    first, second = started.ranks
    large = 200_000  # elements: more than a READY carries, so it needs both ranks at once
    first.submit(1, count=large)
    started.engines[0].send(abort(1, 0, 1, "rank 1 aborted"))
    assert failure(first.outcome(1)) == (1, "operation_aborted", "rank 1 aborted")
    assert [row.peer for row in failures(started.engines[0])] == [-1]
    first.submit(2)
    started.engines[0].send(abort(1, 0, 2, "rank 1 has lost rank 1", lost=1))
    lost = first.outcome(2)
    assert isinstance(lost, Failed)
    assert (lost.code, lost.rank, lost.host) == ("peer_lost", 1, "host1")
    assert lost.awaiting.startswith("rank(s) 1 to submit")
    [row] = failures(started.engines[0])
    assert (row.code, row.peer) == ("operation_aborted", 1), "or it would be told for ever"
    second.submit(1, count=large)
    started.engines[1].send(commands.CloseSession(1, "session_closed", "told to"))
    assert failure(second.outcome(1))[1:] == ("session_closed", "told to")
    assert started.engines[1].report()["sessions"] == {}


def abort(
    rank: int, stream: int, operation: int, text: str, lost: int = -1
) -> commands.AbortOperations:
    aborted = commands.AbortedOperation(rank, stream, operation, text, lost)
    return commands.AbortOperations(1, [aborted])


def failures(engine: Engine) -> list[control_events.FailedOperation]:
    told = engine.receive()
    assert isinstance(told, control_events.OperationsFailed)
    return told.failures


def test_a_deadline_names_the_rank_that_did_not_come(job: Jobs) -> None:
    started = job()
    started.ranks[0].submit(1, deadline=0.3)
    _, code, text = failure(started.ranks[0].outcome(1))
    assert code == "deadline_exceeded"
    assert "rank(s) 1 to submit" in text


def test_a_deadline_ends_the_preparation_of_a_large_operation(
    job: Jobs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.io.engines.ARENA", 65 << 20)
    started = job()
    first, second = started.ranks
    whole = {"count": 16 << 20, "max_loss": 0.01, "name": "x"}
    first.submit(1, **whole, deadline=1e-4)
    assert failure(first.outcome(1))[1] == "deadline_exceeded"
    second.submit(1, **whole)
    for number in (2, 3):  # on the lane while it is prepared: begun in the order of submission
        apart = (64 << 20) + 4096 * number
        second.submit(number, count=1000, input=apart, output=apart)
        first.submit(number, count=1000, input=apart, output=apart)
    assert {type(rank.outcome(3)) for rank in started.ranks} == {Completed}


def test_ranks_that_disagree(job: Jobs) -> None:
    started = job()
    started.ranks[0].submit(1, count=1000)
    started.ranks[1].submit(1, count=1001)
    for rank in started.ranks:
        assert failure(rank.outcome(1))[1] == "ranks_disagree"


@pytest.mark.parametrize("drain", [0.0, 10.0])
def test_stop_ends_the_process(job: Jobs, drain: float) -> None:
    started = job()
    exact(started, 1, 1000)
    for engine in started.engines:
        engine.send(commands.Stop(drain))
        assert engine.process.wait(10.0) == 0


def test_an_engine_that_drains_takes_nothing_new(job: Jobs) -> None:
    started = job()
    first, second = started.ranks
    first.submit(1)
    while not started.engines[0].report()["sessions"]["1"]["open"]:
        pass
    started.engines[0].send(commands.Stop(10.0))
    started.engines[0].report()  # the command before it has been taken in
    first.submit(2)
    assert failure(first.outcome(2))[1] == "session_closed"
    second.submit(1)
    assert isinstance(first.outcome(1), Completed)
    assert started.engines[0].process.wait(10.0) == 0


def test_an_engine_ends_with_its_control() -> None:
    engine = Engine(EngineConfig())
    engine.receive()
    engine.control.close()
    assert engine.process.wait(10.0) == 0


def test_an_engine_that_cannot_bind_says_so() -> None:
    taken = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    taken.bind(("127.0.0.1", 0))
    engine = Engine(EngineConfig(paths=(("127.0.0.1", taken.getsockname()[1]),)))
    failed = engine.receive()
    assert isinstance(failed, control_events.EngineFailed)
    assert failed.code == "address_unavailable"
    assert engine.process.wait(10.0) == 1
    engine.close()
    taken.close()


# --- strangers ---------------------------------------------------------------------------------


def test_forged_datagrams_are_counted_and_change_nothing(job: Jobs) -> None:
    started = job(paths=2)
    exact(started, 1, 1000)
    before = started.engines[0].counters()
    stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sent = 0
    for kind in Kind:
        for address in started.endpoints[0]:
            forged = Header(kind, token(0, 1) ^ 1 << 40, operation=1).pack()
            for data in (forged, forged.ljust(1440, b"x"), forged[:20], b"\x00" * 100):
                stranger.sendto(data, tuple(address))
                sent += 1
    stranger.close()
    exact(started, 2, 100_000)
    after = started.engines[0].counters()
    names = ("token", "short", "kernel_dropped")  # the kernel looks at version and prefix alone
    refused = {k: after.get(k, 0) - before.get(k, 0) for k in names}
    assert refused == {"token": sent // 2, "short": sent // 4, "kernel_dropped": sent // 4}


def test_the_past_sent_again_by_a_stranger_changes_nothing(job: Jobs) -> None:
    """With the right token: an eavesdropper's replay of what belongs to operation 1."""
    started = job()
    exact(started, 1, 1000)
    stranger = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for number in range(50):
        old = Header(Kind.DATA, token(0, 1), operation=1, transfer=number % 2, packet_number=1)
        payload = struct.pack("<352f", *([1e30] * 352))
        stranger.sendto(old.pack() + payload, tuple(started.endpoints[0][0]))
    stranger.close()
    exact(started, 2, 100_000)
    counters = started.engines[0].counters()
    assert sum(counters.get(reason, 0) for reason in ("stale", "duplicate", "transfer")) >= 50


def test_a_closed_session_leaves_no_arena_mapped(job: Jobs) -> None:
    started = job()
    exact(started, 1, 1000)
    started.ranks[0].submit(2)
    while not started.engines[0].report()["sessions"]["1"]["waiting"]:
        time.sleep(0.01)
    for engine in started.engines:
        assert arenas(engine) == 1
        engine.send(commands.CloseSession(1, "session_closed", "told to"))
        while engine.report()["sessions"]:
            time.sleep(0.01)
        until = time.monotonic() + PATIENCE  # a thread gives it back
        while arenas(engine) and time.monotonic() < until:
            time.sleep(0.01)
        assert arenas(engine) == 0


def arenas(engine: Engine) -> int:
    """How many the engine has mapped."""
    maps = Path(f"/proc/{engine.process.pid}/maps").read_text().splitlines()
    return sum("memfd:dlcpd-arena" in line for line in maps)
