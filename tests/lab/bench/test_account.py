"""What an operation costs: counted by process, per operation and host."""

import os
import time
from typing import Any

import pytest

from dlcp_lab.bench.account import costs, lines
from dlcp_lab.bench.meter import SystemCalls, Usage

NOTHING = {"user": 0.0, "system": 0.0, "waited": 0, "displaced": 0, "system_calls": 0}


def host(calls: int | None = 40, **effort: int) -> dict[str, Any]:
    engine = {"user": 0.2, "system": 0.1, "waited": 20, "displaced": 4, "system_calls": calls}
    trainer = {"user": 0.1, "system": 0.0, "waited": 10, "displaced": 0, "system_calls": calls}
    return {
        "processes": {"engine": engine, "control": NOTHING, "trainer": trainer},
        "effort": effort,
        "python_calls": 500,
    }


def account(*hosts: dict[str, Any]) -> list[Any]:
    seen = [[{"dlcpd": each}] for each in hosts]
    counted = [[{"dlcpd": host(python_calls=3000)}] for _ in hosts]
    return list(costs([10**9], 10, seen, counted))


def test_counts_are_per_operation_and_means_over_hosts() -> None:
    engine, control, trainer = account(host(wakes=30, READY=10), host(wakes=10))
    assert (engine.process, control.process, trainer.process) == ("engine", "control", "trainer")
    assert engine.user == pytest.approx(0.02)
    assert engine.per_gigabyte == pytest.approx(0.03)
    assert (engine.waited, engine.displaced, engine.system_calls) == (2.0, 0.4, 4.0)
    assert engine.effort == {"wakes": 2.0, "READY": 0.5}
    assert (engine.python_calls, control.python_calls, trainer.python_calls) == (300, None, 50)
    assert not trainer.effort


def test_what_one_host_could_not_count_is_unknown() -> None:
    engine, *_ = account(host(), host(calls=None))
    assert engine.system_calls is None
    assert "-" in "\n".join(lines([engine])).split()


def test_idle_processes_are_left_out_of_the_table() -> None:
    text = "\n".join(lines(account(host(wakes=30, READY=10))))
    assert "control" not in text
    assert "engine, 1000000000: READY 1.00, wakes 3.00" in text
    assert not list(lines([]))


def test_usage_is_that_of_a_process_with_its_threads() -> None:
    before = Usage.of(os.getpid())
    until = time.process_time() + 0.1
    while time.process_time() < until:
        pass
    time.sleep(0.001)
    used = Usage.of(os.getpid()).since(before)
    assert used.user + used.system >= 0.05  # the kernel counts ticks of 10 ms
    assert used.waited >= 1


def test_system_calls_are_counted_or_unknown() -> None:
    counting = SystemCalls(os.getpid())
    time.sleep(0.5)
    for _ in range(1000):
        os.getppid()
    counted = counting.stop()
    assert counted is None or counted >= 1000
