"""Which way a size takes: the rule, from times that are given."""

from dataclasses import FrozenInstanceError, replace
from itertools import pairwise
from typing import Any

import pytest
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dlcp_client import ddp
from dlcp_client.auto.choice import (
    MIN_PAUSE,
    SHARE,
    TransportChoice,
    Transports,
    TransportTimes,
    Way,
    checked_transport,
    decide,
    pause,
    settle,
)
from dlcpd.contract.errors import BadConfig

EVEN = TransportTimes(1.0, 1.0)  # of whole steps


def chosen(dlcp: float, backend: float, before: Way, whole: TransportTimes = EVEN) -> Way:
    now = Transports(1, EVEN, (TransportChoice(8, EVEN, before),))
    return decide(2, whole, {8: TransportTimes(dlcp, backend)}, now).of(8)


@pytest.mark.parametrize(
    ("dlcp", "from_backend", "from_dlcp"),
    [
        (0.50, "dlcp", "dlcp"),
        (0.94, "dlcp", "dlcp"),
        (0.96, "backend", "dlcp"),  # noise: nothing changes
        (1.00, "backend", "dlcp"),
        (1.04, "backend", "dlcp"),
        (1.06, "backend", "backend"),
        (9.00, "backend", "backend"),
    ],
)
def test_a_size_moves_only_for_more_than_noise(
    dlcp: float, from_backend: Way, from_dlcp: Way
) -> None:
    assert chosen(dlcp, 1.0, "backend") == from_backend
    assert chosen(dlcp, 1.0, "dlcp") == from_dlcp


@pytest.mark.parametrize("before", ["backend", "dlcp"])
def test_times_that_wander_within_noise_move_nothing(before: Way) -> None:
    transports = Transports(1, EVEN, (TransportChoice(8, EVEN, before),))
    for dlcp in (0.97, 1.03, 0.96, 1.04, 1.0):
        transports = decide(2, EVEN, {8: TransportTimes(dlcp, 1.0)}, transports)
        assert transports.of(8) == before


def test_each_size_is_chosen_by_itself() -> None:
    times = {64: TransportTimes(1.0, 2.0), 8: TransportTimes(2.0, 1.0)}
    made = decide(3, EVEN, times, Transports())
    assert [(one.size, one.chosen) for one in made.sizes] == [(8, "backend"), (64, "dlcp")]


@pytest.mark.parametrize(
    ("whole", "from_backend", "from_dlcp"),
    [(1.01, "backend", "dlcp"), (1.06, "backend", "backend"), (1.0, "dlcp", "dlcp")],
)
def test_steps_that_are_slower_outweigh_buckets_that_are_faster(
    whole: float, from_backend: Way, from_dlcp: Way
) -> None:
    """As where the daemon takes the cores that the computation needs."""
    assert chosen(0.5, 1.0, "backend", TransportTimes(whole, 1.0)) == from_backend
    assert chosen(0.5, 1.0, "dlcp", TransportTimes(whole, 1.0)) == from_dlcp


MIXED = Transports(
    3,
    TransportTimes(0.9, 1.0),
    (TransportChoice(8, EVEN, "backend"), TransportChoice(64, EVEN, "dlcp")),
)


@pytest.mark.parametrize("took", [0.5, 0.9, 0.94])  # of 0.9 and 1.0
def test_what_is_fast_together_stays(took: float) -> None:
    made = settle(5, MIXED, took)
    assert (made.step, made.mixed, made.sizes) == (5, took, MIXED.sizes)


@pytest.mark.parametrize(("dlcp", "way"), [(0.9, "dlcp"), (1.0, "backend"), (1.04, "backend")])
@pytest.mark.parametrize("took", [1.01, 1.06, 9.0])
def test_what_is_slow_together_takes_the_faster_way(dlcp: float, way: Way, took: float) -> None:
    made = settle(5, replace(MIXED, whole=TransportTimes(dlcp, 1.0)), took)
    assert made.ways == {way}
    assert made.mixed == 0.0


def test_what_was_never_measured_goes_by_the_backend() -> None:
    assert Transports().of(8) == "backend"
    assert decide(3, EVEN, {8: TransportTimes(1.0, 2.0)}, Transports()).of(16) == "backend"


@pytest.mark.parametrize("slower", [1.0, 1.01, 1.5, 3.0, 100.0])
@pytest.mark.parametrize("dlcpd_is", [True, False], ids=["dlcpd", "backend"])
def test_calibrations_cost_no_more_than_their_share(slower: float, dlcpd_is: bool) -> None:
    whole = TransportTimes(slower, 1.0) if dlcpd_is else TransportTimes(1.0, slower)
    steps = pause(whole, each=7)
    assert steps >= MIN_PAUSE
    assert 7 * (slower - 1.0) <= SHARE * steps * (1 + 1e-9)
    assert steps <= max(MIN_PAUSE, 7 * (slower - 1.0) / SHARE + 1)  # and no rarer than that


def test_the_more_a_calibration_costs_the_rarer_it_is() -> None:
    pauses = [pause(TransportTimes(1.0 + cost, 1.0), each=7) for cost in (1.0, 2.0, 4.0)]
    assert all(b == 2 * a for a, b in pairwise(pauses))


def test_the_table_can_be_printed_and_not_changed() -> None:
    made = decide(17, TransportTimes(0.2, 0.25), {1024: TransportTimes(0.001, 0.002)}, Transports())
    assert str(made) == (
        "since step 17: 1024 B: dlcp 1 ms, backend 2 ms: dlcp; "
        "a step took dlcp 200 ms, backend 250 ms"
    )
    assert "no decision yet" in str(Transports())
    with pytest.raises(FrozenInstanceError):
        made.step = 3  # type: ignore[misc]


@pytest.mark.parametrize("name", ["dlcp", "auto", "backend"])
def test_the_transports_that_there_are(name: str) -> None:
    assert checked_transport(name) == name


@pytest.mark.usefixtures("group_of_one")
@pytest.mark.parametrize("wrong", ["Auto", "gloo", "", None, 1, ["auto"]])
def test_a_transport_that_there_is_not(wrong: Any) -> None:
    net = DistributedDataParallel(nn.Linear(2, 2))
    with pytest.raises(BadConfig, match=r'transport .*: use "dlcp", "auto" or "backend"'):
        ddp.register(net, transport=wrong)
