"""Hosts that told their rates and racks: forests reach engines, and results stay the same bits."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import HashStore

from dlcp_client import Session, bounded, connect
from dlcp_lab.ranks.hosts import Hosts, on_loopback, running
from tests.client.real import TIMEOUT

WORLD = 4
SIZE = 300_000  # float32: 1.2 MB
TOPOLOGY = """
[hosts]
host0 = "10gbit"
host1 = "10gbit"
host2 = "2500mbit"
host3 = "10gbit"
"""
RACKS = """
[racks.left]
hosts = ["host0", "host2"]
uplink = "1gbit"

[racks.right]
hosts = ["host1", "host3"]
uplink = "1gbit"
"""


def each(call: Callable[[int], Any]) -> list[Any]:
    with ThreadPoolExecutor(WORLD) as pool:
        return [future.result() for future in [pool.submit(call, r) for r in range(WORLD)]]


def hosts_with(folder: Path, text: str) -> list[Any]:
    file = folder / "topology.toml"
    file.write_text(text)
    return on_loopback(WORLD, topology=str(file))


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with running(hosts_with(tmp_path_factory.mktemp("uneven"), TOPOLOGY)) as started:
        yield started


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    text = TOPOLOGY.replace("2500mbit", "10gbit") + RACKS
    with running(hosts_with(tmp_path_factory.mktemp("racks"), text)) as started:
        yield started


@pytest.fixture(scope="module", params=["uneven", "racks"])
def job(request: pytest.FixtureRequest) -> Iterator[list[Session]]:
    """Sessions of all ranks; the daemons have told each other their rates."""
    yield from joined(request.getfixturevalue(request.param))


def joined(hosts: Hosts) -> Iterator[list[Session]]:
    store = HashStore()
    sessions = each(
        lambda rank: connect(
            store,
            rank,
            WORLD,
            job="planned",
            socket=hosts.members[rank].socket,
            timeout=TIMEOUT,
            arena_bytes=64 << 20,
        )
    )
    yield sessions
    for session in sessions:
        session.close()


def parts(seed: int, count: int = SIZE) -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(seed)
    return [torch.randint(-1000, 1000, (count,), generator=made).float() for _ in range(WORLD)]


def test_status_names_the_plan_and_its_gain(job: list[Session]) -> None:
    plans = {session.status()["sessions"][0]["plan"] for session in job}
    assert len(plans) == 1
    [plan] = plans
    assert plan.startswith("forest: gain "), plan


def test_all_collectives_have_the_right_results(job: list[Session]) -> None:
    """Of integers, whose sums are exact in any order."""
    given = parts(1)
    total = torch.stack(given).sum(0)
    for schedule in ("", "forest", "direct"):
        tensors = [part.clone() for part in given]
        each(lambda r, t=tensors, s=schedule: job[r].all_reduce(t[r], schedule=s).wait())  # type: ignore[misc]
        assert all(torch.equal(one, total) for one in tensors), schedule
    groups = each(lambda r: job[r].group(range(WORLD), "all"))
    made = [torch.zeros(SIZE // WORLD) for _ in range(WORLD)]
    each(lambda r: groups[r].reduce_scatter(made[r], given[r]).wait())
    assert torch.equal(torch.cat(made), total)
    whole = [torch.zeros(SIZE * WORLD) for _ in range(WORLD)]
    each(lambda r: groups[r].all_gather(whole[r], given[r]).wait())
    assert all(torch.equal(one, torch.cat(given)) for one in whole)
    for root in (0, 2):
        copies = [given[root].clone() if r == root else torch.zeros(SIZE) for r in range(WORLD)]
        each(lambda r, c=copies, a=root: groups[r].broadcast(c[r], a).wait())  # type: ignore[misc]
        assert all(torch.equal(one, given[root]) for one in copies)
        sums = [part.clone() for part in given]
        each(lambda r, s=sums, a=root: groups[r].reduce(s[r], a).wait())  # type: ignore[misc]
        assert torch.equal(sums[root], total)
    each(lambda r: groups[r].close())


def test_replicas_are_equal_bit_for_bit(job: list[Session]) -> None:
    """Of values whose sums depend on the order, with and without a bound."""
    for policy in ({}, {"policy": bounded(0.05), "name": "g"}):
        for step in range(3):
            made = torch.Generator().manual_seed(step)
            tensors = [torch.randn(SIZE, generator=made) for _ in range(WORLD)]
            expected = torch.stack(tensors).double().sum(0)
            each(lambda r, t=tensors, p=policy: job[r].all_reduce(t[r], **p).wait())  # type: ignore[misc]
            assert all(torch.equal(one, tensors[0]) for one in tensors)
            assert torch.allclose(tensors[0].double(), expected, atol=1e-4)


def test_a_group_has_the_network_of_its_hosts(job: list[Session]) -> None:
    given, ranks = parts(2), (3, 2, 0)
    total = given[0] + given[2] + given[3]

    def one(rank: int) -> torch.Tensor | None:
        if rank not in ranks:
            return None
        group, tensor = job[rank].group(ranks, "three"), given[rank].clone()
        group.all_reduce(tensor, schedule="forest").wait()
        group.close()
        return tensor

    assert all(torch.equal(made, total) for made in each(one) if made is not None)
