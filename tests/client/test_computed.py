"""Operations in which clients compute, over real daemons: two, one that is shared, and two engines
each that lose datagrams."""

import re
import signal
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import FileStore

from dlcp_client import Session, bounded, connect, exact
from dlcp_client.operations.computations import Compute
from dlcpd.contract.errors import (
    BadPolicy,
    BadTensor,
    ComputationFailed,
    DeadlineExceeded,
    OperationAborted,
    PeerLost,
)
from dlcpd.ledger.reader import find, runs
from dlcpd.ledger.replay import ReplayVerdict, replay
from tests.client.real import TIMEOUT, connected, each_rank
from tests.forking import CONTEXT
from tests.ledger.jobs import WORLD, config, run

COUNT, STEPS = 700_000, 3  # elements: enough for two engines to share


def contribution(rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randint(-1000, 1000, (COUNT,), generator=generator).float()


def descent(weights: torch.Tensor, sums: torch.Tensor) -> Compute:
    """weights -= sums / 2: exact for small whole numbers."""

    def compute(start: int, stop: int) -> None:
        part = slice(start // 4, stop // 4)
        weights[part] -= sums[part] / 2

    return compute


def train(session: Session, **options: Any) -> torch.Tensor:
    """Some steps with two operations in flight each; the weights."""
    weights = [session.zeros(COUNT) for _ in range(2)]
    sums = [session.empty(COUNT) for _ in range(2)]
    for step in range(STEPS):
        for at, tensor in enumerate(sums):
            tensor.copy_(contribution(session.rank, 2 * step + at))
        works = [
            session.world.all_reduce_computed(given, into, name=f"layer {at}", **options)
            for at, (given, into) in enumerate(zip(sums, weights, strict=True))
        ]
        session.compute(
            {work: descent(*pair) for work, *pair in zip(works, weights, sums, strict=True)}
        )
        for work in works:
            work.wait()
    return torch.cat(weights)


def expected(world: int) -> torch.Tensor:
    parts = [
        [contribution(rank, 2 * step + at) for rank in range(world) for step in range(STEPS)]
        for at in range(2)
    ]
    return torch.cat([-torch.stack(part).sum(0) / 2 for part in parts])


@pytest.mark.parametrize("shared", ["0", "1"])
def test_two_ranks_get_the_same(shared: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLCPD_SHARE", shared)
    sessions = connected()
    try:
        daemons = [session.daemon_pid for session in sessions]
        assert (None in daemons) == (shared == "1"), "the daemon belongs to one of the ranks"
        for weights in each_rank(lambda rank: train(sessions[rank])):
            assert torch.equal(weights, expected(2))
        for call, kind, text in _mistakes(sessions[0]):
            with pytest.raises(kind, match=text):
                call()
        _one_never_answers(sessions)
        _one_raises(sessions)
    finally:
        each_rank(lambda rank: sessions[rank].close())


def _mistakes(session: Session) -> list[tuple[Any, type[Exception], str]]:
    """Calls that are refused, and lose nothing."""
    inside, outside = session.zeros(100), torch.zeros(100)
    begin = session.world.all_reduce_computed
    return [
        (lambda: begin(inside, outside), BadTensor, r"give two tensors of Session\.empty"),
        (lambda: begin(outside, inside), BadTensor, r"give two tensors of Session\.empty"),
        (lambda: begin(inside, inside[16:]), BadTensor, r"give two tensors of Session\.empty"),
        (lambda: begin(inside[:64], inside[32:96]), BadTensor, "give two tensors"),
        (
            lambda: begin(inside, session.zeros(100), policy=exact(codec="bf16"), name="n"),
            BadPolicy,
            "without a codec",
        ),
        (
            lambda: session.all_reduce(outside, policy=exact(gather="bf16")),
            BadPolicy,
            r"encodes weights of fused\.register",
        ),
    ]


def _one_never_answers(sessions: list[Session]) -> None:
    """Rank 1 computes nothing; another operation goes on."""
    memory = [(session.zeros(COUNT), session.zeros(COUNT)) for session in sessions]

    def rank(number: int) -> str:
        session, (sums, weights) = sessions[number], memory[number]
        late = session.world.all_reduce_computed(sums, weights, policy=exact(deadline=1.0))
        session.all_reduce(torch.ones(100)).wait()
        if not number:
            session.compute({late: descent(weights, sums)})
        # the rank whose clock is behind hears of the other's deadline first
        with pytest.raises((DeadlineExceeded, OperationAborted)) as caught:
            late.wait()
        return str(caught.value)

    for text in each_rank(rank):
        mine = "waiting for this rank's trainer to compute bytes"
        assert "waiting for data of rank(s) 1 for operation" in text or mine in text
    for weights in each_rank(lambda rank: train(sessions[rank])):
        assert torch.equal(weights, expected(2))


def _one_raises(sessions: list[Session]) -> None:
    """The computation of rank 1 raises: every rank knows, long before the deadline."""

    def rank(number: int) -> str:
        session = sessions[number]
        sums, weights = session.zeros(COUNT), session.zeros(COUNT)
        work = session.world.all_reduce_computed(sums, weights, policy=exact(deadline=TIMEOUT))
        compute = descent(weights, sums)

        def fail(start: int, stop: int) -> None:
            compute(start, stop)
            raise ZeroDivisionError("by 0")

        if number:
            with pytest.raises(ZeroDivisionError):
                session.compute({work: fail})
        else:
            session.compute({work: compute})
        with pytest.raises((OperationAborted, ComputationFailed)) as caught:
            work.wait()
        return f"{caught.value.code}: {caught.value}"

    reason = r"the trainer of rank 1 could not compute bytes .*: ZeroDivisionError: by 0"
    far, near = each_rank(rank)
    assert re.search(f"operation_aborted: rank 1 of job .*{reason}", far), far
    assert re.search(f"computation_failed: .*{reason}", near), near
    for weights in each_rank(lambda rank: train(sessions[rank])):
        assert torch.equal(weights, expected(2))


@pytest.mark.parametrize("gather", ["", "bf16"])
def test_bounded_operations_of_divided_engines_are_the_same_on_all_ranks(
    tmp_path: Path, gather: str
) -> None:
    """And their ledgers say what was sent and lost, if not what the trainers computed."""
    ranks = run(
        [config(tmp_path, rank) for rank in range(WORLD)],
        lambda session: (train(session, policy=bounded(0.2, gather=gather)), session.ledger.waived),
    )
    assert all(torch.equal(weights, ranks[0][0]) for weights, _ in ranks)
    assert sum(waived for _, waived in ranks) > 0
    for one in runs(find([tmp_path])):
        found = replay(one)
        assert not found.different
        assert set(found.verdicts.values()) == {ReplayVerdict.COMPUTED}
        assert len(found.verdicts) == 2 * STEPS


def _mute(file: str, marker: str) -> None:
    """Rank 1: it never finishes what it begins to compute."""
    session = connect(FileStore(file, 3), 1, 3, timeout=TIMEOUT, arena_bytes=64 << 20)
    sums, weights = session.zeros(COUNT), session.zeros(COUNT)
    work = session.world.all_reduce_computed(sums, weights)

    def compute(_start: int, _stop: int) -> None:
        Path(marker).touch()
        time.sleep(TIMEOUT)

    session.compute({work: compute})


def test_a_rank_killed_while_it_computes_is_named_by_all_others(tmp_path: Path) -> None:
    file, marker = str(tmp_path / "store"), tmp_path / "computes"
    other = CONTEXT.Process(target=_mute, args=(file, str(marker)))
    other.start()
    assert other.pid is not None

    def survivor(number: int) -> None:
        rank, arena = 2 * number, 64 << 20
        with connect(FileStore(file, 3), rank, 3, timeout=TIMEOUT, arena_bytes=arena) as session:
            sums, weights = session.zeros(COUNT), session.zeros(COUNT)
            work = session.world.all_reduce_computed(
                sums, weights, policy=exact(deadline=2 * TIMEOUT)
            )
            until = time.monotonic() + TIMEOUT
            while not marker.exists() and time.monotonic() < until:
                time.sleep(0.01)
            if not rank:
                other.kill()
            session.compute({work: descent(weights, sums)})
            with pytest.raises(PeerLost, match="rank 1") as caught:
                work.wait()
            assert caught.value.rank == 1

    assert each_rank(survivor) == [None, None]
    other.join()
    assert other.exitcode == -signal.SIGKILL
