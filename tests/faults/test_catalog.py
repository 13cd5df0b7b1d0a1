"""The catalog of faults: each has an injection, which asks for process ids when it begins."""

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlcp_lab.faults.catalog import Victim, make
from dlcp_lab.faults.injections import Disturb, Pause, Silence
from dlcp_lab.faults.kinds import Fault


class Job:
    """Ranks whose processes have numbers that tell them apart."""

    trainers = (SimpleNamespace(pid=10), SimpleNamespace(pid=11), SimpleNamespace(pid=12))

    def __init__(self) -> None:
        self.asked = 0

    def control(self, rank: int) -> int:
        self.asked += 1
        return 20 + rank

    def engine(self, rank: int) -> int:
        self.asked += 1
        return 30 + rank


def cluster(folder: Path) -> Any:
    relay = SimpleNamespace(held=0, add=lambda _: None, remove=lambda _: None)
    return SimpleNamespace(
        relay=relay, network=SimpleNamespace(hosts=3), clock=lambda host: folder / f"clock{host}"
    )


@pytest.mark.parametrize("fault", Fault)
def test_every_fault_has_an_injection_that_asks_late(fault: Fault, tmp_path: Path) -> None:
    job = Job()
    injection = make(fault, cluster(tmp_path), job, 1)
    assert injection.fired == 0
    assert job.asked == 0


@pytest.mark.parametrize(
    ("fault", "kind", "pids"),
    [
        (Fault.PAUSE_TRAINER, Pause, [11]),
        (Fault.PAUSE_DAEMON_2, Pause, [21]),
        (Fault.PAUSE_ENGINE, Silence, [31]),
        (Fault.PAUSE_HOST_10, Silence, [11, 21, 31]),
    ],
)
def test_a_host_without_its_engine_is_silent(
    fault: Fault, kind: type, pids: list[int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped: list[int] = []
    monkeypatch.setattr(os, "kill", lambda pid, _: stopped.append(pid))
    injection = make(fault, cluster(tmp_path), Job(), 1)
    assert isinstance(injection, kind)
    injection.begin()
    assert stopped == pids
    assert injection.fired == len(pids)


def test_faults_of_the_network_need_no_process(tmp_path: Path) -> None:
    assert isinstance(make(Fault.PARTITION, cluster(tmp_path), Job(), 1), Disturb)


def test_a_victim_has_its_own_processes() -> None:
    its = Victim(Job(), 2)
    assert (its.trainer(), its.control(), its.engine()) == (12, 22, 32)
