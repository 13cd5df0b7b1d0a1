"""Operations of simulated hosts: the limit of their bytes, their results, and their trains."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcp_lab.simulation import operation
from dlcp_lab.simulation.cell import SEGMENT
from dlcp_lab.simulation.operation import (
    AROUND,
    SimHardware,
    all_reduce,
    incast,
    limit,
    network_of,
)
from dlcp_lab.simulation.reference import Tensor, rank_ordered
from dlcpd.schedules.builders import all_reduce as builders
from dlcpd.schedules.builders.reduce import direct
from tests.simulation.agreement import agree

RATE = 100e9


def hardware(hosts: int, **options: Any) -> SimHardware:
    return SimHardware(hosts, **{"rate_bps": RATE, "round_trip": 10e-6, "wake_up": 5e-6} | options)


# --- the limit ------------------------------------------------------------------------------


@pytest.mark.parametrize("senders", [1, 3, 16])
def test_the_limit_of_an_incast_is_all_that_its_receiver_takes_in(senders: int) -> None:
    size = 10 * SEGMENT + 4  # the last segment has four bytes and all headers
    programs = [direct(rank, senders + 1, size, 0, 1 << 20) for rank in range(senders + 1)]
    assert limit(programs, 8.0) == senders * (size + 11 * AROUND)


@pytest.mark.parametrize("hosts", [2, 4, 11])
def test_the_limit_of_an_all_reduce_is_each_shard_twice(hosts: int) -> None:
    shard = 64 * SEGMENT
    programs = [builders.direct(rank, hosts, hosts * shard, 1 << 20) for rank in range(hosts)]
    carried = 2 * (hosts - 1) * (shard + 64 * AROUND)  # contributions, and as many results
    assert limit(programs, RATE) == pytest.approx(carried * 8 / RATE)


def test_the_limit_is_that_of_the_busiest_host() -> None:
    """Of three hosts, only two own a shard of 128 bytes: each takes in 2 x 64 B, and 64 B."""
    programs = [builders.direct(rank, 3, 128, 1 << 20) for rank in range(3)]
    assert limit(programs, 8.0) == 3 * (64 + AROUND)


@settings(max_examples=15)
@given(
    hosts=st.integers(2, 5),
    elements=st.integers(1, 40_000),
    rate=st.sampled_from([1e9, 25e9, 400e9]),
    senders=st.integers(1, 4),
)
def test_no_operation_is_faster_than_its_limit(
    hosts: int, elements: int, rate: float, senders: int
) -> None:
    net = network_of(hardware(hosts, rate_bps=rate))
    for made in (
        all_reduce(net, 4 * elements, 1),
        incast(net, 4 * elements, min(senders, hosts - 1), 2),
    ):
        assert not made.wrong
        assert 0 < made.share <= 1
        assert made.ended >= made.time
        assert made.events > 0 and made.datagrams > 0


# --- results --------------------------------------------------------------------------------


def test_each_element_with_a_wrong_bit_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def off(parts: list[Tensor], dtype: str, op: str) -> Tensor:
        made = rank_ordered(parts, dtype, op)
        made.view(np.uint32)[[3, 70, 99]] ^= 1  # the last bit of the fraction
        return made

    monkeypatch.setattr(operation, "rank_ordered", off)
    net = network_of(hardware(3))
    assert all_reduce(net, 400, 1).wrong == 9
    assert incast(net, 400, 2, 2).wrong == 3, "only the receiver has a result"


def test_operations_of_a_network_have_data_of_their_own() -> None:
    net = network_of(hardware(2))
    drawn = [operation._drawn(net, 2, number, 400)[1] for number in (1, 2)]  # noqa: SLF001  # no result tells it
    assert (drawn[0] != drawn[1]).all()


def test_drops_of_a_shallow_port_are_counted_and_repaired() -> None:
    """The port holds 1 MiB, and a wake-up after 2 ms lets senders run ahead of all credits."""
    net = network_of(hardware(9, wake_up=2e-3))
    made = [incast(net, 1 << 20, 8, number) for number in (1, 2)]
    assert sum(each.dropped for each in made) > 0
    assert sum(each.dropped for each in made) == net.fabric.dropped
    assert not any(each.wrong for each in made)


# --- trains ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("hosts", "size", "senders"),
    [(4, 1 << 19, 0), (5, 1 << 18, 4), pytest.param(8, 1 << 19, 0, marks=pytest.mark.heavy)],
)
def test_trains_take_the_time_of_single_datagrams(hosts: int, size: int, senders: int) -> None:
    def times(train: float) -> tuple[list[float], int]:
        net = network_of(hardware(hosts), train=train)
        made = [
            incast(net, size, senders, number) if senders else all_reduce(net, size, number)
            for number in range(1, 13)
        ]
        return [each.time for each in made[4:]], net.calendar.handled

    single, many = times(0.0), times(operation.TRAIN)
    assert single[1] > 2 * many[1]
    agree(single[0], many[0])


# --- many hosts -----------------------------------------------------------------------------


@pytest.mark.heavy
def test_sixteen_hosts_at_100_gbps_come_near_the_limit() -> None:
    net = network_of(hardware(16))
    shares = [all_reduce(net, 4 << 20, number).share for number in (1, 2, 3)]
    assert shares[0] > 0.5  # no window, round trip or rate of arrivals has been measured before
    assert min(shares[1:]) > 0.75
    shares = [incast(net, 1 << 20, 15, number).share for number in (4, 5)]
    assert min(shares) > 0.9
    assert not net.fabric.dropped
