"""A server that is killed under load, for real: another takes over, and every push counts once."""

import os
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dlcp_client import bounded, exact, ps
from dlcp_client.numpy.file_store import FileStore
from dlcp_client.ps.calls import WorkerCalls
from dlcp_client.ps.directory import Directory
from dlcp_client.ps.host_daemon import HostDaemon
from dlcp_client.ps.join_request import JoinRequest, PushAgreement, policy_values
from dlcp_client.server.config import parse
from dlcp_client.server.core import ShardCore
from dlcp_client.server.hosting import HostedShard
from dlcp_client.server.journal import Journal
from dlcp_client.server.journal_entry import JournalEntry, NotDurable
from dlcp_client.server.serving import answer
from dlcpd.contract.errors import BadSnapshot, ServerLost
from tests.server.kit import Process, each, served, text_of

WORKERS, PUSHES = 2, 40
RATE = ps.sgd(1.0)
TENSORS = [ps.NamedTensor("w", (WORKERS * PUSHES,)), ps.NamedTensor("v", (300,))]


def zeros() -> list[Any]:
    return [np.zeros(one.shape, np.float32) for one in TENSORS]


def one_hot(rank: int, number: int) -> list[Any]:
    gradient = zeros()
    gradient[0][rank * PUSHES + number] = 1.0
    gradient[1][:] = 1.0
    return gradient


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.timeout(240)  # seconds; two servers start, on cores that others use as well
def test_a_server_killed_under_load_loses_nothing(
    tmp_path: Path, host_daemon: HostDaemon, seed: int
) -> None:
    server = Process(tmp_path, shards=2, socket=host_daemon.socket, snapshot_every=7).ready()
    standby = Process(tmp_path, "--standby", shards=2, socket=host_daemon.socket, snapshot_every=7)
    reached = threading.Event()

    def work(rank: int) -> list[Any]:
        client = ps.connect(
            TENSORS,
            RATE,
            store=tmp_path / "store",
            server="demo",
            rank=rank,
            world_size=WORKERS,
            job="test",
            socket=host_daemon.socket,
            timeout=120.0,
            takeover=120.0,
            staleness=None if seed else 3,
        )
        client.initialise(zeros())
        client.pull(zeros(), wait=120.0)
        into = zeros()
        for number in range(PUSHES):
            client.push_pull(one_hot(rank, number), into, RATE.groups)
            if number == 5 + 10 * seed:
                reached.set()
        client.close()
        return into

    def kill() -> None:
        reached.wait(200)
        server.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    try:
        each(WORKERS, work)
    finally:
        reached.set()
        killer.join()
        assert standby.stop() == 0
    versions = re.findall(r"is ready, at version (\d+)", standby.log.read_text())
    assert len(versions) == 2 and min(map(int, versions)) > 0, "it was killed too early or late"
    found = {len(w): w for w in (parameters(tmp_path, shard) for shard in range(2))}
    share = 1.0 if seed == 0 else 1 / WORKERS  # of a push in its version
    assert (found[WORKERS * PUSHES] == -share).all()
    assert (found[300] == -PUSHES * WORKERS * share).all()


def parameters(folder: Path, shard: int) -> Any:
    """What a shard has on disk."""
    journal = Journal(folder / "snapshots" / str(shard))
    core = ShardCore(journal)
    core.recover(journal.recover(), 0.0)
    journal.close()
    return core.read()


def test_a_server_whom_nobody_follows_is_named(tmp_path: Path, host_daemon: HostDaemon) -> None:
    with served(tmp_path, host_daemon) as found:
        client = ps.connect(TENSORS, RATE, rank=0, world_size=1, takeover=0.5, **found)
        client.initialise(zeros())
    with pytest.raises(ServerLost, match="shard 0 of server 'demo'"):
        client.push(one_hot(0, 0), RATE.groups)
    client.close()


@pytest.mark.check(115, "a server that lacks a confirmed push: its worker hears both numbers")
def test_a_confirmed_push_that_the_log_has_lost_is_named_by_its_worker(
    tmp_path: Path, host_daemon: HostDaemon
) -> None:
    with served(tmp_path, host_daemon) as found:
        client = ps.connect(TENSORS, RATE, rank=0, world_size=1, **found)
        client.initialise(zeros())
        for number in range(3):
            client.push(one_hot(0, number), RATE.groups)
    [log] = [file for file in (tmp_path / "snapshots").rglob("log-*") if file.stat().st_size]
    record = bytearray(log.read_bytes())
    record[-1] ^= 1
    log.write_bytes(record)
    with served(tmp_path, host_daemon):
        with pytest.raises(BadSnapshot, match="its last push is number 2, and 3 were confirmed"):
            client.push(one_hot(0, 3), RATE.groups)
        client.close()


def test_a_worker_that_dies_is_not_waited_for_and_another_may_come(
    tmp_path: Path, host_daemon: HostDaemon
) -> None:
    with served(tmp_path, host_daemon) as found:
        stays, dies = each(
            2, lambda rank: ps.connect(TENSORS, RATE, rank=rank, world_size=2, **found)
        )
        stays.initialise(zeros())
        for link in dies._links:  # noqa: SLF001  # as if its process ended
            link._session.close()  # type: ignore[union-attr]  # noqa: SLF001
        into = zeros()
        stays.push_pull(one_hot(0, 0), into, RATE.groups)
        assert into[0][0] == -1.0  # the average is over those who contributed
        comes = ps.connect(TENSORS, RATE, rank=2, world_size=2, **found)
        comes.pull(into)
        assert into[0][0] == -1.0

        def pushes(rank: int) -> Any:
            place = zeros()
            (stays, comes)[rank].push_pull(one_hot(rank, 1), place, RATE.groups)
            return place[1][0]

        assert each(2, pushes) == [-2.0, -2.0]
        stays.close()
        comes.close()
        dies.close()


@pytest.fixture
def lossy(tmp_path: Path) -> Iterator[list[HostDaemon]]:
    """Daemons of a server and of a worker that do not get 5 % of what is sent to them."""
    file = tmp_path / "dlcpd.toml"
    file.write_text(
        '[daemon]\ncontrol_address = "127.0.0.1"\nlog_level = "error"\n'
        '[network]\npaths = [{ address = "127.0.0.1" }]\npeer_timeout = 10.0\n'
        "[inject]\nloss = 0.05\nseed = 3\n"
    )
    homes = [HostDaemon(config=file) for _ in range(2)]
    yield homes
    for one in homes:
        one.close()


SIZE, STEPS = 1 << 20, 8


def push_bounded(found: dict[str, Any], missing: list[int]) -> None:
    """Push ones, all but the last time with loss; `missing`: parameters that lack something."""
    tensors = [ps.NamedTensor("w", (SIZE,))]
    worker = ps.connect(tensors, RATE, rank=0, world_size=1, policy=bounded(0.2), **found)
    worker.initialise([np.zeros(SIZE, np.float32)])
    into = [np.zeros(SIZE, np.float32)]
    for step in range(STEPS):
        worker.lossy = step < STEPS - 1  # the last brings home what is missing
        worker.push_pull([np.ones(SIZE, np.float32)], into, RATE.groups)
        missing.append(int((into[0] != -(step + 1)).sum()))
    worker.close()


def test_what_a_bounded_push_waived_comes_back(tmp_path: Path, lossy: list[HostDaemon]) -> None:
    missing: list[int] = []
    with served(tmp_path, lossy[0]) as found:
        push_bounded({**found, "socket": lossy[1].socket}, missing)
    assert max(missing) > 0, "nothing was waived"
    assert missing[-1] == 0


def test_what_a_push_waived_counts_once_if_its_server_ends_before_it_is_acknowledged(
    tmp_path: Path, lossy: list[HostDaemon], monkeypatch: pytest.MonkeyPatch
) -> None:
    missing: list[int] = []
    append, failed = Journal.append, threading.Event()

    def full(journal: Journal, entry: JournalEntry) -> None:
        if entry.version == 4 and not failed.is_set():
            failed.set()
            raise NotDurable("the disk is full")
        append(journal, entry)

    monkeypatch.setattr(Journal, "append", full)
    with pytest.raises(NotDurable, match="full"), served(tmp_path, lossy[0]) as found:  # noqa: PT012
        found["socket"] = lossy[1].socket
        thread = threading.Thread(target=push_bounded, args=(found, missing))
        thread.start()
        assert failed.wait(60)
    with served(tmp_path, lossy[0]):
        thread.join(100)
    assert len(missing) == STEPS and missing[3] > 0
    assert missing[-1] == 0


def test_a_client_uses_time_well_when_its_server_comes_late(
    tmp_path: Path, host_daemon: HostDaemon
) -> None:
    def comes_late() -> None:
        time.sleep(0.3)
        with served(tmp_path, host_daemon):
            over.wait(60)

    over = threading.Event()
    thread = threading.Thread(target=comes_late)
    thread.start()
    client = ps.connect(
        TENSORS,
        RATE,
        server="demo",
        store=tmp_path / "store",
        rank=0,
        world_size=1,
        job="test",
        socket=host_daemon.socket,
    )
    client.close()
    over.set()
    thread.join()


def test_what_a_pull_lost_is_old_and_comes_later_where_that_is_asked_for(
    tmp_path: Path, lossy: list[HostDaemon]
) -> None:
    tensors, stale = [ps.NamedTensor("w", (SIZE,))], []
    with served(tmp_path, lossy[0]) as found:
        found["socket"] = lossy[1].socket
        worker = ps.connect(tensors, RATE, rank=0, world_size=1, pulls=bounded(0.2), **found)
        into = [np.zeros(SIZE, np.float32)]
        worker.initialise(into)
        for step in range(1, STEPS):
            worker.push_pull([np.ones(SIZE, np.float32)], into, RATE.groups)
            values = set(np.unique(into[0]).tolist())
            assert values <= {float(-old) for old in range(step + 1)}, "neither new nor old"
            stale.append(int((into[0] != -step).sum()))
        assert stale[0] == 0 and max(stale) > 0, "the first is complete, and others are not"
        worker.pull(into)
        assert (into[0] == 1 - STEPS).all()
        for _ in range(3):
            worker.push_pull([np.ones(SIZE, np.float32)], into, RATE.groups)
        assert into[0].min() >= -STEPS - 2, "what the complete pull brought came again"
        worker.close()


def test_parameters_that_were_not_yet_durable_are_brought_again(
    tmp_path: Path, host_daemon: HostDaemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    snapshot, failed = Journal.snapshot, threading.Event()

    def full(journal: Journal, entry: JournalEntry) -> None:
        if not failed.is_set():
            failed.set()
            raise NotDurable("the disk is full")
        snapshot(journal, entry)

    def work() -> None:
        client = ps.connect(TENSORS, RATE, rank=0, world_size=1, **found)
        client.initialise([np.full(one.shape, 3.0, np.float32) for one in TENSORS])
        client.pull(into)
        client.close()

    into = zeros()
    monkeypatch.setattr(Journal, "snapshot", full)
    with pytest.raises(NotDurable, match="full"), served(tmp_path, host_daemon) as found:  # noqa: PT012
        thread = threading.Thread(target=work)
        thread.start()
        assert failed.wait(60)
    with served(tmp_path, host_daemon):
        thread.join(100)
    assert all((one == 3.0).all() for one in into)


def test_what_a_codec_rounds_away_comes_back(tmp_path: Path, host_daemon: HostDaemon) -> None:
    size, value = 4096, 1.0 + 2.0**-12  # bfloat16 has 1
    with served(tmp_path, host_daemon) as found:
        worker = ps.connect(
            [ps.NamedTensor("w", (size,))],
            RATE,
            rank=0,
            world_size=1,
            policy=exact(codec="bf16"),
            **found,
        )
        into = [np.zeros(size, np.float32)]
        worker.initialise(into)
        for step in range(1, 5):
            worker.lossy = step < 4  # the last brings home what is missing
            worker.push_pull([np.full(size, value, np.float32)], into, RATE.groups)
            assert (into[0] == -step * (value if step == 4 else 1.0)).all()
        worker.close()


def test_a_shard_that_has_ended_leaves_calls_to_the_process_that_takes_over(
    tmp_path: Path, host_daemon: HostDaemon
) -> None:
    """An answer of it would end the worker, which has time to wait."""
    config = parse(text_of(tmp_path), "test")
    directory = Directory(FileStore(config.store), config.name)
    hosted = HostedShard(0, Journal(tmp_path / "snapshots", os.fsync), config)
    hosted.announce(directory, 1)
    agreement = PushAgreement("test", "m", "sgd", 4, 1, 1, -1, refuse=False)
    join_request = JoinRequest(agreement, 0, 1, policy_values(exact()), policy_values(exact()))
    with pytest.raises(ServerLost, match="shard 0 of server 'demo' did not answer within"):
        directory.call(0, 1, join_request.values(), 0.0)
    [call] = WorkerCalls(directory.signed_store, 0, directory.newest(0).incarnation).new()  # type: ignore[union-attr]
    hosted.shard.end(ServerLost("the disk is full"))
    answer(call, hosted.shard, host_daemon)
    assert call.answered() is None
    hosted.close()
