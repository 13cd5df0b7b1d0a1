"""A link of a running job becomes slow: the job measures it, and adopts a better plan."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import HashStore

from dlcp_client import Session, connect
from dlcp_lab.emulation import Fabric, Plan, fabric
from dlcp_lab.emulation.patience import patience
from dlcp_lab.ranks.hosts import HostPlan, Hosts, running
from dlcp_lab.ranks.processes import Place

pytestmark = pytest.mark.netns

HOSTS = 4
RATE, SLOW = "25mbit", "5mbit"  # which busy machines can carry
SIZE = 1 << 16  # float32: 256 KiB
MOST_STEPS = 150
STEPS_AFTER = 3
FLAP, FLAPPING = 3.0, 24.0  # seconds


@pytest.fixture
def job(tmp_path: Path) -> Iterator[tuple[Fabric, Hosts, list[Session]]]:
    file = tmp_path / "topology.toml"
    file.write_text("[hosts]\n" + "".join(f'host{n} = "{RATE}"\n' for n in range(HOSTS)))
    limits = tuple((f"h{host}-l0", RATE) for host in range(HOSTS))
    with fabric(Plan(hosts=HOSTS, host_rate=RATE, limits=limits)) as net:
        plans = [
            HostPlan(
                f"host{host}",
                (net.address(host),),
                place=Place(net.host_namespace(host)),
                topology=str(file),
                replan=True,
            )
            for host in range(HOSTS)
        ]
        with running(plans) as hosts:
            sessions = joined(hosts)
            yield net, hosts, sessions
            for session in sessions:
                session.close()


def joined(hosts: Hosts) -> list[Session]:
    store, options = HashStore(), {"job": "replan", "timeout": patience(30.0)}

    def join(rank: int) -> Session:
        where: dict[str, Any] = {"socket": hosts.members[rank].socket, **options}
        return connect(store, rank, HOSTS, arena_bytes=32 << 20, **where)

    with ThreadPoolExecutor(HOSTS) as pool:
        return list(pool.map(join, range(HOSTS)))


def step(sessions: list[Session], seed: int) -> list[torch.Tensor]:
    """One sum, the same bits on all ranks. An operation that fails raises."""
    made = torch.Generator().manual_seed(seed)
    tensors = [torch.randn(SIZE, generator=made) for _ in sessions]
    expected = torch.stack(tensors).sum(0)
    works = [session.all_reduce(one) for session, one in zip(sessions, tensors, strict=True)]
    for work in works:
        work.wait()
    assert all(torch.equal(one, tensors[0]) for one in tensors), seed
    assert torch.allclose(tensors[0], expected, atol=1e-4)
    return tensors


def replans(hosts: Hosts) -> int:
    """Networks that rank 0 has offered by itself."""
    return (hosts.members[0].folder / "dlcpd.log").read_text().count("event=replan ")


def test_a_link_that_becomes_slow_in_mid_training_gets_another_plan(
    job: tuple[Fabric, Hosts, list[Session]],
) -> None:
    """No operation fails, and the replicas have equal bits."""
    net, hosts, sessions = job
    replicas = [torch.zeros(SIZE) for _ in sessions]
    slow, planned = 0, MOST_STEPS
    for seed in range(MOST_STEPS):
        if seed == 2:
            net.limit("h0-l0", SLOW)
        for replica, gradient in zip(replicas, step(sessions, seed), strict=True):
            replica.sub_(gradient, alpha=0.01)
        status = [session.status()["sessions"][0] for session in sessions]
        if all(row["plan_version"] > 1 and row["plan"].startswith("forest") for row in status):
            slow, planned = slow + 1, min(planned, seed)
        if slow == STEPS_AFTER:
            break
    assert len({row["plan"] for row in status}) == 1
    assert status[0]["plan"].startswith("forest: gain ")
    assert 2 < planned < MOST_STEPS - STEPS_AFTER
    assert replans(hosts) >= 1
    assert all(torch.equal(replica, replicas[0]) for replica in replicas)


def test_a_link_that_flaps_every_3_seconds_has_one_plan_at_most_and_another_when_it_stays_slow(
    job: tuple[Fabric, Hosts, list[Session]],
) -> None:
    net, hosts, sessions = job
    seeds, began = iter(range(10 * MOST_STEPS)), time.monotonic()
    while (passed := time.monotonic() - began) < FLAPPING:
        net.limit("h0-l0", SLOW if passed % (2 * FLAP) < FLAP else RATE)
        step(sessions, next(seeds))
    assert replans(hosts) <= 1
    assert {session.status()["sessions"][0]["plan_version"] for session in sessions} <= {1, 2}
    net.limit("h0-l0", SLOW)
    for seed in islice(seeds, MOST_STEPS):
        step(sessions, seed)
        plans = [session.status()["sessions"][0]["plan"] for session in sessions]
        if all(plan.startswith("forest") for plan in plans):
            return
    raise AssertionError(f"{MOST_STEPS} operations over a slow link, and {set(plans)}")
