"""A forked program starts, runs and ends as one that is executed."""

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

import pytest

from tests.starts.forking import FORKING
from tests.starts.images import DAEMON, RANK, image_of

PROGRAM: Final = str(Path(__file__).with_name("surroundings.py"))
PATIENCE: Final = 60.0  # seconds


def started(*words: str, end: str = "0", text: str = "", **options: Any) -> Any:
    """What the program said; its output to stderr without places in files; its exit status."""
    done = subprocess.run(
        [sys.executable, *words, PROGRAM, end, "a word"],
        input=text,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
        **options,
    )
    told = json.loads(done.stdout)
    lines = [line for line in done.stderr.splitlines() if not line.startswith(" ")]
    return told["forked"], told["said"], lines, done.returncode


def both(monkeypatch: pytest.MonkeyPatch, **options: Any) -> tuple[Any, Any]:
    """What `started` returns of a fork, and of an execution."""
    forked, *ours = started(**options)
    monkeypatch.setattr(FORKING, "enabled", False)
    executed, *theirs = started(**options)
    assert (forked, executed) == (True, False)
    return ours, theirs


@pytest.mark.parametrize("end", ["0", "7", "300", "", "words", "raise", "signal", "interrupt"])
def test_it_ends_as_an_execution(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = both(monkeypatch, end=end)
    assert ours[1:] == theirs[1:]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"text": "a line\n"},
        {"env": {**os.environ, "A": "1", "B": "=é"}},
        {"cwd": "/"},
        {"start_new_session": True},
        {"process_group": 0},
        {"umask": 0o77},
        {"restore_signals": False},
        {"env": {**os.environ, "PYTHONPATH": "/a:/b"}},
    ],
    ids=" ".join,
)
def test_it_starts_as_an_execution(options: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = both(monkeypatch, **options)
    assert ours == theirs
    assert ours[0]["parent"] == os.getpid()


def test_it_has_the_descriptors_that_it_is_given_and_no_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with tempfile.TemporaryFile() as one, tempfile.TemporaryFile() as two:
        os.dup2(two.fileno(), 200)
        given = [one.fileno(), 200]
        (ours, *_), (theirs, *_) = both(monkeypatch, pass_fds=given)
        os.close(200)
    assert ours["descriptors"] == theirs["descriptors"] == [0, 1, 2, *given]


def test_it_inherits_blocked_and_ignored_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    handler = signal.signal(signal.SIGUSR2, signal.SIG_IGN)
    try:
        (ours, *_), (theirs, *_) = both(monkeypatch)
    finally:
        signal.signal(signal.SIGUSR2, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
    assert ours["signals"] == theirs["signals"]
    assert ours["signals"][0] & 1 << (signal.SIGUSR1 - 1)
    assert ours["signals"][1] & 1 << (signal.SIGUSR2 - 1)


@pytest.mark.parametrize(
    "options",
    [
        {"env": {**os.environ, "PYTHONWARNINGS": "error"}},
        {"env": {**os.environ, "DLCPD_TRANSFER": "interpreted"}},
        {"env": {**os.environ, "PYTHONPATH": tempfile.gettempdir()}},
        {"preexec_fn": os.getpid},
        {"close_fds": False},
    ],
    ids=["warnings", "transfer", "modules", "function", "descriptors"],
)
def test_what_a_fork_would_not_do_is_executed(options: Any) -> None:
    forked, *_ = started(**options)
    assert not forked


@pytest.mark.executed
def test_programs_of_a_marked_test_are_executed() -> None:
    forked, *_ = started()
    assert not forked


def test_a_folder_that_is_missing_is_the_error_of_an_execution(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="missing"):
        started(cwd=tmp_path / "missing")


@pytest.mark.parametrize(
    ("words", "image"),
    [
        (["-m", "dlcpd", "--config", "x"], DAEMON),
        (["-m", "torch.distributed.run", "x.py"], RANK),
        (["-c", "import dlcpd"], None),
        (["-m", "pip"], None),
        (["x.py"], None),
        ([], None),
    ],
)
def test_programs_are_found_in_command_lines(words: list[str], image: Any) -> None:
    assert image_of([sys.executable, *words]) is image
    assert image_of(["python", *words]) is None
