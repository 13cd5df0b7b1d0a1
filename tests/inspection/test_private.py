"""Private daemons are found by the paths of their sockets, those of this user alone."""

import argparse
import json
import os
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from dlcp_client.ipc.private_socket import PrivateSocket
from dlcpd.cli.output import Output
from dlcpd.contract.errors import BadConfig, DaemonUnavailable
from dlcpd.ctl.stop import stop
from dlcpd.daemon.config.tables import DaemonTable
from dlcpd.inspection import private
from dlcpd.inspection.private import mine, reach
from dlcpd.inspection.report import query
from tests.client.real import connected, reduce_all


@pytest.fixture
def default(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A default socket where nobody listens."""
    monkeypatch.setattr(DaemonTable, "__init__", lambda self: None)
    monkeypatch.setattr(DaemonTable, "socket", str(tmp_path / "none"), raising=False)
    return str(tmp_path / "none")


@pytest.fixture
def doors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Names of two that listen, as the kernel lists them; other trainings are left out."""
    with PrivateSocket() as one, PrivateSocket() as two:
        names = [door.name for door in (one, two)]
        _only(names, tmp_path, monkeypatch)
        yield names


def _only(names: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = private.SOCKETS.read_text(errors="replace").splitlines()
    (tmp_path / "unix").write_text("\n".join(row for row in rows if row.endswith(tuple(names))))
    monkeypatch.setattr(private, "SOCKETS", tmp_path / "unix")


def test_those_that_listen_are_found_with_who_opened_them(doors: list[str]) -> None:
    assert [(one.name, one.pid) for one in mine()] == [(n, os.getpid()) for n in sorted(doors)]


def test_another_users_are_not(doors: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 4711)
    assert not list(mine())


def test_what_ended_or_has_another_name_or_kind_is_not(
    doors: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    with ExitStack() as undo:
        private = tmp_path / f"dlcp-{'a' * 16}"
        private.mkdir(0o700)
        stream = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        stream.bind(str(private / "daemon"))
        stream.listen()
        other = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET))
        other.bind(str(private / "another"))
        other.listen()
        with PrivateSocket() as gone:
            pass
        names = [str(private / "daemon"), str(private / "another"), gone.name]
        _only(names, tmp_path, monkeypatch)
    assert not list(mine())


def test_one_is_reached_where_the_default_is_silent_and_several_are_named(
    doors: list[str], default: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert reach("/elsewhere/dlcpd.sock") == "/elsewhere/dlcpd.sock"
    with pytest.raises(BadConfig, match="2 private daemons answer: choose one with --socket: /"):
        reach(None)
    assert reach(default) == default  # who names a socket means that one
    (tmp_path / "unix").write_text((tmp_path / "unix").read_text().splitlines()[0])
    assert reach(None) == next(mine()).name
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(default)
        listening.listen()
        assert reach(None) == default


def test_a_private_daemon_says_its_status(
    default: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLCPD_SHARE", "1")
    sessions = connected()  # two ranks of this machine, which share one
    try:
        assert sessions[0].origin is not None
        name = sessions[0].origin.private_socket
        _only([name], tmp_path, monkeypatch)
        report = query(None, 0)
        assert {one["rank"] for one in report["sessions"]} == {0, 1}
        done = subprocess.run(
            [sys.executable, "-m", "dlcpd.ctl.main", "status", "--socket", name],
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == 0 and "2 sessions" in done.stdout
        with pytest.raises(DaemonUnavailable):  # it would end a training that nobody named
            stop(argparse.Namespace(socket=None, wait=60.0), Output(None))
        with pytest.raises(DaemonUnavailable):  # nor does it stand in for one that was named
            query(default, 0)
        assert len(query(name, 0)["sessions"]) == 2
    finally:
        for session in sessions:
            session.close()


def test_a_private_daemon_is_traced_and_serves_metrics(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("prometheus_client", reason="metrics: prometheus-client is missing")
    monkeypatch.setenv("DLCPD_SHARE", "1")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    config = tmp_path / "private.toml"
    config.write_text(
        '[daemon]\ncontrol_address = "127.0.0.1"\n[network]\npaths = [{ address = "127.0.0.1" }]\n'
        f'[metrics]\nlisten = "127.0.0.1:{port}"\n'
    )
    sessions = connected([config, config])
    try:
        assert sessions[0].origin is not None
        name, file = sessions[0].origin.private_socket, tmp_path / "trace.json"
        words = ["trace", "--socket", name, "--steps", "2", "--timeout", "60", "-o", str(file)]
        with subprocess.Popen([sys.executable, "-m", "dlcpd.ctl.main", *words]) as tracing:
            while tracing.poll() is None:
                reduce_all(sessions)
        assert tracing.returncode == 0
        rows = json.loads(file.read_text())["traceEvents"]
        assert {"step 1", "step 2"} <= {row["name"] for row in rows}
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as page:
            assert b"dlcpd_session_operations_submitted_total{" in page.read()
    finally:
        for session in sessions:
            session.close()
