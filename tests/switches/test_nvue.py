"""switchcfg and a switch with NVUE behind a real sshd: its own timer, its own candidates."""

import asyncio
import fcntl
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from switchcfg.drivers.driver import Commit
from switchcfg.drivers.nvue import NvueDriver
from switchcfg.errors import Busy, CommitFailed
from switchcfg.platforms.platform import Step
from tests.switches.nvue_switch import NAME, NvueSwitch
from tests.switches.ssh_switch import until

pytestmark = pytest.mark.skipif(not shutil.which("sshd"), reason="sshd is not installed")

INTERFACES = """\
  - set:
      interface:
        swp1:
          qos:
            congestion-control:
              profile: DLCP
"""


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[NvueSwitch]:
    made = NvueSwitch(tmp_path)
    yield made
    made.end()


def planned(switch: NvueSwitch) -> None:
    code, said = switch.run("plan", "INTENT", "--out", "PLANS")
    assert code == 2, said


def test_it_is_applied_verified_saved_and_rolled_back(switch: NvueSwitch) -> None:
    before = switch.applied()
    assert switch.run("doctor", "INTENT") == (0, "leaf1: ready\n")
    planned(switch)
    code, said = switch.run("apply", "INTENT", "PLANS", "--save")
    assert code == 0, said
    assert switch.run("verify", "INTENT")[0] == 0
    assert switch.run("drift", "INTENT")[0] == 0
    assert set(before) < set(switch.applied())
    assert switch.startup() == switch.applied()
    code, said = switch.run("rollback", "INTENT", "--device", "leaf1")
    assert code == 0, said
    assert switch.applied() == before


LOSSLESS = """
[[lossless]]
name = "roce"
priority = 3
dscp = [24]
share = 50
cable = "40m"
[[device]]"""


def test_a_lossless_class_is_made_kept_and_taken_back(switch: NvueSwitch) -> None:
    before = switch.applied()
    intent = switch.folder / "intent.toml"
    intent.write_text(intent.read_text().replace("[[device]]", LOSSLESS, 1))
    planned(switch)
    code, said = switch.run("apply", "INTENT", "PLANS")
    assert code == 0, said
    now = switch.applied()
    assert "qos pfc DLCP switch-priority 3" in now
    assert "interface swp2 qos pfc profile DLCP" in now
    assert switch.run("verify", "INTENT")[0] == 0
    assert switch.run("plan", "INTENT", "--remove", "--out", "PLANS")[0] == 2
    code, said = switch.run("apply", "INTENT", "PLANS")
    assert code == 0, said
    assert switch.applied() == before


def test_killed_in_the_middle_it_reverts_and_leaves_no_candidate(switch: NvueSwitch) -> None:
    """A lost connection does not end what the switch was told: it is applied, and goes back."""
    before = switch.applied()
    planned(switch)
    (switch.folder / "delay").write_text("0.02")
    child = switch.start("apply", "INTENT", "PLANS")
    until(switch.candidates)
    child.send_signal(signal.SIGKILL)
    child.communicate()
    until(lambda: switch.applied() != before)
    assert not switch.candidates()
    until(lambda: switch.applied() == before, meanwhile=switch.later)


def test_another_host_is_told_whose_it_is_and_may_abort(switch: NvueSwitch) -> None:
    before = switch.applied()
    planned(switch)
    assert switch.run("apply", "INTENT", "PLANS", "--pending")[0] == 0
    assert switch.startup() == []
    shutil.rmtree(switch.folder / "state")
    code, said = switch.run("doctor", "INTENT")
    assert code == 1
    assert "a commit is pending: " in said
    assert ", plan " in said
    assert "reverts in " in said
    assert switch.run("abort", "INTENT")[0] == 0
    assert switch.applied() == before


def test_what_an_operator_applied_with_confirm_is_left_alone(switch: NvueSwitch) -> None:
    planned(switch)
    switch.nv("set", "interface", "swp2", "description", "new")
    switch.nv("config", "apply", "--confirm", "60", "-y")
    applied = switch.applied()
    code, said = switch.run("apply", "INTENT", "PLANS")
    assert code == 1
    assert "[busy]" in said
    assert "revision 2 of operator" in said
    for command in ("confirm", "abort"):
        code, said = switch.run(command, "INTENT")
        assert code == 1
        assert "[nothing_pending]" in said
    assert switch.applied() == applied
    switch.nv("config", "apply", "2", "--confirm-yes")  # it still could be confirmed


def test_changes_that_are_not_applied_are_not_applied_with_ours(switch: NvueSwitch) -> None:
    before = switch.applied()
    planned(switch)
    switch.nv("set", "interface", "swp2", "description", "unready", user="cumulus")
    code, said = switch.run("apply", "INTENT", "PLANS")
    assert code == 1
    assert "[busy]" in said
    assert "nv config detach" in said
    assert switch.applied() == before
    assert "unready" in switch.nv("config", "diff", user="cumulus")


def test_what_nvue_finds_invalid_fails_with_its_reason(switch: NvueSwitch) -> None:
    """`apply` ends with 0 where it says `Invalid config`: that nothing waits tells."""
    before = switch.applied()
    typed = "nv set qos congestion-control OURS traffic-class 7"
    step = Step("edges", f"{typed} min-threshold 9\n{typed} max-threshold 5\n")
    driver = NvueDriver(NAME, NAME, config=switch.folder / "ssh_config")
    with pytest.raises(CommitFailed, match="min-threshold is above max-threshold"):
        asyncio.run(committed(driver, step))
    assert switch.applied() == before
    assert switch.candidates() == {}


@pytest.mark.parametrize("line", ["nv config apply -y", "reboot", "nv set x; reboot"])
def test_a_plan_runs_no_other_command(switch: NvueSwitch, line: str) -> None:
    """A plan is a file, which anybody may have written."""
    driver = NvueDriver(NAME, NAME, config=switch.folder / "ssh_config")
    with pytest.raises(CommitFailed, match=r"only|Invalid Command: nv set x; reboot"):
        asyncio.run(committed(driver, Step("odd", f"{line}\n")))


async def committed(driver: NvueDriver, step: Step) -> None:
    try:
        await driver.commit(Commit((step,), "", 60, "me@here"))
    finally:
        await driver.close()


@pytest.mark.parametrize("command", ["confirm", "abort"])
def test_what_is_answered_and_not_done_is_a_failure(switch: NvueSwitch, command: str) -> None:
    planned(switch)
    assert switch.run("apply", "INTENT", "PLANS", "--pending")[0] == 0
    (switch.folder / "deaf").touch()
    code, said = switch.run(command, "INTENT")
    assert code == 1
    assert "still pending: not now [commit_failed]" in said


def test_what_reverts_while_it_is_confirmed_is_not_confirmed(switch: NvueSwitch) -> None:
    before = switch.applied()
    planned(switch)
    assert switch.run("apply", "INTENT", "PLANS", "--pending")[0] == 0
    (switch.folder / "late").touch()
    code, said = switch.run("confirm", "INTENT")
    assert code == 1
    assert "[nothing_pending]" in said
    assert switch.applied() == before


def test_a_release_too_old_and_one_without_confirm_are_named(switch: NvueSwitch) -> None:
    switch.release("5.8.0")
    code, said = switch.run("doctor", "INTENT")
    assert code == 1
    assert "Cumulus Linux 5.8 is too old: switchcfg needs 5.9" in said
    before = switch.applied()
    planned(switch)
    (switch.folder / "no-confirm").touch()
    code, said = switch.run("apply", "INTENT", "PLANS")
    assert code == 1
    assert "unrecognized arguments: --confirm [commit_failed]" in said
    assert switch.applied() == before
    assert switch.candidates() == {}


def test_a_switch_without_nvue_is_named(switch: NvueSwitch) -> None:
    (switch.folder / "bin" / "nv").unlink()
    code, said = switch.run("doctor", "INTENT")
    assert code == 1
    assert "nv: not found" in said


async def asked(switch: NvueSwitch, *lines: str) -> str | None:
    driver = NvueDriver(NAME, NAME, config=switch.folder / "ssh_config")
    try:
        return await driver.diff((Step("lines", "".join(f"nv {line}\n" for line in lines)),))
    finally:
        await driver.close()


def test_the_switchs_own_diff_is_shown_and_nothing_of_it_is_left(switch: NvueSwitch) -> None:
    state = switch.state()
    planned(switch)
    code, said = switch.run("diff", "INTENT", "PLANS")
    assert code == 0, said
    assert said.startswith(f"leaf1 (nvue): the device reports changes:\n{INTERFACES}")
    assert switch.state() == state  # its revisions, too


def test_what_goes_is_in_it_and_what_stays_is_not(switch: NvueSwitch) -> None:
    assert asyncio.run(asked(switch, "unset interface swp1 description")) == (
        "- unset:\n    interface:\n      swp1:\n        description: {}"
    )
    assert asyncio.run(asked(switch, "set interface swp1 description theirs")) == ""


@pytest.mark.parametrize("lines", [("set interface swp1 description new", "set qos nonsense 1")])
def test_a_line_that_is_refused_leaves_no_candidate(
    switch: NvueSwitch, lines: tuple[str, ...]
) -> None:
    state = switch.state()
    with pytest.raises(CommitFailed, match="Invalid Command: nv set qos nonsense"):
        asyncio.run(asked(switch, *lines))
    assert switch.state() == state


def test_a_release_that_deletes_no_revision_keeps_what_was_put_aside(switch: NvueSwitch) -> None:
    """It is what `nv config detach` does there: it is in no candidate, and is never applied."""
    (switch.folder / "no-delete").touch()
    applied = switch.applied()
    assert asyncio.run(asked(switch, "set interface swp1 description new"))
    assert switch.candidates() == {}
    assert switch.applied() == applied
    assert switch.state()["revisions"]["2"]["state"] == "detached"


def test_no_diff_where_the_user_has_changes_or_another_types(switch: NvueSwitch) -> None:
    line = "set interface swp2 description new"
    with (switch.folder / "bin" / "nv").open() as nv:
        fcntl.flock(nv, fcntl.LOCK_EX)
        with pytest.raises(Busy, match="another switchcfg is working on this device"):
            asyncio.run(asked(switch, line))
    switch.nv("set", "interface", "swp2", "description", "unready", user="cumulus")
    with pytest.raises(Busy, match="changes that are not applied"):
        asyncio.run(asked(switch, line))
    assert "unready" in switch.nv("config", "diff", user="cumulus")
