"""Commands that are started without stdin, stdout or stderr, as some supervisors do (`>&-`)."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemon.kit import PATIENCE, configuration, environment, until

RUN = 'exec "$@" '  # with the streams that the shell closes


def started(closed: str, *words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        ["/bin/sh", "-c", RUN + closed, "sh", sys.executable, "-m", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-"])
def test_a_daemon_and_a_probe_without_streams_work(tmp_path: Path, closed: str) -> None:
    config = configuration(tmp_path)
    path = str(config.with_suffix(".sock"))
    daemon = started(closed, "dlcpd", "--config", str(config))
    try:
        until(lambda: Path(path).exists() or daemon.poll() is not None, "the daemon is ready")
        for name, command in (("status", ()), ("health", ("--ready",)), ("top", ("--once",))):
            line = (name, "--socket", path, *command)
            probe = started(closed, "dlcpd.ctl.main", *line)
            _, said = probe.communicate(timeout=PATIENCE)
            assert (probe.returncode, said) == (0, ""), name
        streams = [os.readlink(f"/proc/{daemon.pid}/fd/{number}") for number in range(3)]
        assert not [each for each in streams if "socket" in each], "a print would go to a peer"
        daemon.send_signal(signal.SIGTERM)
        daemon.communicate(timeout=PATIENCE)
        assert daemon.returncode == 0
    finally:
        daemon.kill()


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-"])
def test_a_mistake_is_still_an_exit_code(closed: str) -> None:
    probe = started(closed, "dlcpd.ctl.main", "status", "--socket", "/absent")
    _, said = probe.communicate(timeout=PATIENCE)
    assert probe.returncode == 1 and "Traceback" not in said
