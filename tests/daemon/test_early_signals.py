"""Signals to a daemon that imports its modules, starts its engines, or gets very many of them."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from dlcpd.daemon.reload_signal import REST
from tests.daemon.kit import PATIENCE, ROOT, Daemon, configuration, environment, until

# Takes the place of an installed package, and is imported for as long as the test wants.
SLOW = """
import pathlib, time
here = pathlib.Path(__file__).parent
(here / "begun").touch()
while not (here / "go").exists():
    time.sleep(0.01)
raise ModuleNotFoundError("No module named 'uvloop'", name="uvloop")
"""


class Importing:
    """A process that imports `uvloop`; `go` lets it go on."""

    def __init__(self, folder: Path, *command: str) -> None:
        (folder / "slow-1.dist-info").mkdir()
        (folder / "uvloop.py").write_text(SLOW)
        path = os.pathsep.join([str(folder), environment()["PYTHONPATH"]])
        self._folder = folder
        self.process = subprocess.Popen(
            [sys.executable, *command],
            env={**environment(), "PYTHONPATH": path},
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
        )

    def go(self) -> None:
        (self._folder / "go").touch()

    def end(self) -> tuple[int, str]:
        """Exit code, and what it has written to stderr."""
        _, said = self.process.communicate(timeout=PATIENCE)
        return self.process.returncode, said


@pytest.fixture
def importing(tmp_path: Path) -> Iterator[Callable[..., Importing]]:
    made: list[Importing] = []

    def start(*command: str) -> Importing:
        made.append(Importing(tmp_path, *command))
        until((tmp_path / "begun").exists, "it imports")
        return made[-1]

    yield start
    for each in made:
        if each.process.poll() is None:
            each.process.kill()
            each.end()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_daemon_that_imports_ends_without_a_traceback(
    importing: Callable[..., Importing], tmp_path: Path, number: signal.Signals
) -> None:
    daemon = importing("-m", "dlcpd", "--config", str(configuration(tmp_path)))
    daemon.process.send_signal(number)
    daemon.go()
    assert daemon.end() == (0, "")
    assert not (tmp_path / "host-a.sock.lock").exists()


def test_a_reload_of_a_daemon_that_imports_is_carried_out(
    importing: Callable[..., Importing], tmp_path: Path
) -> None:
    daemon = importing("-m", "dlcpd", "--config", str(configuration(tmp_path)))
    for _ in range(3):
        daemon.process.send_signal(signal.SIGHUP)
    daemon.go()
    assert daemon.process.stderr
    events = []
    for line in daemon.process.stderr:
        events.append(line)
        if '"reloaded"' in line:
            break
    assert '"ready"' in "".join(events)
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.end()[0] == 0


def test_a_daemon_that_waits_for_its_file_can_be_ended(
    importing: Callable[..., Importing], tmp_path: Path
) -> None:
    os.mkfifo(tmp_path / "pipe")
    daemon = importing("-m", "dlcpd", "--config", str(tmp_path / "pipe"))
    daemon.go()
    writing = os.open(tmp_path / "pipe", os.O_WRONLY)
    until(lambda: is_blocked(daemon.process.pid), "it reads")
    daemon.process.send_signal(signal.SIGTERM)
    assert daemon.end() == (0, "")
    os.close(writing)


def is_blocked(pid: int) -> bool:
    """Whether a process stays in one system call: Python runs no handler for a signal that comes
    just before it."""
    file = Path(f"/proc/{pid}/syscall")
    before = file.read_text()
    time.sleep(0.2)
    return before == file.read_text() and "running" not in before


def test_a_command_that_imports_is_ended_by_the_terminal_without_a_traceback(
    importing: Callable[..., Importing],
) -> None:
    command = importing("-c", "from dlcpd import starter; starter._command('uvloop')")
    command.process.send_signal(signal.SIGINT)
    assert command.end() == (-signal.SIGINT, "")


def test_a_daemon_whose_engine_is_not_ready_ends_at_once(tmp_path: Path) -> None:
    daemon = Daemon(configuration(tmp_path), mode="silent")
    children = Path(f"/proc/{daemon.process.pid}/task/{daemon.process.pid}/children")
    until(children.read_text, "the engine is starting, and the signal has a handler")
    daemon.signal(signal.SIGTERM)
    assert daemon.wait() == 0
    assert [event["event"] for event in daemon.events] == ["signal", "stopped"]
    assert not list(tmp_path.glob("*.sock*"))
    daemon.__exit__()  # looks for bugs


def test_a_storm_of_reloads_is_few_reloads(tmp_path: Path) -> None:
    with Daemon(configuration(tmp_path)) as daemon:
        began = time.monotonic()
        for _ in range(300):
            daemon.signal(signal.SIGHUP)
            time.sleep(0.002)
        until(lambda: daemon.text.count('"reloaded"') > 1, "the first and the last are carried out")
        took = time.monotonic() - began
        with daemon.client() as client:
            client.greet()
        assert daemon.text.count('"reloaded"') <= took / REST + 2
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 0


def test_a_storm_of_reloads_of_a_daemon_that_ends_is_a_line(tmp_path: Path) -> None:
    drain = configuration(tmp_path, daemon="drain_timeout = 3600.0")
    with Daemon(drain, mode="stubborn") as daemon:
        daemon.signal(signal.SIGTERM)
        daemon.wait_for("signal")
        for _ in range(100):
            daemon.signal(signal.SIGHUP)
            time.sleep(0.002)
        assert daemon.wait() == 0
        assert daemon.text.count('"reload_ignored"') == 1
