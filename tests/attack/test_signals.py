"""No signal but SIGKILL ends a private daemon or its engines before its trainers end."""

import os
import signal
import time
from collections.abc import Iterator

import psutil
import pytest

from dlcp_client.ipc.embedded import Embedded, start
from dlcp_client.ipc.handshake import ControlConnection

CHECK = 124
# All of Linux, those of the C library (32 and 33) among them; SIGSTOP stops and ends nothing.
SIGNALS = sorted(set(range(1, 65)) - {signal.SIGKILL, signal.SIGSTOP})
PATIENCE = 60.0  # seconds until a test fails


@pytest.fixture
def private() -> Iterator[tuple[Embedded, ControlConnection]]:
    daemon, control = start(None, "localhost")
    try:
        yield daemon, control
    finally:
        control.close()
        daemon.close()


def family(daemon: Embedded) -> list[psutil.Process]:
    process = psutil.Process(daemon.pid)
    return [process, *process.children(recursive=True)]


@pytest.mark.check(CHECK, "every signal to a private daemon and its engines: they live and serve")
def test_every_signal(private: tuple[Embedded, ControlConnection]) -> None:
    daemon, control = private
    control.hello(PATIENCE)
    members = family(daemon)
    assert len(members) == 2
    for number in SIGNALS:
        for member in members:
            os.kill(member.pid, number)
    answered = control.report(PATIENCE)["engine"]
    assert "error" not in answered, "the engine answers"
    assert family(daemon) == members
    assert not {member.status() for member in members} & {"stopped", "zombie"}


@pytest.mark.check(CHECK, "a signal while a private daemon starts: it starts")
def test_a_signal_at_the_start(private: tuple[Embedded, ControlConnection]) -> None:
    daemon, control = private
    process = psutil.Process(daemon.pid)
    until = time.monotonic() + PATIENCE
    engines: list[psutil.Process] = []
    while not engines:  # on a busy machine, it may have one before the first signal
        assert process.is_running() and time.monotonic() < until
        os.kill(process.pid, signal.SIGTERM)
        time.sleep(0.001)
        engines = process.children()
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGXCPU, 64):
        os.kill(engines[0].pid, number)  # which has begun to start
    control.hello(PATIENCE)
    assert family(daemon) == [process, *engines]


@pytest.mark.check(CHECK, "the end of its last trainer ends a private daemon and its engines")
def test_the_end_of_the_trainer() -> None:
    daemon, control = start(None, "localhost")
    control.hello(PATIENCE)
    members = family(daemon)
    control.close()
    gone, alive = psutil.wait_procs(members, timeout=PATIENCE)
    daemon.close()
    assert len(gone) == 2 and not alive
