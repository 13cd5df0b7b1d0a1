"""A job adopts another network while it runs: results keep their bits, and the ledger replays."""

import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import HashStore

from dlcp_client import Session, bounded, connect
from dlcpd.ledger.reader import find, runs
from dlcpd.ledger.replay import ReplayVerdict, replay
from dlcpd.requests.networks import WINDOW
from tests.client.real import TIMEOUT
from tests.daemon.kit import Daemon, configuration

pytestmark = pytest.mark.processes

HOSTS = 3
SIZE = 60_000  # float32: 240 kB
EQUAL = '[hosts]\nhost-0 = "10gbit"\nhost-1 = "10gbit"\nhost-2 = "10gbit"\n'
UNEVEN = EQUAL.replace('host-1 = "10gbit"', 'host-1 = "2500mbit"')
MOST_STEPS = 500


def each(call: Any) -> list[Any]:
    """call(rank) on a thread for each rank."""
    with ThreadPoolExecutor(HOSTS) as pool:
        return list(pool.map(call, range(HOSTS)))


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, list[Daemon]]]:
    folder = tmp_path_factory.mktemp("replanned")
    with ExitStack() as stack:
        started = []
        for rank in range(HOSTS):
            (folder / f"topology{rank}.toml").write_text(EQUAL)
            more = (
                f'[planner]\ntopology = "{folder}/topology{rank}.toml"\n'
                f'[ledger]\ndirectory = "{folder}/rank{rank}"\ninputs = true\n'
                f"[inject]\nloss = 0.02\nseed = {rank}\n"
            )
            file = configuration(folder, f"host-{rank}", f"127.0.0.{rank + 1}", more=more)
            started.append(stack.enter_context(Daemon(file, mode="")))
        yield folder, started


def topology(folder: Path, daemons: list[Daemon], text: str) -> None:
    """Write the file of every host, and reload its daemon."""
    for rank, daemon in enumerate(daemons):
        (folder / f"topology{rank}.toml").write_text(text)
        daemon.signal(signal.SIGHUP)


def step(sessions: list[Session], seed: int) -> None:
    """Two sums of all ranks, one of integers, which is exact; one under a bound."""
    made = torch.Generator().manual_seed(seed)
    exact = [torch.randint(-1000, 1000, (SIZE,), generator=made).float() for _ in sessions]
    lossy = [torch.randn(SIZE, generator=made) for _ in sessions]
    total = torch.stack(exact).sum(0)
    works = [session.all_reduce(exact[rank]) for rank, session in enumerate(sessions)]
    works += [
        session.all_reduce(lossy[rank], policy=bounded(0.2), name="g")
        for rank, session in enumerate(sessions)
    ]
    for work in works:
        work.wait()
    assert all(torch.equal(one, total) for one in exact), seed
    assert all(torch.equal(one, lossy[0]) for one in lossy), seed


def versions(sessions: list[Session]) -> set[int]:
    return {session.status()["sessions"][0]["plan_version"] for session in sessions}


def test_the_network_changes_under_running_operations(
    daemons: tuple[Path, list[Daemon]],
) -> None:
    folder, started = daemons
    store = HashStore()
    options: dict[str, Any] = {"job": "replanned", "timeout": TIMEOUT, "arena_bytes": 16 << 20}
    sessions = each(
        lambda rank: connect(store, rank, HOSTS, socket=str(started[rank].socket), **options)
    )
    steps = iter(range(MOST_STEPS))
    try:
        for version, text in enumerate((EQUAL, UNEVEN, EQUAL), 1):
            if version > 1:
                topology(folder, started, text)
            for number in steps:
                step(sessions, number)
                if versions(sessions) == {version}:
                    break
            for number in islice(steps, WINDOW + 2):
                step(sessions, number)
        plans = [session.status()["sessions"][0]["plan"] for session in sessions]
    finally:
        for session in sessions:
            session.close()
    assert all(plan.startswith("direct: ") for plan in plans)
    why = [e["why"] for e in started[2].events if e["event"] == "plan"]
    assert [one.split(":")[0] for one in why] == ["direct", "forest", "direct"]
    ledgers = find([folder])
    rates = {entry.plan.network[1].out_bps for one in ledgers for entry in one.entries}
    assert rates == {(10**10,), (25 * 10**8,)}
    for found in map(replay, runs(ledgers)):
        assert not found.different
        assert set(found.verdicts.values()) == {ReplayVerdict.REPRODUCED}
