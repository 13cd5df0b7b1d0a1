"""`dlcpctl stop` on a real daemon, and where the process is none."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from dlcpd.contract.errors import DaemonUnavailable
from dlcpd.contract.inquiries import Status
from dlcpd.ctl import main as command
from dlcpd.ctl import stop
from tests.ctl.test_sessions import report
from tests.ctl.test_status import WELCOME, Answering

ROOT: Final = Path(__file__).parents[2]
PATIENCE: Final = 60.0  # seconds until a test fails; never waited for


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator["subprocess.Popen[bytes]"]:
    """One that listens at `s` in the folder of the test."""
    file = tmp_path / "dlcpd.toml"
    file.write_text(
        f'[daemon]\nsocket = "{tmp_path / "s"}"\ncontrol_address = "127.0.0.1"\n'
        '[network]\npaths = [{ address = "127.0.0.1" }]\n'
    )
    line = [sys.executable, "-m", "dlcpd", "--config", str(file)]
    process = subprocess.Popen(line, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        until = time.monotonic() + PATIENCE
        while not (tmp_path / "s").exists():
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.05)
        yield process
    finally:
        process.kill()
        process.wait(PATIENCE)


def test_a_daemon_ends(
    daemon: "subprocess.Popen[bytes]", tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["stop", "--socket", str(tmp_path / "s")]) == 0
    said = capsys.readouterr().out.splitlines()
    assert "asked to end; open: no operation of 0 sessions" in said[0]
    assert said[-1].endswith("dlcpd has ended")
    assert daemon.wait(PATIENCE) == 0
    assert not (tmp_path / "s").exists()


def test_a_daemon_that_does_not_end_in_time_is_exit_code_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    deaf = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(flush=True)"
    line = [sys.executable, "-c", f"{deaf}; time.sleep(60)", "dlcpd"]
    with subprocess.Popen(line, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        known = report() | {"pid": process.pid}
        try:
            with Answering(tmp_path / "s", WELCOME, Status.of(known)) as fake:
                assert command.main(["stop", "--socket", fake.path, "--wait", "1"]) == 1
        finally:
            process.kill()
    said = capsys.readouterr().out
    assert "open: train rank 0 (2 open)" in said
    assert "has not ended within 1 s" in said


def test_only_a_dlcpd_is_ended() -> None:
    with subprocess.Popen(["sleep", "60"]) as other:
        try:
            for pid in (other.pid, (1 << 22) + 1):  # above the largest there can be
                with pytest.raises(DaemonUnavailable, match="is not dlcpd here"):
                    stop._checked({"pid": pid})  # noqa: SLF001  # no signal must leave here
        finally:
            other.kill()


def test_an_older_daemon_is_left_alone() -> None:
    older: dict[str, Any] = {"version": "0.0.9"}
    with pytest.raises(DaemonUnavailable, match="systemctl stop dlcpd"):
        stop._checked(older)  # noqa: SLF001
