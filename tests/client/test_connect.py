"""Sessions over real daemons: control, engine, UDP on loopback."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
import torch
from torch._C._distributed_c10d import HashStore

from dlcp_client import Session, bounded, connect, exact
from dlcpd.contract.errors import (
    BadConfig,
    DaemonLost,
    DaemonUnavailable,
    DeadlineExceeded,
    DlcpError,
    PeerLost,
    RanksDisagree,
)
from dlcpd.contract.frames import encode
from dlcpd.contract.messages import DTYPES, Welcome
from tests.client.real import TIMEOUT, connected, each_rank, engine_of, kill, reduce_all


@pytest.fixture
def pair() -> Iterator[list[Session]]:
    sessions = connected()
    yield sessions
    each_rank(lambda rank: sessions[rank].close())


@pytest.fixture(scope="module")
def healthy() -> Iterator[list[Session]]:
    """Sessions of several tests, none of which harms them."""
    sessions = connected()
    yield sessions
    each_rank(lambda rank: sessions[rank].close())


ORDERED = frozenset({"sum", "product", "min", "max"})
FLOATS = ("float16", "bfloat16", "float32", "float64")
OPERATIONS = dict.fromkeys(DTYPES, frozenset({*ORDERED, "band", "bor", "bxor"}))
OPERATIONS |= dict.fromkeys(FLOATS, ORDERED | {"avg"})
OPERATIONS |= dict.fromkeys(("complex64", "complex128"), frozenset({"sum", "avg"}))


def averaged(stacked: torch.Tensor) -> torch.Tensor:
    wide = torch.complex128 if stacked.is_complex() else torch.float64
    return stacked.to(wide).mean(0)


WANTED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum": lambda stacked: stacked.sum(0, dtype=stacked.dtype),
    "avg": averaged,
    "product": lambda stacked: stacked.prod(0, dtype=stacked.dtype),
    "min": lambda stacked: stacked.amin(0),
    "max": lambda stacked: stacked.amax(0),
    "band": lambda stacked: stacked[0] & stacked[1],
    "bor": lambda stacked: stacked[0] | stacked[1],
    "bxor": lambda stacked: stacked[0] ^ stacked[1],
}


@pytest.mark.parametrize("op", WANTED)
def test_every_operation_over_real_daemons(healthy: list[Session], op: str) -> None:
    for dtype in DTYPES:
        kind = getattr(torch, dtype)
        if op not in OPERATIONS[dtype]:
            continue
        tensors = [torch.arange(100_003).remainder(50).add(rank).to(kind) for rank in range(2)]
        stacked = torch.stack(tensors)
        want = WANTED[op](stacked)
        works = [s.all_reduce(t, op) for s, t in zip(healthy, tensors, strict=True)]
        for work in works:
            work.wait()
        assert torch.equal(tensors[0], tensors[1])
        assert torch.equal(tensors[0], want.to(kind))


def test_arena_tensors_and_many_in_flight(healthy: list[Session]) -> None:
    tensors = [
        [s.empty(50_000).fill_(i + rank) for i in range(20)] for rank, s in enumerate(healthy)
    ]
    works = [
        s.all_reduce(tensor) for s, mine in zip(healthy, tensors, strict=True) for tensor in mine
    ]
    for work in works:
        work.wait()
    for mine in tensors:
        assert [float(t[0]) for t in mine] == [2.0 * i + 1 for i in range(20)]
        assert all(bool((t == t[0]).all()) for t in mine)


def test_bounded_operations_and_their_ledger(tmp_path: Path) -> None:
    """5 % of the datagrams vanish; what is waived returns, and both ranks hold the same."""
    file = tmp_path / "dlcpd.toml"
    file.write_text(
        '[daemon]\ncontrol_address = "127.0.0.1"\n'
        '[network]\npaths = [{ address = "127.0.0.1" }]\n[inject]\nloss = 0.05\nseed = 3\n'
    )
    sessions = connected(config=file)
    for _ in range(5):
        tensors = [torch.ones(500_000) for _ in range(2)]
        works = [
            s.all_reduce(t, policy=bounded(0.1), name="gradient", exempt=[(0, 4096)])
            for s, t in zip(sessions, tensors, strict=True)
        ]
        for work in works:
            work.wait()
        assert torch.equal(*tensors)
        assert bool((tensors[0][:1024] == 2).all())
    ledgers = [session.ledger for session in sessions]
    assert sum(ledger.waived for ledger in ledgers) > 0
    assert sum(ledger.reapplied for ledger in ledgers) > 0
    assert all(ledger.reapplied <= ledger.waived for ledger in ledgers)
    each_rank(lambda rank: sessions[rank].close())


def test_what_was_lost_returns_in_the_present_loss_scale(tmp_path: Path) -> None:
    """Every rank contributes ones in the scale of the step: at most those of all steps arrive.

    Half a one would come of 512 that return as such among 1024, and 130 of 256 among 2.
    """
    file = tmp_path / "dlcpd.toml"
    file.write_text(
        '[daemon]\ncontrol_address = "127.0.0.1"\n'
        '[network]\npaths = [{ address = "127.0.0.1" }]\n[inject]\nloss = 0.05\nseed = 3\n'
    )
    sessions = connected(config=file)
    for scale in (1024.0, 512.0, 1024.0, 256.0, 2.0):
        tensors = [torch.full((500_000,), scale) for _ in range(2)]
        works = [
            s.all_reduce(t, policy=bounded(0.1), name="gradient", scale=scale)
            for s, t in zip(sessions, tensors, strict=True)
        ]
        for work in works:
            work.wait()
        assert set((tensors[0] / scale).tolist()) <= {1.0, 2.0, 3.0, 4.0, 5.0, 6.0}
    assert sum(session.ledger.reapplied for session in sessions) > 0
    each_rank(lambda rank: sessions[rank].close())


def test_ranks_that_differ_in_layers_are_told_so(pair: list[Session]) -> None:
    layers = [[(0, "front")], [(0, "back")]]
    works = [
        s.all_reduce(torch.ones(8), name="gradient", exempt=[(0, 4)], layers=layers[rank])
        for rank, s in enumerate(pair)
    ]
    said = []
    for work in works:
        with pytest.raises(RanksDisagree) as caught:
            work.wait()
        parts = r"name (\w+), exempt ranges (\w+), layers (\w+)"
        said.append(re.findall(parts, str(caught.value)))
    for mine, theirs in said:
        assert mine[:2] == theirs[:2]
        assert mine[2] != theirs[2]


def test_ranks_that_disagree_are_told(pair: list[Session]) -> None:
    works = [s.all_reduce(torch.ones(8 + rank)) for rank, s in enumerate(pair)]
    for work in works:
        with pytest.raises(RanksDisagree, match="operation 2"):
            work.wait()


def test_two_sessions_of_one_process_do_not_mix(pair: list[Session]) -> None:
    others = connected()
    assert float(reduce_all(others, "max")[0][0]) == 2.0
    assert float(reduce_all(pair, "min")[0][0]) == 1.0
    each_rank(lambda rank: others[rank].close())


def test_a_killed_daemon_is_named_on_both_sides(pair: list[Session]) -> None:
    reduce_all(pair)
    works = [s.all_reduce(torch.ones(1 << 22)) for s in pair[:1]]
    kill(pair[1].daemon_pid)
    with pytest.raises(PeerLost, match="rank 1"):
        works[0].wait()
    with pytest.raises(DaemonLost, match="killed by SIGKILL"):
        pair[1].all_reduce(torch.ones(4)).wait()


def test_a_killed_engine_is_named(pair: list[Session]) -> None:
    reduce_all(pair)
    kill(engine_of(pair[1]).pid)
    with pytest.raises(DlcpError, match="dlcpd"):
        pair[1].all_reduce(torch.ones(4)).wait()
    with pytest.raises(PeerLost, match="rank 1"):
        pair[0].all_reduce(torch.ones(4)).wait()


def test_a_stopped_engine_does_not_hang_its_client(
    pair: list[Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlcp_client.operations.submission.MARGIN", 0.05)
    engine = engine_of(pair[0])
    engine.suspend()
    work = pair[0].all_reduce(torch.ones(4), policy=exact(deadline=0.05))
    with pytest.raises(DeadlineExceeded, match="its engine is stopped"):
        work.wait()
    engine.resume()


def test_a_rank_that_leaves_is_named(pair: list[Session]) -> None:
    reduce_all(pair)
    pair[1].close()
    with pytest.raises(PeerLost, match="rank 1"):
        pair[0].all_reduce(torch.ones(4)).wait()


def test_a_rank_that_cannot_start_is_named_everywhere(tmp_path: Path) -> None:
    store = HashStore()
    paths = [None, str(tmp_path / "no.sock")]
    errors = each_rank(lambda rank: connect(store, rank, 2, socket=paths[rank], timeout=TIMEOUT))
    assert all(isinstance(error, DaemonUnavailable) for error in errors)
    assert "rank 1 failed to join: no daemon answers at" in str(errors[0])


def test_a_rank_that_is_missing_is_named_before_a_daemon_starts() -> None:
    before = set(psutil.Process().children())  # of other tests
    with pytest.raises(PeerLost, match="s, and rank 1 of 2 ranks did not"):
        connect(HashStore(), 0, 2, timeout=0.5)
    assert set(psutil.Process().children()) <= before


def test_a_rank_that_goes_missing_is_named(tmp_path: Path) -> None:
    """At a control that greets at once: how long a daemon takes to start does not matter."""
    store = HashStore()
    store.set(
        "dlcp/job/1/1", json.dumps({"machine": "", "socket_path": ""})
    )  # the last that it said
    path = str(tmp_path / "dlcpd.sock")
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(path)
        listener.listen()
        left = threading.Event()
        porter = threading.Thread(target=_greet_one, args=(listener, left))
        porter.start()
        with pytest.raises(PeerLost, match="s, and rank 1 of 2 ranks did not"):
            connect(store, 0, 2, socket=path, timeout=2.0)
        porter.join()
    assert left.is_set()  # the client did not keep its place at the control


def _greet_one(listener: socket.socket, left: threading.Event) -> None:
    client, _ = listener.accept()
    with client:
        client.recv(1 << 16)
        client.send(encode(Welcome(1, "a", "tcp://192.0.2.1:5000", "k" * 40)))
        if not client.recv(1 << 16):
            left.set()


def test_parts_of_a_place_are_refused() -> None:
    with pytest.raises(BadConfig, match="give all of store"):
        connect(HashStore(), 0)


def test_ctrl_c_reaches_the_trainer_and_nothing_is_left_behind(tmp_path: Path) -> None:
    """A trainer in a terminal: the daemon lives until the trainer closes, and then ends."""
    script = tmp_path / "trainer.py"
    script.write_text(TRAINER)
    process = subprocess.Popen(
        [sys.executable, str(script)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdout is not None
    daemons = [int(pid) for pid in process.stdout.readline().split()]
    os.killpg(process.pid, signal.SIGINT)
    rest = process.communicate(timeout=60)[0]
    assert "interrupted, then 2.0" in rest
    assert process.returncode == 0
    for pid in daemons:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


TRAINER = """
import signal, sys, threading, torch, torch.distributed as dist
from dlcp_client import connect
signal.signal(signal.SIGINT, signal.default_int_handler)  # a background shell ignores it
store, sessions = dist.HashStore(), [None, None]
def join(rank):
    sessions[rank] = connect(store, rank, 2, timeout=60.0)
threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
work = sessions[0].all_reduce(torch.ones(4))
try:
    print(*(session.daemon_pid for session in sessions), flush=True)
    work.wait()
except KeyboardInterrupt:
    other = sessions[1].all_reduce(torch.ones(4))
    work.wait()
    other.wait()
    print("interrupted, then", float(work.tensor[0]))
"""
