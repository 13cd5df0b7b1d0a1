"""What reaches a terminal: text of jobs, hosts and peers, shown and never obeyed."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dlcpd.contract.errors import Peer, error_for
from dlcpd.contract.messages import Failed, Join, Joined, PeerRow
from dlcpd.io import commands
from dlcpd.io.config import EngineConfig
from tests.checks import Measured
from tests.daemon.kit import ARENA, PATIENCE, Client, Daemon, configuration, environment, until
from tests.io.engines import Job

CONTROLS = {*range(0x20), *range(0x7F, 0xA0), 0x202E, 0x2028} - {ord("\n")}
HOSTILE = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\r\b\t\0\n0 sessions\u202e\u2028\u00e9"
ALLOWED = frozenset(range(0x20, 0x7F)) | {ord("\n")}


def dlcpctl(*arguments: str) -> bytes:
    """What it wrote, to stdout and to stderr."""
    done = subprocess.run(
        [sys.executable, "-m", "dlcpd.ctl.main", *arguments],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=60,
        check=False,
    )
    return done.stdout


@contextmanager
def hostile_daemon(folder: Path, name: str, style: str) -> Iterator[Daemon]:
    """It hears hostile names, but refuses one of its own; it logs all that there is."""
    config = configuration(folder, host=name)
    text = config.read_text()
    config.write_text(text.replace('log_format = "json"', f'log_format = "{style}"'))
    daemon = Daemon(config)
    until(lambda: "ready" in daemon.text, "it starts")
    try:
        yield daemon
    finally:
        daemon.process.terminate()
        daemon.wait()
        assert daemon.process.stderr
        daemon.process.stderr.close()


def join(clients: list[Client]) -> None:
    """A session on each; job and hosts have hostile names."""
    welcomes = [client.greet() for client in clients]
    peers = [PeerRow(rank, HOSTILE, w.endpoint, w.public_key) for rank, w in enumerate(welcomes)]
    for rank, client in enumerate(clients):
        client.send(Join(HOSTILE, rank, len(clients), ARENA, PATIENCE, peers))
    for client in clients:
        client.expect(Joined)


@pytest.mark.check(13, "nothing that dlcpctl or a log line says obeys a hostile name")
@pytest.mark.parametrize("style", ["json", "logfmt"])
def test_hostile_names_reach_no_terminal(tmp_path: Path, style: str, measured: Measured) -> None:
    with (
        hostile_daemon(tmp_path, "one", style) as one,
        hostile_daemon(tmp_path, "two", style) as two,
        one.client() as a,
        two.client() as b,
    ):
        join([a, b])
        b.emit("SessionFailed", rank=0, code="peer_lost", text=HOSTILE)
        until(lambda: "peer_gone" in one.text, "its goodbye came")
        a.emit("SessionFailed", rank=1, code="peer_lost", text=HOSTILE)
        until(lambda: "session_broken" in one.text, "it is broken here too")
        said = [
            dlcpctl(*command, *where, *form)
            for command in (["status", "--ledger", "9"], ["peers"])
            for where in (
                ["--socket", str(one.socket)],
                ["--socket", f"/{HOSTILE}".replace("\0", "")],
            )
            for form in ([], ["--json", "-"])
        ]
    logs = [one.text.encode(), two.text.encode()]
    for text in (*said, *logs):
        assert b"owned" in text, text
        assert not set(text) - ALLOWED, text
    tables = [text for text in said if not text.startswith(b"dlcpctl: ")]
    assert len(tables) == 4
    assert not re.search(rb"^0 sessions", b"\n".join(tables), re.MULTILINE)
    measured(f"{sum(map(len, said))} B of dlcpctl and {sum(map(len, logs))} B of {style} log")


def texts_in(value: Any) -> Iterator[str]:
    """All texts of a tree."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from texts_in([*value.keys(), *value.values()])
    elif isinstance(value, list | tuple):
        for each in value:
            yield from texts_in(each)


def harmless(value: Any) -> int:
    """How many texts of a tree quote HOSTILE; none has a control character but newline."""
    quotes = 0
    for text in texts_in(value):
        assert not {*map(ord, text)} & CONTROLS, ascii(text)
        quotes += "owned" in text
    return quotes


@pytest.mark.check(
    119, "no word of a peer, client or host has a control character where it is used"
)
def test_no_control_character_of_a_peer_reaches_an_engine(
    tmp_path: Path, measured: Measured
) -> None:
    """Control cleans what comes in, so that the engine, the trainer's errors and the metrics'
    labels have nothing to clean."""
    with (
        hostile_daemon(tmp_path, "one", "json") as one,
        hostile_daemon(tmp_path, "two", "json") as two,
        one.client() as a,
        two.client() as b,
    ):
        join([a, b])
        seen = harmless(a.command("OpenSession"))
        failed = [[0, 1, [0], "deadline_exceeded", HOSTILE]]
        b.emit("OperationsFailed", failures=failed)
        seen += harmless(a.command("AbortOperations"))
        b.emit("SessionFailed", rank=0, code="peer_lost", text=HOSTILE)
        seen += harmless(a.command("PeerGone"))
        assert seen == 3
        measured(f"{seen + harmless(a.status(9)['sessions'])} hostile texts, none of them obeyed")


@pytest.mark.check(
    119, "no word of a peer, client or host has a control character where it is used"
)
def test_no_control_character_of_a_peer_reaches_a_trainer() -> None:
    """The last words of a peer and the name that the client gave, in the error of an operation."""

    def configure(rank: int) -> EngineConfig:
        return EngineConfig(host=HOSTILE.replace("\0", ""), paths=(("127.0.0.1", 0),))

    job = Job(2, configure)
    try:
        job.ranks[0].submit(1, name=HOSTILE)
        job.engines[0].send(commands.PeerGone(1, 1, HOSTILE))
        failed = job.ranks[0].outcome(1)
        assert isinstance(failed, Failed)
        peer = Peer(failed.rank, failed.host, failed.address, failed.awaiting)
        error = error_for(failed.code, failed.text, peer)
        assert harmless([str(error), *error.args, *error.peer[1:]])
    finally:
        job.close()
