"""Two whole daemons, real engines, on 127.0.0.1 and 127.0.0.2: what a client gets from them."""

import mmap
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from numpy.typing import NDArray

from dlcpd.contract.frames import decode_untrusted, encode
from dlcpd.contract.messages import (
    Completed,
    Failed,
    Join,
    Joined,
    Leave,
    Message,
    Released,
    Submit,
)
from tests.daemon.kit import PATIENCE, Client, Daemon, configuration, joins, until

ARENA = 1 << 22
COUNT = 300_000  # elements: more than one chunk
SUBMIT = Submit(
    operation=1,
    group=0,
    collective="all_reduce",
    schedule="",
    peer=-1,
    tag=0,
    input=0,
    input_count=COUNT,
    output=0,
    output_count=COUNT,
    sizes=[],
    dtype="float32",
    reduce="sum",
    max_loss=0.0,
    fill="residual",
    traffic_class=4,
    deadline=PATIENCE,
    in_place=True,
    name="bucket",
    exempt=[],
    layers=[],
)


def start(folder: Path, number: int, *, more: str = "", daemon: str = "") -> Daemon:
    config = configuration(folder, f"host-{number}", f"127.0.0.{number}", more=more, daemon=daemon)
    return Daemon(config, mode="")


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Daemon]]:
    folder = tmp_path_factory.mktemp("hosts")
    with start(folder, 1) as one, start(folder, 2) as two:
        yield [one, two]


class Rank:
    """A client that has joined, with its arena as an array."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self._map = mmap.mmap(client.arena, ARENA)
        self._map[:: mmap.PAGESIZE] = bytes(ARENA // mmap.PAGESIZE)  # all of it is committed
        self.values: NDArray[np.float32] = np.frombuffer(self._map, np.float32)

    def submit(self, ask: Submit) -> None:
        assert self.client.lane
        self.client.lane.send(encode(ask))

    def answer(self) -> Message:
        assert self.client.lane
        return decode_untrusted(self.client.lane.recv(1 << 20))

    def result(self) -> Message:
        """The next answer that is no Released."""
        while isinstance(message := self.answer(), Released):
            pass
        return message


def ranks_of(daemons: list[Daemon], job: str) -> list[Rank]:
    clients = [daemon.client() for daemon in daemons]
    requests = joins(job, [client.greet() for client in clients])
    for client, request in zip(clients, requests, strict=True):
        client.send(with_arena(request))
    for client in clients:
        client.expect(Joined)
    return [Rank(client) for client in clients]


def with_arena(request: Join) -> Join:
    return replace(request, arena_bytes=ARENA)


def all_reduce(ranks: list[Rank]) -> None:
    """One exact operation, checked on every rank."""
    rng = np.random.default_rng(7)
    parts = rng.normal(size=(len(ranks), COUNT)).astype(np.float32)
    for rank, part in zip(ranks, parts, strict=True):
        rank.values[:COUNT] = part
    for rank in ranks:
        rank.submit(SUBMIT)
    expected = np.add.reduce(parts, axis=0, dtype=np.float32)
    for rank in ranks:
        assert isinstance(rank.result(), Completed)
        assert np.array_equal(rank.values[:COUNT], expected)


def close(ranks: list[Rank]) -> None:
    for rank in ranks:
        rank.client.close()


def test_an_all_reduce_is_exact_on_every_rank(hosts: list[Daemon]) -> None:
    ranks = ranks_of(hosts, "exact")
    all_reduce(ranks)
    report = ranks[0].client.status(ledger=10)
    [session] = [s for s in report["sessions"] if s["job"] == "exact"]
    assert report["engine"]["sessions"][str(session["session"])]["submitted"] == 1
    close(ranks)


def test_ranks_of_one_daemon_reduce(hosts: list[Daemon]) -> None:
    ranks = ranks_of([hosts[0], hosts[0]], "same host")
    all_reduce(ranks)
    close(ranks)


def test_local_and_remote_ranks_reduce_together(hosts: list[Daemon]) -> None:
    ranks = ranks_of([hosts[0], hosts[0], hosts[1]], "mixed")
    all_reduce(ranks)
    close(ranks)


def test_injected_loss_from_the_configuration_is_retransmitted(tmp_path: Path) -> None:
    lossy = "[inject]\nloss = 0.05\nseed = 3\n"
    with start(tmp_path, 3, more=lossy) as one, start(tmp_path, 4, more=lossy) as two:
        ranks = ranks_of([one, two], "lossy")
        all_reduce(ranks)
        close(ranks)


def test_a_client_that_ends_in_an_operation_is_named(hosts: list[Daemon]) -> None:
    ranks = ranks_of(hosts, "leaver")
    ranks[1].submit(SUBMIT)
    ranks[0].client.close()
    failed = ranks[1].result()
    assert isinstance(failed, Failed) and failed.code == "peer_lost"
    assert "rank 0" in failed.text and "host-1" in failed.text
    close(ranks[1:])
    told = warnings(hosts[1], "session_broken", "leaver")
    assert told["code"] == "peer_lost"


def test_a_job_that_dies_is_a_warning_on_its_host_and_its_failures_outlive_it(
    hosts: list[Daemon],
) -> None:
    ranks = ranks_of(hosts, "killed")
    ranks[0].submit(SUBMIT)
    with hosts[0].client() as client:
        client.greet()
        until(lambda: open_operations(client) == 1, "the engine has the operation")
        before = client.status()["engine"]["totals"]["failed"].get("session_closed", 0)
        ranks[0].client.close()
        assert warnings(hosts[0], "left_open", "killed")["operations"] == 1
        close(ranks[1:])
        until(lambda: not client.status()["engine"]["sessions"], "the session is gone")
        assert client.status()["engine"]["totals"]["failed"]["session_closed"] == before + 1
        assert client.counters()["left_open"] >= 1


def test_a_rank_that_dies_between_two_operations_is_a_warning_on_its_host(
    hosts: list[Daemon],
) -> None:
    """Elsewhere it looks as if its job had ended, until the next operation."""
    ranks = ranks_of(hosts, "between")
    all_reduce(ranks)
    with hosts[0].client() as client:
        client.greet()
        before = client.counters().get("left_open", 0)
        ranks[0].client.close()
        told = warnings(hosts[0], "left_open", "between")
        assert told["operations"] == 0 and "without leaving" in told["text"]
        assert client.counters()["left_open"] == before + 1
    close(ranks[1:])
    assert not [
        event
        for event in hosts[1].events
        if event["event"] == "left_open" and "'between'" in str(event["session"])
    ], "its peer had left"


def test_an_operation_that_is_submitted_too_late_counts_as_failed(hosts: list[Daemon]) -> None:
    ranks = ranks_of(hosts, "late")
    all_reduce(ranks)
    with hosts[1].client() as client:
        client.greet()
        before = client.status()["engine"]["totals"]["failed"].get("peer_lost", 0)
        ranks[0].client.close()
        until(lambda: client.counters().get("broken_peer_lost", 0), "the other rank has left")
        ranks[1].submit(replace(SUBMIT, operation=2))
        until(
            lambda: client.status()["engine"]["totals"]["failed"].get("peer_lost", 0) > before,
            "it counts",
        )
    close(ranks[1:])


def test_a_job_that_ends_as_usual_is_no_warning(hosts: list[Daemon]) -> None:
    ranks = ranks_of(hosts, "usual")
    all_reduce(ranks)
    for rank in ranks:
        assert rank.client.lane
        rank.client.lane.send(encode(Leave(0.0)))
    close(ranks)
    for daemon in hosts:
        daemon.wait_for("client_left")
        told = [each for each in daemon.events if "'usual'" in str(each.get("session"))]
        assert told and {each["level"] for each in told} <= {"debug", "info"}


def open_operations(client: Client) -> int:
    """Operations in flight at an engine."""
    sessions = client.status()["engine"]["sessions"].values()
    return sum(session["open"] for session in sessions)


def warnings(daemon: Daemon, event: str, job: str) -> dict[str, Any]:
    """The event of a job, which is a warning."""

    def found() -> list[dict[str, Any]]:
        named = [each for each in daemon.events if each["event"] == event]
        return [each for each in named if f"job '{job}'" in str(each["session"])]

    until(found, f"{event} of {job}")
    [one] = found()
    assert one["level"] == "warning"
    return one


def test_an_operation_that_misses_its_deadline_is_aborted_elsewhere(hosts: list[Daemon]) -> None:
    ranks = ranks_of(hosts, "late")
    ranks[0].submit(replace(SUBMIT, deadline=0.2))  # rank 1 has not submitted: nobody can finish
    failed = ranks[0].result()
    assert isinstance(failed, Failed) and failed.code == "deadline_exceeded"
    close(ranks)


@pytest.mark.parametrize("victim", ["daemon", "engine"])
def test_a_host_that_dies_is_named(tmp_path: Path, victim: str) -> None:
    with start(tmp_path, 5) as one, start(tmp_path, 6) as two:
        ranks = ranks_of([one, two], "dies")
        ranks[1].submit(SUBMIT)
        os.kill(one.process.pid if victim == "daemon" else one.engine_pid, signal.SIGKILL)
        failed = ranks[1].result()
        assert isinstance(failed, Failed) and failed.code == "peer_lost"
        assert "rank 0" in failed.text and "host-5" in failed.text
        close(ranks)


def test_a_drain_ends_though_an_operation_cannot(tmp_path: Path) -> None:
    with start(tmp_path, 7, daemon="drain_timeout = 0.2") as one, start(tmp_path, 8) as two:
        ranks = ranks_of([one, two], "drained")
        ranks[0].submit(SUBMIT)
        one.signal(signal.SIGTERM)
        assert "was stopped" in ranks[0].client.refused("daemon_lost")
        assert one.wait() == 0
        gone = ranks[1].result()
        assert isinstance(gone, Failed) and "host-7 was stopped" in gone.text
        close(ranks)


def test_a_drain_lets_an_operation_finish(tmp_path: Path) -> None:
    with start(tmp_path, 9) as one, start(tmp_path, 10) as two:
        ranks = ranks_of([one, two], "finished")
        ranks[0].values[:COUNT], ranks[1].values[:COUNT] = 1.0, 2.0
        ranks[0].submit(SUBMIT)
        until(lambda: is_open(ranks[0]), "the engine has the operation")
        one.signal(signal.SIGTERM)
        one.wait_for("signal")
        ranks[1].submit(SUBMIT)
        assert isinstance(ranks[0].result(), Completed)
        assert (ranks[0].values[:COUNT] == 3.0).all()
        assert one.wait() == 0
        assert isinstance(ranks[1].result(), Completed)
        close(ranks)


def is_open(rank: Rank) -> bool:
    [session] = rank.client.status()["engine"]["sessions"].values()
    return bool(session["open"] == 1)


def test_an_address_the_host_does_not_have_is_the_engines_own_error(tmp_path: Path) -> None:
    config = configuration(tmp_path, more='[network]\npaths = [{ address = "192.0.2.1" }]')
    daemon = Daemon(config, mode="")
    assert daemon.wait() == 1
    assert daemon.text.startswith("dlcpd: ") and "192.0.2.1" in daemon.text
    assert daemon.text.count("\n") == 1
    assert daemon.process.stderr
    daemon.process.stderr.close()
