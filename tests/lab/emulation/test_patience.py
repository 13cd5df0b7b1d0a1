"""Waits follow the load of the machine."""

import os

import pytest

from dlcp_lab.emulation import patience as module
from dlcp_lab.emulation.patience import HIGHEST, MOST, PEER_TIMEOUT, patience, peer_timeout
from dlcp_lab.ranks.hosts import network_table
from dlcpd.daemon.config.tables import NetworkTable


def loaded(monkeypatch: pytest.MonkeyPatch, runnable: float, cpus: int = 2) -> None:
    monkeypatch.setattr(os, "getloadavg", lambda: (runnable, 0.0, 0.0))
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(cpus)))


@pytest.mark.parametrize(
    ("runnable", "expected"), [(0.0, 10.0), (2.0, 10.0), (4.0, 20.0), (15.0, 75.0), (1e6, 200.0)]
)
def test_a_wait_is_longer_by_the_runnable_processes_per_cpu(
    runnable: float, expected: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded(monkeypatch, runnable)
    assert patience(10.0) == pytest.approx(expected)
    assert expected <= 10.0 * MOST


def test_where_the_load_is_unknown_the_machine_counts_as_idle(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def unknown() -> None:
        raise OSError

    monkeypatch.setattr(os, "getloadavg", unknown)
    assert module.patience(10.0) == 10.0


def test_the_peer_timeout_of_an_idle_machine_is_the_daemons(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    loaded(monkeypatch, 0.0)
    assert peer_timeout() == PEER_TIMEOUT == NetworkTable().peer_timeout
    loaded(monkeypatch, 15.0)
    assert peer_timeout() == 225.0
    assert peer_timeout(1.0) == 7.5
    loaded(monkeypatch, 1e6)
    assert peer_timeout(HIGHEST) == HIGHEST


def test_a_setting_of_the_user_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    loaded(monkeypatch, 15.0)
    assert network_table([]).peer_timeout == 225.0
    assert network_table(["peer_timeout = 2.5"]).peer_timeout == 2.5
