"""Connections of strangers that say nothing: others get their answers, and control has rest."""

import contextlib
import resource
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.attack.resources import MB, Memory, cpu_seconds
from tests.checks import Measured
from tests.daemon.kit import PATIENCE, Client, Daemon, configuration, environment

pytestmark = pytest.mark.executed  # their memory is measured

LOCAL = 1000
REMOTE = 20_000
RESERVE = 300  # descriptors of this process that are for something else
SPIN = 0.5  # of a CPU that control may use while nobody does anything
WATCHED = 3.0  # seconds of that


def local(daemon: Daemon, number: int, stack: ExitStack) -> None:
    """Connect to the session socket, and say nothing."""
    for _ in range(number):
        stack.enter_context(Client.connect(daemon.socket))


def remote(daemon: Daemon, number: int, stack: ExitStack) -> int:
    """Connect to the control port, and say nothing; how many did."""
    address, _, port = daemon.wait_for("ready")["control"].removeprefix("tcp://").partition(":")
    done = 0
    for _ in range(number):
        with contextlib.suppress(TimeoutError):  # no room for it just now
            sock = socket.create_connection((address, int(port)), PATIENCE)
            stack.enter_context(sock)
            done += 1
    return done


def answer_time(daemon: Daemon) -> float:
    """Seconds that `dlcpctl status` takes, its start included."""
    began = time.monotonic()
    subprocess.run(
        [sys.executable, "-m", "dlcpd.ctl.main", "status", "--socket", str(daemon.socket)],
        env=environment(),
        check=True,
        capture_output=True,
        timeout=PATIENCE,
    )
    return time.monotonic() - began


def idle_use(daemon: Daemon) -> float:
    """Part of a CPU that control uses now."""
    before, began = cpu_seconds(daemon.process.pid), time.monotonic()
    time.sleep(WATCHED)
    return (cpu_seconds(daemon.process.pid) - before) / (time.monotonic() - began)


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


@pytest.fixture
def many_descriptors() -> Iterator[int]:
    """This process may have as many as it can; how many."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.check(12, "idle connections, local and remote: dlcpctl status is answered, no spin")
def test_idle_connections_lock_nobody_out(
    tmp_path: Path, stack: ExitStack, many_descriptors: int, measured: Measured
) -> None:
    strangers = min(REMOTE, many_descriptors - LOCAL - RESERVE)
    with Daemon(configuration(tmp_path)) as daemon:
        memory, quiet = Memory(daemon.process.pid), answer_time(daemon)
        local(daemon, LOCAL, stack)
        there = remote(daemon, strangers, stack)
        took = answer_time(daemon)
        use = idle_use(daemon)
        assert use < SPIN
        assert there > 0.99 * strangers
        assert took < PATIENCE
        grown = memory.growth
        assert grown < 100 * MB
    measured(
        f"{LOCAL} local and {there} TCP: {took:.2f} s ({quiet:.2f} s without them), then "
        f"{100 * use:.0f} % of a CPU, +{grown / MB:.0f} MB"
    )


@pytest.mark.check(12, "the same with 300 descriptors for control, 400 TCP strangers")
@pytest.mark.parametrize("limited", ["from its start", "later"])
def test_few_descriptors_are_not_used_up(
    tmp_path: Path, stack: ExitStack, limited: str, measured: Measured
) -> None:
    """Lowered later, the limit is none that control knows of: it runs out, and makes room."""
    daemon = Daemon(configuration(tmp_path))
    if limited == "from its start":
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (300, 300))
    with daemon:
        resource.prlimit(daemon.process.pid, resource.RLIMIT_NOFILE, (300, 300))
        remote(daemon, 400, stack)
        local(daemon, 100, stack)
        took, use = answer_time(daemon), idle_use(daemon)
        assert use < SPIN
        failed = [e for e in daemon.events if e["event"].endswith("accept_failed")]
        assert not failed or limited == "later"
    measured(f"limited {limited}: {took:.2f} s, then {100 * use:.0f} % of a CPU")
