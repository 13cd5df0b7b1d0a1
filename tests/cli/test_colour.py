"""Colours: in a terminal that wants them, and nowhere else."""

import os
import pty
from collections.abc import Iterator
from typing import TextIO

import pytest

from dlcpd.cli.colour import by_alarm, by_verdict, wanted
from dlcpd.cli.output import Output

RED, YELLOW, PLAIN = "\x1b[1;31m", "\x1b[33m", "\x1b[0m"


@pytest.fixture
def terminal() -> Iterator[TextIO]:
    """Its other end is read by `said`."""
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream, os.fdopen(ours, "rb"):
        yield stream


@pytest.mark.parametrize(
    ("environ", "coloured"),
    [
        ({"TERM": "xterm"}, True),
        ({"TERM": "xterm", "NO_COLOR": ""}, True),
        ({"TERM": "xterm", "NO_COLOR": "1"}, False),
        ({"TERM": "dumb"}, False),
        ({}, False),
    ],
)
def test_the_user_decides(environ: dict[str, str], coloured: bool, terminal: TextIO) -> None:
    assert wanted(terminal, environ) is coloured


def test_a_file_or_a_pipe_gets_none(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    Output(None).line("BROKEN: train, rank 0: gone", by_alarm)
    assert capsys.readouterr().out == "BROKEN: train, rank 0: gone\n"


def test_in_a_terminal_a_line_is_coloured_and_its_text_is_still_escaped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    ours, theirs = pty.openpty()
    with os.fdopen(theirs, "w") as stream, os.fdopen(ours, "rb", 0) as screen:
        monkeypatch.setattr("sys.stdout", stream)
        Output(None).line("well\nBROKEN: a\x1b[2J", by_alarm)
        said = screen.read(200).decode()
    assert said == f"well\r\n{RED}BROKEN: a\\x1b[2J{PLAIN}\r\n"


@pytest.mark.parametrize(
    "line",
    [
        "BROKEN: train, rank 0: a peer is lost",
        "ENGINE: the engine did not answer within 3 s",
        "  rank 0 is broken: a peer is lost",
        "  rank 0: rank 1 on beta is SUSPECTED: silent for 3.0 s; it may be paused",
        "  rank 0: path 1 to rank 1 on beta is down",
        "train     0      2  broken       12",
        "train  1  beta  0  down  0.00",
    ],
)
def test_what_does_not_work_is_red(line: str) -> None:
    assert by_alarm(line) == f"{RED}{line}{PLAIN}"


@pytest.mark.parametrize(
    "line",
    [
        "LATE: train, rank 0 waits for rank 1 on beta for 3.0 s: rank(s) 1 to submit",
        "PATH: train, rank 0: path 1 to rank 1 is gray",
        "  rank 0 waits for rank 1 on beta (10.0.0.2:7412, heard 0.1 s ago) for 3.0 s: it",
        "3 settings wait for a restart: daemon.host",
        "train  1  beta  0  gray",
    ],
)
def test_what_works_less_well_is_yellow(line: str) -> None:
    assert by_alarm(line) == f"{YELLOW}{line}{PLAIN}"


@pytest.mark.parametrize("line", ["", "host-a: dlcpd 0.1.0, serving for 3 s", "broken  0  2  open"])
def test_all_else_is_plain(line: str) -> None:
    assert by_alarm(line) == by_verdict(line) == line


def test_a_verdict_is_coloured_and_its_row_is_not() -> None:
    assert by_verdict("fail  daemon  silent") == f"{RED}fail{PLAIN}  daemon  silent"
    assert by_verdict("warn  clock   late") == f"{YELLOW}warn{PLAIN}  clock   late"
    assert by_verdict("pass  clock   right") == "pass  clock   right"
