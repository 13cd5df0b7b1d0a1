"""Hosts that told their rates and racks: forests reach engines, and results stay the same bits."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import HashStore

from dlcp_client import Session, bounded, connect, exact
from dlcp_lab.ranks import launch
from dlcp_lab.ranks.hosts import Hosts, on_loopback, running
from dlcp_lab.scenarios.uneven import ROUNDING
from tests.client.real import TIMEOUT

HOSTS = 4
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


def each(world: int, call: Callable[[int], Any]) -> list[Any]:
    """call(rank) on a thread for each rank."""
    with ThreadPoolExecutor(world) as pool:
        return list(pool.map(call, range(world)))


def hosts_with(folder: Path, text: str) -> list[Any]:
    file = folder / "topology.toml"
    file.write_text(text)
    return on_loopback(HOSTS, topology=str(file))


@pytest.fixture(scope="module")
def uneven(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    with running(hosts_with(tmp_path_factory.mktemp("uneven"), TOPOLOGY)) as started:
        yield started


@pytest.fixture(scope="module")
def racks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    text = TOPOLOGY.replace("2500mbit", "10gbit") + RACKS
    with running(hosts_with(tmp_path_factory.mktemp("racks"), text)) as started:
        yield started


@pytest.fixture(
    scope="module",
    params=[("uneven", 1), ("racks", 1), ("racks", 2)],
    ids=lambda p: f"{p[0]}-{p[1]}",
)
def job(request: pytest.FixtureRequest) -> Iterator[list[Session]]:
    """Sessions of all ranks, some on each host; the daemons have told each other their rates."""
    name, ranks = request.param
    hosts: Hosts = request.getfixturevalue(name)
    store, world = HashStore(), HOSTS * ranks
    sessions = each(
        world,
        lambda rank: connect(
            store,
            rank,
            world,
            job=f"planned{ranks}",
            socket=hosts.members[rank // ranks].socket,
            timeout=TIMEOUT,
            arena_bytes=64 << 20,
        ),
    )
    yield sessions
    for session in sessions:
        session.close()


def parts(seed: int, world: int) -> list[torch.Tensor]:
    made = torch.Generator().manual_seed(seed)
    return [torch.randint(-1000, 1000, (SIZE,), generator=made).float() for _ in range(world)]


def test_status_names_the_plan_its_gain_and_the_slowest_link(
    job: list[Session], request: pytest.FixtureRequest
) -> None:
    rows = [session.status()["sessions"][0] for session in job]
    [plan] = {row["plan"] for row in rows}
    assert plan.startswith("forest: gain "), plan
    slowest = 1e9 if "racks" in request.node.name else 2.5e9  # an uplink; host2
    assert {row["least_bps"] for row in rows} == {slowest}


def test_all_collectives_have_the_right_results(job: list[Session]) -> None:
    """Of integers, whose sums are exact in any order."""
    world = len(job)
    ranks, given = range(world), parts(1, world)
    total = torch.stack(given).sum(0)
    for schedule in ("", "forest", "ring", "direct"):
        tensors = [part.clone() for part in given]
        works = [job[r].all_reduce(tensors[r], schedule=schedule) for r in ranks]
        finish(works)
        assert all(torch.equal(one, total) for one in tensors), schedule
    groups = each(world, lambda r: job[r].group(ranks, "all"))
    made = [torch.zeros(SIZE // world) for _ in ranks]
    finish([groups[r].reduce_scatter(made[r], given[r]) for r in ranks])
    assert torch.equal(torch.cat(made), total)
    whole = [torch.zeros(SIZE * world) for _ in ranks]
    finish([groups[r].all_gather(whole[r], given[r]) for r in ranks])
    assert all(torch.equal(one, torch.cat(given)) for one in whole)
    for root in (0, 2):
        copies = [given[root].clone() if r == root else torch.zeros(SIZE) for r in ranks]
        finish([groups[r].broadcast(copies[r], root) for r in ranks])
        assert all(torch.equal(one, given[root]) for one in copies)
        sums = [part.clone() for part in given]
        finish([groups[r].reduce(sums[r], root) for r in ranks])
        assert torch.equal(sums[root], total)
    each(world, lambda r: groups[r].close())


def finish(works: list[Any]) -> None:
    for work in works:
        work.wait()


def test_replicas_are_equal_bit_for_bit(job: list[Session]) -> None:
    """Of values whose sums depend on the order, with and without a bound."""
    for policy, name in ((exact(), ""), (bounded(0.05), "g")):
        for step in range(3):
            made = torch.Generator().manual_seed(step)
            tensors = [torch.randn(SIZE, generator=made) for _ in job]
            expected = torch.stack(tensors).double().sum(0)
            asked = zip(job, tensors, strict=True)
            finish([session.all_reduce(t, policy=policy, name=name) for session, t in asked])
            assert all(torch.equal(one, tensors[0]) for one in tensors)
            assert torch.allclose(tensors[0].double(), expected, atol=1e-4)


def test_a_codec_rounds_once_each_way(job: list[Session]) -> None:
    """Whatever the plan: bfloat16 has 8 bits, and all ranks have the same ones."""
    made = torch.Generator().manual_seed(3)
    tensors = [torch.rand(SIZE, generator=made) for _ in job]
    expected = torch.stack(tensors).sum(0)
    asked = zip(job, tensors, strict=True)
    finish([session.all_reduce(t, policy=exact(codec="bf16"), name="c") for session, t in asked])
    assert all(torch.equal(one, tensors[0]) for one in tensors)
    assert torch.allclose(tensors[0], expected, rtol=2**-7)


def test_a_group_has_the_network_of_its_hosts(job: list[Session]) -> None:
    world = len(job)
    given, ranks = parts(2, world), (world - 1, 2, 0)
    total = given[0] + given[2] + given[-1]
    groups = dict(zip(ranks, each(3, lambda at: job[ranks[at]].group(ranks, "three")), strict=True))
    tensors = {rank: given[rank].clone() for rank in ranks}
    finish([groups[rank].all_reduce(tensors[rank], schedule="forest") for rank in ranks])
    assert all(torch.equal(made, total) for made in tensors.values())
    for group in groups.values():
        group.close()


def test_fsdp2_in_racks_trains_as_one_process_does(racks: Hosts) -> None:
    """Gathers and reductions go over trees of two levels; `bench uneven` counts uplinks' bytes."""
    model = {"width": 512, "layers": 2, "steps": 2}
    work = launch.Work("dlcp_lab.scenarios.fsdp_rank", model, TIMEOUT)
    ranks = launch.run(racks, work, progress=lambda _: None)
    assert len({rank["digest"] for rank in ranks}) == 1
    assert 0 <= ranks[0]["error"] <= ROUNDING
