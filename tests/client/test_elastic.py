"""Jobs that change their ranks: real processes, real daemons, a store that all reach."""

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import HashStore, TCPStore

from dlcp_client import DaemonLost, PeerLost, Session, bounded, connect, elastic, exact
from dlcp_client.job.next_members import NextMembersRule
from dlcpd.contract.errors import BadConfig
from tests.c10d.worlds import on_each_rank
from tests.client import elastic_ranks
from tests.client.real import TIMEOUT, WORLD, connected, each_rank, kill, reduce_all
from tests.client.stand_in import StandIn
from tests.daemon.kit import ROOT, Daemon, configuration, environment

EXAMPLE = ROOT / "examples" / "train_elastic.py"
PAGE = ROOT / "docs" / "elastic.md"


@pytest.fixture
def port() -> Iterator[int]:
    """Of a store that outlives every rank, as that of a job's agent does."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    yield store.port
    del store


def test_one_of_three_is_killed_two_go_on_and_a_third_comes(port: int) -> None:
    ranks = on_each_rank(elastic_ranks.shrinks_and_grows, 4, port, dying=frozenset({2}))
    first, second, newcomer = ranks[0], ranks[1], ranks[3]
    for survivor in (first, second):
        assert survivor["lost"].rank == 2
        assert survivor["lost"].host and survivor["lost"].awaiting
        assert survivor["after"] < 20.0, "about one second on a machine that is not busy"
        expected = {(3, 0): 1.0, (2, 1): 0.5, (3, 2): pytest.approx(4 / 3)}
        assert survivor["averages"] == expected, "divided by the ranks there are"
    assert newcomer["averages"] == {(3, 2): pytest.approx(4 / 3)}
    assert [first["ranks"][2], second["ranks"][2], newcomer["ranks"][2]] == [0, 1, 2]
    together = [[step for step, epoch in each["steps"] if epoch == 2] for each in (first, newcomer)]
    assert together[0] == together[1] and len(together[0]) == 3
    assert first["steps"] == second["steps"]


def example(*arguments: str) -> "subprocess.Popen[str]":
    command = [sys.executable, str(EXAMPLE), *arguments]
    environ = environment() | {"DLCPD_SHARE": "1", "MASTER_ADDR": "localhost"}
    return subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, text=True)


def test_the_example_survives_a_rank_that_shared_its_daemon(port: int) -> None:
    store = f"127.0.0.1:{port}"
    more = ("--steps", "200", "--pause", "0.02")
    ranks = [example("start", store, "--rank", str(r), "--ranks", "3", *more) for r in range(3)]
    try:
        first = ranks[0].stdout
        assert first and first.readline().startswith("epoch 0: rank 0 of 3")
        ranks[1].kill()
        told = [rank.communicate(timeout=100)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    for at in (0, 2):
        assert re.search(r"done: 2 ranks, step 200, error \d\.\de-0[4-9]", told[at]), told[at]
    assert "epoch 1: rank 1 of 2" in told[2]


def test_the_page_shows_the_loop_of_the_example() -> None:
    page, example_text = (" ".join(file.read_text().split()) for file in (PAGE, EXAMPLE))
    [loop] = re.findall(r"```python (while .*?) ```", page)
    assert loop in example_text


def regrouped(sessions: list[Session], **options: Any) -> list[Any]:
    """What each rank's regroup returned, or raised."""
    more: dict[str, Any] = {"timeout": TIMEOUT} | options
    return each_rank(lambda rank: elastic.regroup(sessions[rank], **more))


LOSSY = """
[daemon]
control_address = "127.0.0.1"
log_level = "warning"
[network]
paths = [{ address = "127.0.0.1" }]
[inject]
loss = 0.02
seed = 5
"""


def test_what_survivors_waived_comes_back_in_the_next_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "dlcpd.toml"
    file.write_text(LOSSY)
    sessions = connected(config=file)
    total = torch.zeros(WORLD, 1 << 20)
    for _ in range(20):
        for tensor in reduced(sessions):
            total += tensor / WORLD
        if all(session.ledger.waived for session in sessions):
            break
    given = [session.ledger.waived - session.ledger.reapplied for session in sessions]
    later = regrouped(sessions)
    assert [session.epoch for session in later] == [1, 1]
    reduced(later)
    assert [session.ledger.reapplied for session in later] == given and all(given)
    for session in later:
        session.close()


def reduced(sessions: list[Session]) -> list[torch.Tensor]:
    tensors = [torch.ones(1 << 20) for _ in sessions]
    pairs = zip(sessions, tensors, strict=True)
    works = [s.all_reduce(t, policy=bounded(0.05), name="gradient") for s, t in pairs]
    for work in works:
        work.wait()
    return tensors


def until_it_fails(session: Session) -> None:
    """An engine lives a moment longer than its control."""
    while True:
        session.all_reduce(torch.ones(8), policy=exact(deadline=TIMEOUT)).wait()


def test_a_daemon_is_killed_and_started_again_under_its_trainer(tmp_path: Path) -> None:
    files = [configuration(tmp_path, host) for host in ("host-a", "host-b")]
    store = HashStore()
    with Daemon(files[0], mode="") as stays:
        with Daemon(files[1], mode="") as killed:
            sockets = [str(tmp_path / f"{host}.sock") for host in ("host-a", "host-b")]
            sessions: list[Session] = each_rank(
                lambda rank: connect(store, rank, WORLD, socket=sockets[rank], timeout=TIMEOUT)
            )
            reduce_all(sessions)
            kill(killed.process.pid)
            found = each_rank(lambda rank: until_it_fails(sessions[rank]))
            assert isinstance(found[0], PeerLost) and found[0].rank == 1
            assert isinstance(found[1], DaemonLost)
        with Daemon(files[1], mode=""):
            later = regrouped(sessions)
            assert all((tensor == 3).all() for tensor in reduce_all(later))
            for session in later:
                session.close()
        assert stays.process.poll() is None


def test_an_embedded_daemon_that_was_killed_is_replaced() -> None:
    sessions = connected()
    reduce_all(sessions)
    kill(sessions[1].daemon_pid)
    later = regrouped(sessions)
    assert later[0].daemon_pid and later[1].daemon_pid
    assert all((tensor == 3).all() for tensor in reduce_all(later))
    for session in later:
        session.close()


def test_one_of_two_is_no_majority_unless_the_job_says_so() -> None:
    first, second = connected()
    second.close()
    with pytest.raises(
        PeerLost, match=r"rank\(s\) 1 are missing after .* s, and at least 2 of the 2 ranks"
    ):
        elastic.regroup(first, timeout=3.0)
    alone = elastic.regroup(first, timeout=TIMEOUT, quorum=1)
    tensor = torch.full((8,), 7.0)
    alone.all_reduce(tensor, "avg").wait()
    assert (alone.world_size, alone.epoch) == (1, 1) and (tensor == 7).all()
    alone.close()


def test_the_last_error_says_why_the_first_attempt_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rank 1 stopped because of rank 7; to rank 0 it is rank 1 that is missing then."""
    first, second = connected()
    second.close()

    def failing(*_: Any) -> Session:
        raise PeerLost("rank 7 never answered")

    called = []

    def complete(rule: NextMembersRule, *_: Any) -> bool:
        called.append(rule)
        return len(called) == 1

    monkeypatch.setattr(elastic, "_enter", failing)
    monkeypatch.setattr(NextMembersRule, "complete", complete)
    said = r"epoch 2: .*rank\(s\) 1 are missing.*An earlier attempt failed: rank 7 never answered"
    with pytest.raises(PeerLost, match=said):
        elastic.regroup(first, timeout=1.0)
    first.close()


def test_who_comes_after_the_roll_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = connected()
    alone = elastic.regroup(first, timeout=TIMEOUT, quorum=1, grace=0.1)
    with pytest.raises(PeerLost, match="were agreed without rank 1, which was too late"):
        elastic.regroup(second, timeout=TIMEOUT)
    for session in (alone, second):
        session.close()


def test_wishes_that_make_no_sense_are_refused(world: StandIn) -> None:
    with pytest.raises(BadConfig, match="without a store"):
        elastic.regroup(world.sessions[0])
    with pytest.raises(BadConfig, match="without a store"):
        elastic.boundary(world.sessions[0])
    with pytest.raises(PeerLost, match="job 'job' did not call"):
        elastic.join(HashStore(), timeout=0.1)
    with pytest.raises(BadConfig, match="timeout"):
        elastic.join(HashStore(), timeout=-1.0)
