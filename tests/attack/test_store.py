"""Whoever can write the job's store, and processes that end between two writes to it."""

import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch

from dlcp_client import connect, elastic, exact, ps
from dlcp_client.environment import Environment
from dlcp_client.job import transport_vote
from dlcp_client.job.rendezvous import Meeting, Member
from dlcp_client.job.secret import job_secret
from dlcp_client.job.signed_store import StoreLost
from dlcp_client.numpy.file_store import FileStore
from dlcp_client.ps.directory import Directory
from dlcp_client.ps.host_daemon import HostDaemon
from dlcp_client.server.config import parse
from dlcp_client.server.hosting import HostedShards
from dlcpd.contract.errors import DlcpError
from tests.attack.store_mutator import Change, Died, Mortal, Mutator
from tests.checks import Measured
from tests.server.kit import text_of

SECRET: Final = "0123456789abcdef" * 2
PATIENCE: Final = 60.0  # seconds until a run has hung
SHORT: Final = 3.0  # seconds for ranks to meet where something is wrong
AT_ONCE: Final = 6  # runs, which mostly wait
WORLD: Final = 2


@pytest.fixture(scope="module")
def host_daemon() -> Iterator[HostDaemon]:
    made = HostDaemon()
    yield made
    made.close()


@pytest.fixture
def secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLCPD_JOB_SECRET", SECRET)


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is waited for in vain is not waited for long."""
    monkeypatch.setenv("DLCPD_SHARE", "0")
    monkeypatch.setattr("dlcp_client.job.rendezvous.LATE", 0.5)
    monkeypatch.setattr("dlcp_client.joining.sessions.LATE", 0.5)
    monkeypatch.setattr("dlcp_client.job.rendezvous.OWN_LOOK", 0.5)
    monkeypatch.setattr("dlcp_client.job.transport_vote.VOTE_MARGIN", 0.5)
    monkeypatch.setattr("dlcp_client.server.serving.JOIN_TIMEOUT", SHORT)
    monkeypatch.setattr("dlcp_client.elastic.ENTER_TIMEOUT", SHORT)


@dataclass(frozen=True)
class Scene:
    """What ranks do over a store, each on a thread; the results that are right."""

    store: Any
    host_daemon: HostDaemon
    timeout: float
    folder: Path


Play = Callable[[Scene, int], Any]


def groups(scene: Scene, rank: int) -> Any:
    """Two groups of the same ranks."""
    session = connect(
        scene.store,
        rank,
        WORLD,
        socket=scene.host_daemon.socket,
        timeout=scene.timeout,
        arena_bytes=1 << 20,
    )
    try:
        names, tensors = ("weights", "biases"), [torch.full((100,), x + rank * x) for x in (1, 100)]
        made = [session.group([0, 1], name, timeout=scene.timeout) for name in names]
        policy = exact(deadline=scene.timeout)
        works = [g.all_reduce(t, policy=policy) for g, t in zip(made, tensors, strict=True)]
        for work in works:
            work.wait()
        made[0].barrier(policy=policy).wait()
        return [t.tolist() == [want] * 100 for t, want in zip(tensors, (3, 300), strict=True)]
    finally:
        session.close()


def epochs(scene: Scene, rank: int) -> Any:
    """Two ranks, and a third one that comes in."""
    more: dict[str, Any] = {"socket": scene.host_daemon.socket, "arena_bytes": 1 << 20}
    policy = exact(deadline=scene.timeout)
    if rank == WORLD:
        session = elastic.join(scene.store, timeout=scene.timeout, **more)
    else:
        session = connect(scene.store, rank, WORLD, timeout=scene.timeout, **more)
    try:
        if rank < WORLD:
            for _ in range(40):
                session = elastic.boundary(session, timeout=scene.timeout, grace=1.0)
                if session.world_size > WORLD:
                    break
                time.sleep(0.02)
        tensor = torch.ones(100)
        session.all_reduce(tensor, policy=policy).wait()
        session.world.barrier(policy=policy).wait()
        return [tensor.tolist() == [session.world_size] * 100]
    finally:
        session.close()


def votes(scene: Scene, rank: int) -> Any:
    """All went well, and each would fall back."""
    member = Member(scene.store, rank, WORLD, job_secret(Environment.read()))
    deadline = time.monotonic() + scene.timeout
    return [not transport_vote.hold(member, None, fallback=True, deadline=deadline)]


def votes_of_before(scene: Scene, rank: int) -> Any:
    """An earlier launch, in which dlcpd could not be used."""
    member = Member(scene.store, rank, WORLD, job_secret(Environment.read()))
    deadline, why = time.monotonic() + scene.timeout, DlcpError("no daemon")
    return [bool(transport_vote.hold(member, why, fallback=True, deadline=deadline))]


def servers(scene: Scene, rank: int) -> Any:
    """A server is rank 0, and a worker is rank 1."""
    if rank:
        try:
            return worker(scene, 0)
        finally:
            scene.store.stop.set()
    config = parse(text_of(scene.folder), "test")
    directory = Directory(scene.store, "demo", job_secret(Environment.read()))
    with HostedShards(config, directory, scene.host_daemon) as hosting:
        hosting.run(scene.store.stop, standby=False)
    return [True]


def worker(scene: Scene, rank: int) -> Any:
    client = ps.connect(
        [ps.NamedTensor("w", (4,))],
        ps.sgd(1.0),
        server="demo",
        store=scene.store,
        rank=rank,
        world_size=1,
        job="test",
        socket=scene.host_daemon.socket,
        timeout=scene.timeout,
        takeover=1.0,
    )
    into = [np.zeros(4, np.float32)]
    client.initialise(into)
    client.push_pull([np.ones(4, np.float32)], into, ps.sgd(1.0).groups)
    client.close()
    return [into[0].tolist() == [-1.0] * 4]


def played(play: Play, ranks: int, scene: Scene) -> list[Any]:
    """What each rank gets: results, or errors."""
    with ThreadPoolExecutor(ranks) as pool:
        futures = [pool.submit(play, scene, rank) for rank in range(ranks)]
        return [future.exception(PATIENCE) or future.result() for future in futures]


PLAYS: Final = {"groups": (groups, 2), "epochs": (epochs, 3), "servers": (servers, 2)}


def verdict(change: Change, results: Sequence[Any]) -> str:
    """What is wrong with them; "" = nothing."""
    for rank, result in enumerate(results):
        if not isinstance(result, DlcpError) and result not in ([True], [True, True]):
            return f"{change.key} {change.kind}: rank {rank} has {result!r}"
        if isinstance(result, DlcpError) and type(result).code == "internal":
            return f"{change.key} {change.kind}: rank {rank} is told nothing by {result!r}"
    return ""


@pytest.mark.check(109, "each value of the store changed: no wrong result")
@pytest.mark.parametrize("name", list(PLAYS))
@pytest.mark.parametrize("signed", [True, False], ids=["secret", "no secret"])
def test_a_changed_value_gives_a_right_result_or_a_named_error(  # noqa: PLR0917  # fixtures
    name: str,
    signed: bool,
    host_daemon: HostDaemon,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    measured: Measured,
) -> None:
    if signed:
        monkeypatch.setenv("DLCPD_JOB_SECRET", SECRET)
    play, ranks = PLAYS[name]
    earlier, plain = (Mutator(), Mutator())
    for number, store in enumerate((earlier, plain)):
        results = played(
            play, ranks, Scene(store, host_daemon, PATIENCE, tmp_path / f"as it is {number}")
        )
        assert not verdict(Change(), results) and DlcpError not in map(type, results), results
    unsigned = [key for key, text in plain.texts.items() if not text.startswith("signed ")]
    assert bool(unsigned) is not signed, unsigned

    def one(numbered: tuple[int, Change]) -> tuple[str, bool]:
        number, change = numbered
        store = Mutator(change)
        scene = Scene(store, host_daemon, SHORT, tmp_path / str(number))
        results = played(play, ranks, scene)
        right = all(isinstance(result, list) for result in results)
        return verdict(change, results), right

    changes = plain.changes(earlier.texts)
    began = time.monotonic()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        seen = list(pool.map(one, enumerate(changes)))
    assert not [text for text, _ in seen if text]
    right = sum(right for _, right in seen)
    measured(
        f"{name}, {'secret' if signed else 'no secret'}: {len(changes)} changes of "
        f"{len(plain.texts)} texts and {len(plain.counts)} counts, {right} right all the same, "
        f"the others named, in {time.monotonic() - began:.0f} s"
    )


@pytest.mark.check(112, "a process ends between any two of its writes to the store")
@pytest.mark.parametrize("name", list(PLAYS))
@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_rank_that_dies_after_any_write_is_named_by_the_others(
    name: str, host_daemon: HostDaemon, tmp_path: Path, measured: Measured
) -> None:
    play, ranks = PLAYS[name]

    def one(case: tuple[int, int]) -> tuple[str, int, float]:
        """What is wrong where a rank dies after so many writes (0: it lives), how many there
        were, and the seconds that it took."""
        mortal, writes = case
        shared = Mutator()
        store = Mortal(shared, writes, die)
        folder = tmp_path / f"{mortal} {writes}"
        scenes = [Scene(shared, host_daemon, SHORT, folder)] * ranks
        scenes[mortal] = Scene(store, host_daemon, SHORT, folder)

        def stop_after_error(over: Future[Any]) -> None:
            if over.exception():
                shared.stop.set()

        began = time.monotonic()
        with ThreadPoolExecutor(ranks) as pool:
            futures = [pool.submit(play, scene, rank) for rank, scene in enumerate(scenes)]
            for future in futures:
                future.add_done_callback(stop_after_error)
            results = [future.exception(PATIENCE) or future.result() for future in futures]
        wrong = [
            f"rank {mortal} died after {writes} writes: rank {rank}: {result!r}"
            for rank, result in enumerate(results)
            if rank != mortal and not is_right_or_names(result, mortal, name)
        ]
        return "; ".join(wrong), store.writes, time.monotonic() - began

    cases = []
    for rank in range(ranks):
        wrong, writes, _ = one((rank, 0))
        assert not wrong
        cases += [(rank, number) for number in range(1, writes + 1)]
    with ThreadPoolExecutor(AT_ONCE) as pool:
        seen = list(pool.map(one, cases))
    assert not "\n".join(wrong for wrong, _, _ in seen if wrong)
    died = sum(writes >= case[1] for case, (_, writes, _) in zip(cases, seen, strict=True))
    assert died > len(cases) // 2, "a job of several epochs does not always write as often"
    slowest = max(took for _, _, took in seen)
    measured(f"{name}: {died} places to die, the others knew after {slowest:.1f} s at most")


def is_right_or_names(result: Any, dead: int, play: str) -> bool:
    """Whether a rank has its results, or an error that says who has died. A process that has yet
    to come into a job knows no ranks, and a worker calls its server by name."""
    if not isinstance(result, DlcpError):
        return result in ([True], [True, True])
    names = [f"rank {dead}", f"rank(s) {dead}"]
    names += {"epochs": ["elastic.boundary()"], "servers": ["shard 0 of server"]}.get(play, [])
    return any(name in str(result) for name in names)


@pytest.mark.check(113, "a call of a worker that died is in nobody's way")
def test_a_worker_that_dies_after_any_write_stops_nobody(
    host_daemon: HostDaemon, tmp_path: Path, measured: Measured
) -> None:
    served = Mutator()
    scene = Scene(served, host_daemon, PATIENCE, tmp_path)
    dead = 0
    with ThreadPoolExecutor(1) as pool:
        server = pool.submit(servers, scene, 0)
        try:
            for writes in (1, 2):  # the wish, and the count that tells of it
                mortal = Mortal(served, writes, die)
                directory = Directory(mortal, "demo")
                while (standing := directory.newest(0)) is None:
                    time.sleep(0.01)
                with pytest.raises(Died):
                    directory.call(0, standing.shards, {"worker": 7}, time.monotonic() + PATIENCE)
                dead += 1
            began = time.monotonic()
            assert worker(scene, 0) == [True]
            took = time.monotonic() - began
        finally:
            served.stop.set()
        server.result(PATIENCE)
    assert took < 10
    measured(f"after {dead} of them the next worker has trained after {took:.1f} s")


def die() -> None:
    raise Died


@pytest.mark.check(110, "two groups of the same ranks under exchanged numbers are refused by name")
@pytest.mark.parametrize("signed", [True, False], ids=["secret", "no secret"])
def test_groups_under_exchanged_numbers_are_refused(
    signed: bool, host_daemon: HostDaemon, monkeypatch: pytest.MonkeyPatch, measured: Measured
) -> None:
    if signed:
        monkeypatch.setenv("DLCPD_JOB_SECRET", SECRET)
    store, names = Mutator(), ("weights", "biases")
    made = threading.Event()

    def rank(number: int) -> Any:
        session = connect(
            store, number, WORLD, socket=host_daemon.socket, timeout=PATIENCE, arena_bytes=1 << 20
        )
        try:
            if number:
                made.wait(PATIENCE)
                exchange(store, [key for key in store.keys if "/0.1/1" in key])
            groups = [session.group([0, 1], name, timeout=PATIENCE) for name in names]
            made.set()
            tensors = [torch.full((100,), float(number + 1)) for _ in groups]
            policy = exact(deadline=SHORT)
            works = [g.all_reduce(t, policy=policy) for g, t in zip(groups, tensors, strict=True)]
            for work in works:
                work.wait()
            return tensors
        finally:
            session.close()

    with ThreadPoolExecutor(WORLD) as pool:
        futures = [pool.submit(rank, number) for number in range(WORLD)]
        errors = [future.exception(PATIENCE) for future in futures]
    assert all(isinstance(error, DlcpError) for error in errors), errors
    expected = "has a signature for another key, launch or secret" if signed else "group 'weights'"
    assert expected in "".join(map(str, errors)), errors
    measured(str(errors[1])[:120])


def exchange(store: Mutator, keys: list[str]) -> None:
    first, second = keys
    one, two = (store.get(key).decode() for key in keys)
    store.store.set(first, two)
    store.store.set(second, one)


@pytest.mark.check(120, "a store that is removed while ranks meet is named by every rank")
def test_a_store_that_loses_a_ranks_own_words_is_named(tmp_path: Path) -> None:
    store = FileStore(tmp_path / "store")
    meetings = [Meeting(Member(store, rank, 3), "job") for rank in range(2)]
    for meeting in meetings:
        meeting.publish({})
    shutil.rmtree(store.folder)
    for rank, meeting in enumerate(meetings):
        with pytest.raises(
            StoreLost, match=f"{store.folder}.* the entry of this rank .rank {rank}"
        ):
            meeting.gather(time.monotonic() + PATIENCE)
