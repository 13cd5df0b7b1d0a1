"""Rates of links as engines read them in virtual time: right within 25 %, or not told."""

from collections.abc import Iterator

import pytest

from dlcp_lab.simulation.burst_network import BurstNetwork
from dlcp_lab.simulation.operation import DEADLINE
from dlcp_lab.simulation.planned import PLANNED, PlanCase, network_of, programs
from dlcp_lab.simulation.reference import draw_whole
from dlcpd.core.paths.link_rate import BIN, BINS
from dlcpd.planning.passive import LinkRates, measured
from dlcpd.planning.replan import CHANGED, TICK, WINDOW
from dlcpd.schedules.model import Program
from tests.simulation.test_planned import MBPS, job

SECONDS = 1.2  # of operations, after those that a window no longer has
SIZE = 256 << 10  # bytes
WAYS = ("out", "in")
ROUNDING = 1.01

# Rates in Mb/s that the plan assumes, and those that links have. The plan of equal hosts is
# `direct`; those of the others are trees.
CASES = {
    "one of three is slow": ([25] * 3, [25, 6, 25]),
    "one of four is slow": ([25] * 4, [8, 25, 25, 25]),
    "all as planned": ([25] * 4, [25] * 4),
    "another is slow": ([6, 25, 25, 25], [6, 25, 5, 25]),
    "one is as fast as the others": ([6, 25, 25, 25], [25] * 4),
}


def windows(plan: list[int], rates: list[int]) -> Iterator[dict[str, LinkRates]]:
    """What the hosts tell every TICK, by link."""
    case = PlanCase(job(plan), "all_reduce", SIZE)
    network = network_of(PlanCase(job(rates), "all_reduce", SIZE), 200e-6, 256 << 10, 1)
    began, due = network.now, network.now + 2 * WINDOW
    of_ranks, number = programs(case, PLANNED), 0
    while network.now < began + 2 * WINDOW + SECONDS:
        number += 1
        operation(network, number, of_ranks)
        if network.now >= due:
            due = network.now + TICK
            yield {
                f"h{rank} {way}": told(network, rank, way)
                for rank in range(len(plan))
                for way in WAYS
            }


def operation(network: BurstNetwork, number: int, of_ranks: list[Program]) -> None:
    tensors = draw_whole(network.world_size, SIZE // 4, number)
    for rank, tensor in enumerate(tensors):
        network.submit(
            rank,
            number,
            tensor,
            program=of_ranks[rank],
            output=tensor,
            in_place=True,
            terms="link rates",
            deadline=DEADLINE,
        )
    network.complete(number)


def told(network: BurstNetwork, rank: int, way: str) -> LinkRates:
    link = network.endpoints[rank].link
    read = (link.out if way == "out" else link.into).reading(network.now)
    part = read.part if read.hosts == network.world_size - 1 else 0
    return LinkRates(read.most, read.rate, part)


@pytest.mark.parametrize("name", CASES)
def test_a_rate_is_right_within_25_percent_or_not_told(name: str) -> None:
    plan, rates = CASES[name]
    links = {f"h{rank} {way}": rank for rank in range(len(plan)) for way in WAYS}
    planned = {link: plan[rank] * MBPS for link, rank in links.items()}
    slow, faster = set[str](), set[str]()
    count = 0
    for rows in windows(plan, rates):
        count += 1
        for link, rate in measured(rows, planned).items():
            true = rates[links[link]] * MBPS
            assert rate <= true * (1 + CHANGED) * ROUNDING, link
            if rate <= planned[link] * (1 - CHANGED):
                assert rate >= true * (1 - CHANGED), link
                slow.add(link)
            if rate >= planned[link] * (1 + CHANGED):
                faster.add(link)
    pairs = [(link, plan[rank], rates[rank]) for link, rank in links.items()]
    changed = {link for link, planned_, true in pairs if true < planned_}
    assert count and slow <= changed and bool(slow) is bool(changed)
    assert faster == {link for link, planned_, true in pairs if true > planned_}


def test_a_window_is_that_of_the_rule() -> None:
    assert pytest.approx(WINDOW) == BIN * BINS
