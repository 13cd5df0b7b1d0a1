"""The scripts that revert a commit, run by the real shell; the "device" is a file."""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from switchcfg.drivers import dead_man
from switchcfg.drivers.dead_man import DeadMan
from switchcfg.errors import Busy, CommitFailed, NothingPending

NAME = "sw"
LONG = 600


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    (tmp_path / "device").write_text("before\n")
    yield tmp_path
    timer = tmp_path / "run" / NAME / "timer"
    if timer.exists():
        with suppress(ProcessLookupError):  # it has ended by itself
            os.killpg(int(timer.read_text()), signal.SIGKILL)


def the(folder: Path) -> DeadMan:
    return DeadMan(NAME, str(folder / "run"))


def sh(script: str) -> tuple[int, str]:
    done = subprocess.run(("sh", "-eu"), input=script, text=True, capture_output=True, check=False)
    return done.returncode, done.stdout


def armed(folder: Path, *, seconds: int = LONG, restore: str = "") -> tuple[int, str]:
    restore = restore or f"echo before >{folder}/device\n"
    return sh(the(folder).arm(restore, seconds, "me@here, plan 'x'"))


def stepped(folder: Path) -> int:
    return sh(the(folder).step(f"echo after >{folder}/device\n"))[0]


def device(folder: Path) -> str:
    return (folder / "device").read_text().strip()


def until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 20
    while not what():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_confirmed_stays_and_the_timer_is_gone(folder: Path) -> None:
    assert armed(folder)[0] == 0
    assert stepped(folder) == 0
    timer = int((folder / "run" / NAME / "timer").read_text())
    assert sh(the(folder).confirm())[0] == 0
    assert device(folder) == "after"
    assert not (folder / "run" / NAME).exists()
    until(lambda: not Path("/proc", str(timer)).exists())


def test_not_confirmed_reverts(folder: Path) -> None:
    armed(folder, seconds=1)
    assert stepped(folder) == 0
    until(lambda: not (folder / "run" / NAME).exists())
    assert device(folder) == "before"
    assert stepped(folder) == dead_man.DISARMED  # a straggler does nothing any more
    assert device(folder) == "before"
    assert sh(the(folder).confirm())[0] == dead_man.NONE


def test_aborted_reverts_at_once(folder: Path) -> None:
    armed(folder)
    stepped(folder)
    assert sh(the(folder).abort())[0] == 0
    assert device(folder) == "before"
    assert sh(the(folder).abort())[0] == dead_man.NONE


def test_a_second_one_is_told_who_was_first(folder: Path) -> None:
    armed(folder)
    code, said = armed(folder)
    assert (code, said) == (dead_man.BUSY, "me@here, plan 'x'\n")
    code, said = sh(the(folder).pending())
    who, left = said.splitlines()
    assert who == "me@here, plan 'x'"
    assert LONG - 30 < int(left) <= LONG


def test_what_could_not_be_restored_says_why_and_can_be_tried_again(folder: Path) -> None:
    (folder / "stuck").touch()
    script = f"[ ! -e {folder}/stuck ] || {{ echo tc is busy >&2; exit 1; }}\n"
    armed(folder, seconds=1, restore=f"{script}echo before >{folder}/device\n")
    stepped(folder)
    until(lambda: "tc is busy" in sh(the(folder).pending())[1])
    assert device(folder) == "after"
    assert sh(the(folder).abort())[0] == 1
    (folder / "stuck").unlink()
    assert sh(the(folder).abort())[0] == 0
    assert device(folder) == "before"


def test_while_the_timer_restores_an_abort_waits_its_turn(folder: Path) -> None:
    armed(folder, seconds=1, restore=f"sleep 2\necho before >{folder}/device\n")
    stepped(folder)
    until((folder / "run" / NAME / "fired").exists)
    assert sh(the(folder).abort())[0] == dead_man.RESTORING
    until(lambda: not (folder / "run" / NAME).exists())
    assert device(folder) == "before"


def test_a_step_that_outlasts_the_timer_is_waited_for_and_undone(folder: Path) -> None:
    armed(folder, seconds=1)
    slow = the(folder).step(f"sleep 3\necho after >{folder}/device\n")
    assert sh(slow)[0] == 0
    until(lambda: not (folder / "run" / NAME).exists())
    assert device(folder) == "before"


def test_a_step_that_hangs_is_ended(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for script in ("_RESTORE", "_TIMER"):
        monkeypatch.setattr(dead_man, script, getattr(dead_man, script).replace("-w 30", "-w 1"))
    armed(folder, seconds=1)
    hung = the(folder).step(f"while :; do :; done\necho after >{folder}/device\n")
    assert sh(hung)[0] != 0
    until(lambda: not (folder / "run" / NAME).exists())
    assert device(folder) == "before"


def ended(folder: Path) -> int:
    """Of a long step, once it has."""
    until(lambda: sh(the(folder).ended())[0] != dead_man.RUNNING)
    return sh(the(folder).ended())[0]


def test_a_long_step_goes_on_by_itself_and_says_how_it_ended(folder: Path) -> None:
    armed(folder)
    wait = f"while [ ! -e {folder}/go ]; do sleep 0.05; done\n"
    assert sh(the(folder).begin(f"{wait}echo after >{folder}/device\n"))[0] == 0
    assert sh(the(folder).ended())[0] == dead_man.RUNNING
    assert device(folder) == "before"
    (folder / "go").touch()
    assert ended(folder) == 0
    assert device(folder) == "after"
    assert sh(the(folder).begin("echo no room\nfalse\necho not said\n"))[0] == 0
    assert ended(folder) == 1  # its own, not the first one's
    assert sh(the(folder).ended())[1] == "no room\n"


def test_a_long_step_does_not_go_on_where_it_may_not(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for script in ("_RESTORE", "_TIMER"):
        monkeypatch.setattr(dead_man, script, getattr(dead_man, script).replace("-w 30", "-w 1"))
    armed(folder, seconds=1)
    hung = f"echo after >{folder}/device\nsleep 100\necho after >{folder}/device\n"
    assert sh(the(folder).begin(hung))[0] == 0
    assert ended(folder) == dead_man.DISARMED
    until(lambda: not (folder / "run" / NAME).exists())
    assert device(folder) == "before"
    assert sh(the(folder).begin("true\n"))[0] == dead_man.DISARMED
    assert sh(the(folder).ended())[0] == dead_man.DISARMED


def test_one_that_died_before_it_was_armed_keeps_nobody_out_for_ever(folder: Path) -> None:
    (folder / "run" / NAME).mkdir(parents=True)
    assert armed(folder)[0] == dead_man.BUSY
    assert sh(the(folder).abort())[0] == dead_man.NONE
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
        (dead_man.BUSY, Busy, "a commit is pending: them; it reverts by itself"),
        (dead_man.RESTORING, Busy, "is being reverted at this moment"),
        (dead_man.DISARMED, CommitFailed, "time ran out"),
        (dead_man.NONE, NothingPending, "nothing is pending"),
        (1, CommitFailed, "exit code 1: them"),
    ],
)
def test_exit_codes_have_a_meaning(code: int, error: type[Exception], says: str) -> None:
    found = dead_man.refusal("sw", code, "them\n")
    assert isinstance(found, error)
    assert says in str(found)
