"""switchcfg and a switch that speaks NX-API: its scheduler goes back, its answers are read."""

import asyncio
import shutil
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from napalm.nxapi_plumbing import Device as NxApi

from switchcfg.drivers.driver import Commit
from switchcfg.drivers.login import Login
from switchcfg.drivers.nxos import NxosDriver
from switchcfg.errors import Busy, CommitFailed, NothingPending
from switchcfg.platforms.platform import Step
from tests.switches import clock
from tests.switches.certificates import certificate
from tests.switches.nxos_target import PASSWORD, USER
from tests.switches.ssh_switch import until
from tests.switches.tls_switch import TlsSwitch

GRAIN = 65  # seconds that its timer may be late: the scheduler counts in minutes
THEIRS = """\
policy-map type qos theirs
  class class-default
    set qos-group 3
interface Ethernet1/1
  description theirs
interface Ethernet1/2
"""


class NxosSwitch(TlsSwitch):
    platform, ports, kind = "nxos", "Ethernet1/", "NXOS"

    def __init__(self, folder: Path) -> None:
        (folder / "running").write_text(THEIRS)
        (folder / "version").write_text("10.3(4a)")
        (folder / "features").write_text("scheduler")
        super().__init__(folder, ("-m", "tests.switches.nxos_target"))
        self.environment |= {"SWITCHCFG_NXOS_USER": USER, "SWITCHCFG_NXOS_PASSWORD": PASSWORD}

    @property
    def login(self) -> Login:
        return Login(str(self.folder / "ca.pem"), "", "", USER, PASSWORD)

    def running(self) -> str:
        """Without its scheduler."""
        return (self.folder / "running").read_text()

    def later(self, seconds: float = 120) -> None:
        """And what its timer may be late."""
        super().later(seconds + GRAIN)


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[NxosSwitch]:
    made = NxosSwitch(tmp_path)
    yield made
    made.end()


def planned(switch: NxosSwitch) -> None:
    code, said = switch.run("plan", "INTENT", "--out", "PLANS")
    assert code == 2, said


def driver(switch: NxosSwitch) -> NxosDriver:
    return NxosDriver("leaf1", f"127.0.0.1:{switch.port}", login=switch.login)


def say(switch: NxosSwitch, *commands: str) -> list[str]:
    """What somebody else types on the switch, and reads."""
    client = NxApi(
        "127.0.0.1", USER, PASSWORD, transport="https", port=switch.port, verify=switch.login.ca
    )
    return [answer["result"] or "" for answer in client.show_list(list(commands), raw_text=True)]


def left_over(switch: NxosSwitch) -> bool:
    """Is anything of ours on the switch that is not configuration of queues?"""
    found = say(switch, "show running-config", "show checkpoint summary")
    return any("switchcfg" in text for text in found)


def commit(switch: NxosSwitch, *lines: str, who: str = "me@here") -> None:
    step = Step("lines", "".join(f"{line}\n" for line in lines))
    asyncio.run(driver(switch).commit(Commit((step,), "", 60, who)))


def test_it_is_applied_verified_saved_and_rolled_back(switch: NxosSwitch) -> None:
    before = switch.running()
    assert switch.run("doctor", "INTENT") == (0, "leaf1: ready\n")
    planned(switch)
    code, said = switch.run("apply", "INTENT", "PLANS", "--save")
    assert code == 0, said
    assert "leaf1: saved" in said
    assert switch.run("verify", "INTENT")[0] == 0
    assert switch.run("drift", "INTENT")[0] == 0
    assert "set qos-group 3" in switch.running()
    assert "service-policy type queuing output DLCP-OUT" in switch.running()
    assert (switch.folder / "startup").read_text() == switch.running()
    assert not left_over(switch)
    code, said = switch.run("rollback", "INTENT", "--device", "leaf1")
    assert code == 0, said
    assert switch.running() == before


def test_lossless_classes_are_applied_verified_and_removed(switch: NxosSwitch) -> None:
    switch.want_lossless()
    before = switch.running()
    planned(switch)
    code, said = switch.run("apply", "INTENT", "PLANS")
    assert code == 0, said
    assert switch.run("verify", "INTENT")[0] == 0
    assert "system qos\n  service-policy type network-qos DLCP-NETWORK\n" in switch.running()
    switch.remove()
    assert switch.running().replace("system qos\n", "") == before


@pytest.mark.parametrize("killed", [False, True])
def test_what_nobody_confirms_reverts_by_itself_and_leaves_nothing(
    switch: NxosSwitch, killed: bool
) -> None:
    before = switch.running()
    planned(switch)
    if killed:
        switch.delay(0.05)
        child = switch.start("apply", "INTENT", "PLANS")
        until(lambda: switch.running() != before)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        until(lambda: stands_still(switch))  # the switch ends a request that it has begun
    else:
        assert switch.run("apply", "INTENT", "PLANS", "--pending")[0] == 0
    applied = switch.running()
    assert applied != before
    switch.delay(0.0)
    switch.later(120)
    until(lambda: asyncio.run(driver(switch).pending()) is None)
    assert switch.running() == before
    assert not left_over(switch)
    assert not (switch.folder / "startup").exists()


def stands_still(switch: NxosSwitch) -> bool:
    before = switch.running()
    time.sleep(0.5)
    return switch.running() == before


def test_what_would_come_after_the_rollback_is_not_begun(switch: NxosSwitch) -> None:
    before = switch.running()
    switch.delay(0.3)
    step = Step("many", "".join(f"class-map type qos match-any X{n}\n" for n in range(8)))
    with pytest.raises(CommitFailed, match="the time to revert passed"):
        asyncio.run(driver(switch).commit(Commit((step,), "", 1, "me@here")))
    assert switch.running() == before


def test_it_lasts_at_least_as_long_as_was_asked_for(switch: NxosSwitch) -> None:
    at_second(switch, 50)
    commit(switch, "class-map type qos match-any X")
    found = asyncio.run(driver(switch).pending())
    assert found is not None
    assert 20 < found.seconds <= 60 + GRAIN


def test_a_short_time_can_be_confirmed_at_any_second_of_a_minute(switch: NxosSwitch) -> None:
    at_second(switch, 57)
    step = Step("lines", "class-map type qos match-any X\n")
    asyncio.run(driver(switch).commit(Commit((step,), "", 2, "me@here")))
    asyncio.run(driver(switch).confirm())
    assert not left_over(switch)


def at_second(switch: NxosSwitch, second: int) -> None:
    """Of a minute, on the switch's clock."""
    clock.later(switch.folder, (second - clock.now(switch.folder)) % 60)


def test_a_timer_that_cannot_be_set_leaves_nothing(switch: NxosSwitch) -> None:
    before = switch.running()
    (switch.folder / "denied").write_text("scheduler schedule")
    with pytest.raises(CommitFailed, match="Permission denied"):
        commit(switch, "class-map type qos match-any X")
    assert switch.running() == before
    assert not left_over(switch)


def test_another_host_is_told_whose_it_is_and_may_abort(switch: NxosSwitch) -> None:
    before = switch.running()
    planned(switch)
    assert switch.run("apply", "INTENT", "PLANS", "--pending")[0] == 0
    shutil.rmtree(switch.folder / "state")
    code, said = switch.run("doctor", "INTENT")
    assert code == 1
    assert "a commit is pending: " in said
    assert " plan " in said
    code, said = switch.run("apply", "INTENT", "PLANS")
    assert code == 1
    assert "[busy]" in said
    assert switch.run("abort", "INTENT")[0] == 0
    assert switch.running() == before
    assert not left_over(switch)


@pytest.mark.parametrize("bad", ["qos nonsense", "queue-limit 5 bytes"])
def test_a_line_that_is_refused_in_the_middle_takes_all_back(switch: NxosSwitch, bad: str) -> None:
    """NX-OS keeps what was typed before it; the second is refused in an answer's words only."""
    before = switch.running()
    queue = ("policy-map type queuing X", "  class type queuing c-out-8q-q1")
    with pytest.raises(CommitFailed, match=bad):
        commit(
            switch, "class-map type qos match-any X", *queue, "    priority level 7", f"    {bad}"
        )
    assert switch.running() == before
    assert not left_over(switch)


def test_who_begins_at_the_same_moment_is_busy(switch: NxosSwitch) -> None:
    """The name of a checkpoint is given once: that is the lock."""
    say(switch, "checkpoint switchcfg-lock description other@there")
    before = switch.running()
    with pytest.raises(Busy, match=r"other@there.*no timer"):
        commit(switch, "class-map type qos match-any X")
    asyncio_driver = driver(switch)
    with pytest.raises(NothingPending):
        asyncio.run(asyncio_driver.confirm())
    with pytest.raises(NothingPending):
        asyncio.run(asyncio_driver.abort())  # there is nothing to revert; it clears the lock away
    assert not left_over(switch)
    assert switch.running() == before


def test_it_is_not_confirmed_while_it_is_being_reverted(switch: NxosSwitch) -> None:
    commit(switch, "class-map type qos match-any X")
    (switch.folder / "held").touch()  # the job is due, and has not ended
    switch.later(60)
    with pytest.raises(Busy, match="is reverting a change"):
        asyncio.run(driver(switch).confirm())
    assert "class-map type qos match-any X" in switch.running()


def test_a_rollback_that_fails_says_so_and_can_be_tried_again(switch: NxosSwitch) -> None:
    before = switch.running()
    commit(switch, "class-map type qos match-any X")
    (switch.folder / "stuck").touch()
    with pytest.raises(CommitFailed, match="patch could not be applied"):
        asyncio.run(driver(switch).abort())
    switch.later(60)
    until(lambda: "Failed" in say(switch, "show scheduler schedule")[0])
    code, said = switch.run("doctor", "INTENT")
    assert code == 1
    assert "its rollback ended with 'Failed (1)'" in said
    (switch.folder / "stuck").unlink()
    assert switch.run("abort", "INTENT")[0] == 0
    assert switch.running() == before
    assert not left_over(switch)


@pytest.mark.parametrize(
    ("file", "text", "complaint"),
    [
        ("version", "9.3(10)", "NX-OS 9.3: switchcfg needs 10.2 or later"),
        ("features", "", "`feature scheduler` is off"),
        (
            "denied",
            "show checkpoint",
            "refused `show checkpoint summary`: % Permission denied",
        ),
        ("remote", "", "exists only on an AAA server"),
    ],
)
def test_doctor_names_what_is_missing_and_nothing_is_committed(
    switch: NxosSwitch, file: str, text: str, complaint: str
) -> None:
    before = switch.running()
    (switch.folder / file).write_text(text)
    code, said = switch.run("doctor", "INTENT")
    assert code == 1
    assert complaint in said
    assert "Traceback" not in said
    with pytest.raises(CommitFailed):
        commit(switch, "class-map type qos match-any X")
    assert switch.running() == before


def test_what_cannot_be_saved_says_so(switch: NxosSwitch) -> None:
    (switch.folder / "full").touch()
    with pytest.raises(CommitFailed, match="was not saved: Copy failed: no space left"):
        asyncio.run(driver(switch).save())


def test_a_user_of_aaa_whom_the_scheduler_knows_is_ready(switch: NxosSwitch) -> None:
    (switch.folder / "remote").touch()
    (switch.folder / "trusted").touch()
    assert switch.run("doctor", "INTENT")[0] == 0


def test_room_for_two_checkpoints_is_needed(switch: NxosSwitch) -> None:
    say(switch, *(f"checkpoint theirs{number}" for number in range(9)))
    code, said = switch.run("doctor", "INTENT")
    assert code == 1
    assert "9 of 10 checkpoints are in use" in said


def test_a_wrong_password_is_one_error_that_does_not_tell_it(switch: NxosSwitch) -> None:
    switch.environment |= {"SWITCHCFG_NXOS_PASSWORD": "a guess"}
    code, said = switch.run("verify", "INTENT")
    assert code == 1
    assert said.count("[unreachable]") == 1
    assert "SWITCHCFG_NXOS_USER" in said
    assert "Traceback" not in said
    assert "a guess" not in said


def test_a_server_that_the_ca_did_not_sign_is_refused(switch: NxosSwitch, tmp_path: Path) -> None:
    certificate(tmp_path, "other")
    switch.environment |= {"SWITCHCFG_NXOS_CA": str(tmp_path / "other.pem")}
    code, said = switch.run("verify", "INTENT")
    assert code == 1
    assert "CERTIFICATE_VERIFY_FAILED" in said
    assert "[unreachable]" in said
    assert "Traceback" not in said


def test_nx_api_that_is_off_and_what_is_no_nx_api_are_named(switch: NxosSwitch) -> None:
    (switch.folder / "features").write_text("scheduler html")
    code, said = switch.run("verify", "INTENT")
    assert code == 1
    assert "the answer is not from NX-API" in said
    switch.end()
    code, said = switch.run("verify", "INTENT")
    assert code == 1
    assert "check that `feature nxapi` is on, with HTTPS [unreachable]" in said
    assert "Traceback" not in said


def test_a_certificate_of_ours_is_refused_by_name(switch: NxosSwitch) -> None:
    client = {
        f"SWITCHCFG_NXOS_{what}": str(switch.folder / f"client.{end}")
        for what, end in (("CERT", "pem"), ("KEY", "key"))
    }
    switch.environment |= client
    code, said = switch.run("verify", "INTENT")
    assert code == 1
    assert "SWITCHCFG_NXOS_CERT is set, and NX-API takes only a user and a password" in said


def test_its_own_diff_is_of_what_was_changed_and_there_is_none_before(switch: NxosSwitch) -> None:
    before = switch.running()
    planned(switch)
    code, said = switch.run("diff", "INTENT", "PLANS")
    assert (code, said) == (0, "leaf1 (nxos): the device computes no diff before a change\n")
    assert switch.running() == before
    code, said = switch.run("apply", "INTENT", "PLANS", "--diff", "--pending")
    assert code == 0, said
    changes = said.partition("leaf1 (nxos): the device reports changes:\n")[2]
    # A patch, without what is around it, and without the scheduler's part in the commit.
    assert changes.startswith("  interface Ethernet1/1\n    service-policy type qos input DLCP\n")
    assert "  class-map type qos match-any DLCP-Q5\n    match dscp 26,28,30\n" in changes
    assert "scheduler" not in changes
    assert "!" not in changes
    assert "Rollback" not in changes


def test_a_switch_that_cannot_say_what_changed_goes_back(switch: NxosSwitch) -> None:
    before = switch.running()
    planned(switch)
    (switch.folder / "denied").write_text("show diff")
    code, said = switch.run("apply", "INTENT", "PLANS", "--diff")
    assert code == 1
    assert "Permission denied for the role" in said
    assert switch.running() == before
    assert switch.run("apply", "INTENT", "PLANS")[0] == 0
