"""What is interrupted in the middle: a drain, a daemon that is scraped, an engine that is stopped.

Each has one clear answer, and no job ends that nobody asked to end.
"""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from dlcpd.ctl.main import main as dlcpctl
from tests.daemon.kit import PATIENCE, Client, Daemon, configuration, environment, join_all
from tests.daemon.test_metrics import LISTEN, port_of
from tests.daemon.test_versions import NEXT

Capture = pytest.CaptureFixture[str]


@contextmanager
def training(config: Path) -> Iterator[tuple[Daemon, Client]]:
    """A daemon with the job "train" of two ranks, and the client of the first."""
    with Daemon(config) as daemon, daemon.client() as one, daemon.client() as two:
        join_all([one, two], "train")
        yield daemon, one


def draining(daemon: Daemon) -> "subprocess.Popen[str]":
    """A `dlcpctl drain` that waits for a job."""
    made = subprocess.Popen(
        [sys.executable, "-m", "dlcpd.ctl.main", "drain", "--socket", str(daemon.socket)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment() | {"PYTHONUNBUFFERED": "1"},
    )
    assert made.stdout
    assert "cordoned (draining)" in made.stdout.readline()
    assert "still running: train (2 ranks)" in made.stdout.readline()
    return made


def test_a_drain_that_is_interrupted_ends_no_job_and_leaves_the_cordon(
    tmp_path: Path, capsys: Capture
) -> None:
    with training(configuration(tmp_path)) as (daemon, one):
        command = draining(daemon)
        command.send_signal(signal.SIGINT)
        _, said = command.communicate(timeout=PATIENCE)
        assert (command.returncode, said.count("\n")) == (130, 1) and "interrupted" in said
        assert dlcpctl(["health", "--ready", "--socket", str(daemon.socket)]) == 1
        assert "cordoned (draining)" in capsys.readouterr().out
        assert len(one.status()["sessions"]) == 2
        assert dlcpctl(["uncordon", "--socket", str(daemon.socket)]) == 0
        assert one.health().ready


def test_a_daemon_that_is_replaced_in_a_drain_is_said_and_the_next_version_is_cordoned(
    tmp_path: Path,
) -> None:
    config = configuration(tmp_path)
    with training(config) as (daemon, _):
        command = draining(daemon)
        daemon.signal(signal.SIGTERM)
        assert daemon.wait() == 0
        _, said = command.communicate(timeout=PATIENCE)
        assert command.returncode == 1 and said.count("\n") == 1
        assert "dlcpd on host-a was stopped" in said or "no daemon answers" in said
    with Daemon(config, mode="", runner=NEXT) as upgraded, upgraded.client() as client:
        health = client.health()
        assert (health.healthy, health.ready, health.text) == (True, False, "cordoned (draining)")


def test_a_daemon_ends_though_a_scrape_is_open_and_the_next_scrape_is_refused(
    tmp_path: Path,
) -> None:
    with Daemon(configuration(tmp_path, more=LISTEN)) as daemon:
        port = port_of(daemon)
        with socket.create_connection(("127.0.0.1", port), PATIENCE) as scrape:
            scrape.sendall(b"GET /metrics HTTP/1.1\r\n")  # its last line does not come
            daemon.signal(signal.SIGTERM)
            assert daemon.wait() == 0
            assert scrape.recv(1) == b""
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", port), PATIENCE)


def test_health_of_a_daemon_whose_engine_is_stopped_ends_no_job(
    tmp_path: Path, capsys: Capture
) -> None:
    with training(configuration(tmp_path)) as (daemon, one):
        engine = daemon.engine_pid
        os.kill(engine, signal.SIGSTOP)
        try:
            assert dlcpctl(["health", "--socket", str(daemon.socket)]) == 0
            assert dlcpctl(["status", "--socket", str(daemon.socket)]) == 0
            assert "ENGINE: " in capsys.readouterr().out
        finally:
            os.kill(engine, signal.SIGCONT)
        assert len(one.status()["sessions"]) == 2 and daemon.engine_pid == engine
