"""The scripts that revert a commit, run by the real shell; the "device" is a file.

The timer's seconds are over when a test says so, and not by a clock.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from switchcfg.drivers import auto_revert
from switchcfg.drivers.auto_revert import AutoRevert
from switchcfg.errors import Busy, CommitFailed, NothingPending

NAME = "sw"
LONG = 600
# Of the timer alone: others say /bin/sleep.
SLEEP = """\
#!/bin/sh
while [ ! -e {folder}/late ]; do /bin/sleep 0.02; done
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "device").write_text("before\n")
    (tmp_path / "bin").mkdir()
    sleep = tmp_path / "bin" / "sleep"
    sleep.write_text(SLEEP.format(folder=tmp_path))
    sleep.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}/bin:{os.environ['PATH']}")
    yield tmp_path
    for each in ("go", "late"):  # whatever still waits for it
        (tmp_path / each).touch()
    timer = tmp_path / "run" / NAME / "timer"
    if timer.exists():
        with suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(int(timer.read_text()), signal.SIGKILL)


def the(folder: Path) -> AutoRevert:
    return AutoRevert(NAME, str(folder / "run"))


def sh(script: str) -> tuple[int, str]:
    done = subprocess.run(("sh", "-eu"), input=script, text=True, capture_output=True, check=False)
    return done.returncode, done.stdout


def armed(folder: Path, *, restore: str = "") -> tuple[int, str]:
    restore = restore or f"echo before >{folder}/device\n"
    return sh(the(folder).arm(restore, LONG, "me@here, plan 'x'"))


def stepped(folder: Path) -> int:
    return sh(the(folder).step(f"echo after >{folder}/device\n"))[0]


def begun(folder: Path, payload: str) -> "subprocess.Popen[bytes]":
    """A step that is under way."""
    script = the(folder).step(f"touch {folder}/begun\n{payload}")
    child = subprocess.Popen(("sh", "-euc", script))
    until((folder / "begun").exists)
    return child


def waits(folder: Path) -> str:
    """Lines that end when there is a file `go`."""
    return f"while [ ! -e {folder}/go ]; do /bin/sleep 0.02; done\n"


def late(folder: Path) -> None:
    """The timer's seconds are over."""
    (folder / "late").touch()


def timer(folder: Path) -> Path:
    """Its process."""
    return Path("/proc", (folder / "run" / NAME / "timer").read_text().strip())


def ran(process: Path) -> bool:
    """Has it ended? One that nobody has waited for yet has no command line."""
    try:
        return not (process / "cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return True


def device(folder: Path) -> str:
    return (folder / "device").read_text().strip()


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 60  # beside tests that take all CPUs
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_confirmed_stays_and_the_timer_is_gone(folder: Path) -> None:
    assert armed(folder)[0] == 0
    assert stepped(folder) == 0
    process = timer(folder)
    assert sh(the(folder).confirm())[0] == 0
    assert device(folder) == "after"
    assert not (folder / "run" / NAME).exists()
    until(lambda: ran(process))


def test_not_confirmed_reverts(folder: Path) -> None:
    armed(folder)
    assert stepped(folder) == 0
    late(folder)
    until(lambda: not (folder / "run" / NAME).exists())
    assert device(folder) == "before"
    assert stepped(folder) == auto_revert.DISARMED  # a straggler does nothing any more
    assert device(folder) == "before"
    assert sh(the(folder).confirm())[0] == auto_revert.NONE


def test_aborted_reverts_at_once(folder: Path) -> None:
    armed(folder)
    stepped(folder)
    assert sh(the(folder).abort())[0] == 0
    assert device(folder) == "before"
    assert sh(the(folder).abort())[0] == auto_revert.NONE


def test_a_second_one_is_told_who_was_first(folder: Path) -> None:
    armed(folder)
    code, said = armed(folder)
    assert (code, said) == (auto_revert.BUSY, "me@here, plan 'x'\n")
    code, said = sh(the(folder).pending())
    who, left = said.splitlines()
    assert who == "me@here, plan 'x'"
    assert LONG - 30 < int(left) <= LONG


def test_what_could_not_be_restored_says_why_and_can_be_tried_again(folder: Path) -> None:
    (folder / "stuck").touch()
    script = f"[ ! -e {folder}/stuck ] || {{ echo tc is busy >&2; exit 1; }}\n"
    armed(folder, restore=f"{script}echo before >{folder}/device\n")
    assert stepped(folder) == 0
    late(folder)
    until(lambda: "tc is busy" in sh(the(folder).pending())[1])
    until(lambda: ran(timer(folder)))  # while it runs, an abort is told to wait
    assert device(folder) == "after"
    assert sh(the(folder).abort())[0] == 1
    (folder / "stuck").unlink()
    assert sh(the(folder).abort())[0] == 0
    assert device(folder) == "before"


def test_while_the_timer_restores_an_abort_waits_its_turn(folder: Path) -> None:
    armed(folder, restore=f"{waits(folder)}echo before >{folder}/device\n")
    assert stepped(folder) == 0
    late(folder)
    until((folder / "run" / NAME / "fired").exists)
    assert sh(the(folder).abort())[0] == auto_revert.RESTORING
    assert device(folder) == "after"
    (folder / "go").touch()
    until(lambda: not (folder / "run" / NAME).exists())
    assert device(folder) == "before"


def test_a_step_that_outlasts_the_timer_is_waited_for_and_undone(folder: Path) -> None:
    armed(folder)
    step = begun(folder, f"{waits(folder)}echo after >{folder}/device\n")
    late(folder)
    until((folder / "run" / NAME / "fired").exists)
    (folder / "go").touch()
    assert step.wait() == 0
    until(lambda: not (folder / "run" / NAME).exists())
    assert device(folder) == "before"


def test_a_step_that_hangs_is_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for script in ("_RESTORE", "_TIMER"):
        monkeypatch.setattr(
            auto_revert, script, getattr(auto_revert, script).replace("-w 30", "-w 1")
        )
    armed(folder)
    step = begun(folder, f"{waits(folder)}echo after >{folder}/device\n")
    late(folder)
    assert step.wait() == -signal.SIGKILL
    until(lambda: not (folder / "run" / NAME).exists())
    assert device(folder) == "before"


def ended(folder: Path) -> int:
    """Of a long step, once it has."""
    until(lambda: sh(the(folder).ended())[0] != auto_revert.RUNNING)
    return sh(the(folder).ended())[0]


def test_a_long_step_goes_on_by_itself_and_says_how_it_ended(folder: Path) -> None:
    armed(folder)
    assert sh(the(folder).begin(f"{waits(folder)}echo after >{folder}/device\n"))[0] == 0
    assert sh(the(folder).ended())[0] == auto_revert.RUNNING
    assert device(folder) == "before"
    (folder / "go").touch()
    assert ended(folder) == 0
    assert device(folder) == "after"
    assert sh(the(folder).begin("echo no room\nfalse\necho not said\n"))[0] == 0
    assert ended(folder) == 1  # its own, not the first one's
    assert sh(the(folder).ended())[1] == "no room\n"


def test_a_long_step_is_ended_with_its_children_and_does_not_go_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for script in ("_RESTORE", "_TIMER"):
        monkeypatch.setattr(
            auto_revert, script, getattr(auto_revert, script).replace("-w 30", "-w 1")
        )
    armed(folder)
    hung = f"echo after >{folder}/device\necho $$ >{folder}/child\n/bin/sleep 100\n"
    assert sh(the(folder).begin(f"{hung}echo after >{folder}/device\n"))[0] == 0
    until(lambda: (folder / "child").exists() and (folder / "child").read_text().endswith("\n"))
    child = Path("/proc", (folder / "child").read_text().strip())
    assert not ran(child)
    late(folder)
    assert ended(folder) == auto_revert.DISARMED
    until(lambda: not (folder / "run" / NAME).exists())
    assert device(folder) == "before"
    until(lambda: ran(child))  # it would say "after" once more, a hundred seconds later
    assert sh(the(folder).begin("true\n"))[0] == auto_revert.DISARMED
    assert sh(the(folder).ended())[0] == auto_revert.DISARMED


def test_one_that_died_before_it_was_armed_keeps_nobody_out_for_ever(folder: Path) -> None:
    (folder / "run" / NAME).mkdir(parents=True)
    assert armed(folder)[0] == auto_revert.BUSY
    assert sh(the(folder).abort())[0] == auto_revert.NONE
    assert armed(folder)[0] == 0


def test_a_restoring_script_cannot_end_ours(folder: Path) -> None:
    restore = f"cat >/dev/null <<'END'\ntext\nEND\necho before >{folder}/device\n"
    assert armed(folder, restore=restore)[0] == 0
    stepped(folder)
    assert sh(the(folder).abort())[0] == 0
    assert device(folder) == "before"


@pytest.mark.parametrize(
    ("code", "error", "says"),
    [
        (auto_revert.BUSY, Busy, "a commit is pending: them; it reverts by itself"),
        (auto_revert.RESTORING, Busy, "is reverting a change"),
        (auto_revert.DISARMED, CommitFailed, "time ran out"),
        (auto_revert.NONE, NothingPending, "no change is pending"),
        (1, CommitFailed, "exit code 1: them"),
    ],
)
def test_exit_codes_have_a_meaning(code: int, error: type[Exception], says: str) -> None:
    found = auto_revert.refusal("sw", code, "them\n")
    assert isinstance(found, error)
    assert says in str(found)
