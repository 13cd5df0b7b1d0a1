"""The costs that an engine measures when it starts."""

import socket

import pytest

from dlcpd.contract.errors import AddressUnavailable
from dlcpd.io import own_costs
from dlcpd.io.config import EngineConfig
from dlcpd.io.engine import Engine
from dlcpd.schedules.network import MAX_COST, TYPICAL, Costs


@pytest.fixture(autouse=True)
def _a_busy_machine_takes_longer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_costs, "MOST_TIME", 60.0)


def test_costs_are_measured_with_engines_like_the_own_one() -> None:
    costs = own_costs.measured(Engine, EngineConfig(data_path="numpy", rate_limit_bps=0.0))
    assert costs != TYPICAL and costs.latency_ns == TYPICAL.latency_ns
    assert 0 < sum(own_costs.named(costs).values()) <= 3 * MAX_COST
    assert set(own_costs.named(costs)) == {"transfer_ns", "datagram_ns", "wake_up_ns"}


def test_each_kind_of_program_is_a_window_of_its_own() -> None:
    """Many transfers, many datagrams, many wake-ups: else the costs could not be told apart."""
    with own_costs.pair(Engine, EngineConfig(segment_size=own_costs.SEGMENT)) as engines:
        many, large, turns = own_costs.windows(engines)
    assert many.transfers == 4 * own_costs.MANY and turns.transfers == 2 * own_costs.TURNS
    assert large.datagrams >= 4 * own_costs.LARGE // own_costs.SEGMENT
    assert turns.wake_ups >= own_costs.TURNS
    assert many.datagrams < large.datagrams / 10 and large.transfers < many.transfers / 10


def refuses(config: EngineConfig, control: socket.socket) -> Engine:
    raise AddressUnavailable("no loopback here")


def test_the_usual_costs_hold_where_they_cannot_be_measured(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert own_costs.measured(refuses, EngineConfig()) == TYPICAL
    monkeypatch.setattr(own_costs, "MOST_TIME", 0.0)
    assert own_costs.measured(Engine, EngineConfig()) == TYPICAL


def test_no_cost_is_beyond_what_peers_accept(monkeypatch: pytest.MonkeyPatch) -> None:
    dear = Costs(*[MAX_COST + 1] * len(TYPICAL))
    monkeypatch.setattr(own_costs, "fitted", lambda windows, latency: dear)
    assert own_costs.measured(Engine, EngineConfig()) == Costs(*[MAX_COST] * len(TYPICAL))
