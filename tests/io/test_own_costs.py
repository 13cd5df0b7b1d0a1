"""The measurement of an engine's costs; tests/daemon/test_host_costs.py has its process."""

import socket
import sys
from pathlib import Path

import pytest

from dlcpd.contract.errors import AddressUnavailable
from dlcpd.io import own_costs
from dlcpd.io.config import EngineConfig
from dlcpd.io.engine import Engine
from dlcpd.schedules.layout import SEGMENT
from dlcpd.schedules.network import MAX_COST, TYPICAL, Costs


def test_each_kind_of_program_is_a_window_of_its_own() -> None:
    """Many transfers, many datagrams, many wake-ups: else the costs could not be told apart."""
    with own_costs.pair(Engine, EngineConfig(segment_size=SEGMENT)) as engines:
        many, large, turns = own_costs.windows(engines)
    assert many.transfers == 4 * own_costs.MANY and turns.transfers == 2 * own_costs.TURNS
    assert large.datagrams >= 4 * own_costs.LARGE // SEGMENT
    assert turns.wake_ups >= own_costs.TURNS
    assert many.datagrams < large.datagrams / 10 and large.transfers < many.transfers / 10


def refuses(config: EngineConfig, control: socket.socket) -> Engine:
    raise AddressUnavailable("no loopback here")


@pytest.mark.parametrize("make", [Engine, refuses])
def test_what_cannot_be_measured_is_not_kept(
    make: own_costs.MakeEngine,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of the real engine: in no time."""
    monkeypatch.setattr(own_costs, "MOST_TIME", 0.0)
    monkeypatch.setattr(own_costs, "Engine", make)
    monkeypatch.setattr(own_costs, "NICE", 0)
    monkeypatch.setattr(sys, "argv", ["own_costs", str(tmp_path / "costs"), "key"])
    monkeypatch.setenv("DLCPD_ENGINE_CONFIG", EngineConfig().to_json())
    assert own_costs.main() == 1
    assert not list(tmp_path.iterdir())
    assert capsys.readouterr().err.startswith("dlcpd: CPU costs are not measured: ")


def test_no_cost_is_beyond_what_peers_accept(monkeypatch: pytest.MonkeyPatch) -> None:
    dear = Costs(*[MAX_COST + 1] * len(TYPICAL))
    monkeypatch.setattr(own_costs, "fitted", lambda windows, latency: dear)
    assert own_costs.measured(Engine, EngineConfig()) == Costs(*[MAX_COST] * len(TYPICAL))
