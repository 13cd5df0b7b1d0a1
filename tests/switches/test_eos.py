"""switchcfg and a switch that speaks eAPI: NAPALM, real HTTP and TLS, sessions with a timer."""

import asyncio
import signal
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyeapi
import pytest

from switchcfg.drivers.eos import EosDriver
from switchcfg.drivers.login import Login
from switchcfg.errors import Busy, CommitFailed
from switchcfg.platforms.platform import Step
from tests.switchcfg import printed
from tests.switches.certificates import certificate
from tests.switches.eos_target import PASSWORD, USER
from tests.switches.ssh_switch import until
from tests.switches.tls_switch import TlsSwitch

THEIRS = """\
qos map dscp 46 to traffic-class 5
interface Ethernet1
   description theirs
interface Ethernet2
qos profile theirs
   qos trust cos
"""


class EosSwitch(TlsSwitch):
    platform, ports, kind = "eos", "Ethernet", "EOS"

    def __init__(self, folder: Path) -> None:
        (folder / "running").write_text(THEIRS)
        super().__init__(folder, ("-m", "tests.switches.eos_target"))
        self.environment |= {"SWITCHCFG_EOS_USER": USER, "SWITCHCFG_EOS_PASSWORD": PASSWORD}

    @property
    def login(self) -> Login:
        return Login(str(self.folder / "ca.pem"), "", "", USER, PASSWORD)

    def running(self) -> str:
        return (self.folder / "running").read_text()

    def told(self, *commands: str) -> Any:
        """What the last of these commands says to somebody else."""
        trust = ssl.create_default_context(cafile=self.folder / "ca.pem")
        node = pyeapi.connect(
            transport="https",
            host="127.0.0.1",
            port=self.port,
            username=USER,
            password=PASSWORD,
            context=trust,
        )
        return node.execute(list(commands))["result"][-1]


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[EosSwitch]:
    made = EosSwitch(tmp_path)
    yield made
    made.end()


def planned(switch: EosSwitch) -> None:
    code, said = switch.run("plan", "INTENT", "--out", "PLANS")
    assert code == 2, said


def canonical(text: str) -> set[tuple[str, ...]]:
    """Lines with their sections, defaults left out; a switch says sections in any order."""
    found: set[tuple[str, ...]] = set()
    above: list[str] = []
    for line in printed.eos(text).splitlines():
        depth = (len(line) - len(line.lstrip())) // 3
        above[depth:] = [line.strip()]
        found.add(tuple(above))
    return found


def test_it_is_applied_verified_saved_and_rolled_back(switch: EosSwitch) -> None:
    before = switch.running()
    assert switch.run("doctor", "INTENT") == (0, "leaf1: ready\n")
    planned(switch)
    code, said = switch.run("apply", "INTENT", "PLANS")
    assert code == 0, said
    assert switch.run("verify", "INTENT")[0] == 0
    assert switch.run("drift", "INTENT")[0] == 0
    assert "qos profile theirs\n   qos trust cos" in switch.running()
    assert "service-profile DLCP" in switch.running()
    assert (switch.folder / "startup").read_text() == switch.running()
    code, said = switch.run("rollback", "INTENT", "--device", "leaf1")
    assert code == 0, said
    assert canonical(switch.running()) == canonical(before)


def test_lossless_classes_are_applied_verified_and_removed(switch: EosSwitch) -> None:
    switch.want_lossless()
    before = switch.running()
    planned(switch)
    code, said = switch.run("apply", "INTENT", "PLANS")
    assert code == 0, said
    assert switch.run("verify", "INTENT")[0] == 0
    assert "   priority-flow-control priority 3 no-drop\n" in switch.running()
    switch.remove()
    assert canonical(switch.running()) == canonical(before)


@pytest.mark.parametrize("killed", [False, True])
def test_what_nobody_confirms_reverts_by_itself(switch: EosSwitch, killed: bool) -> None:
    before = switch.running()
    planned(switch)
    if killed:
        switch.delay(1.0)
        child = switch.start("apply", "INTENT", "PLANS")
        until(lambda: switch.running() != before)
        child.send_signal(signal.SIGKILL)
        child.communicate()
    else:
        assert switch.run("apply", "INTENT", "PLANS", "--pending")[0] == 0
        assert switch.running() != before
        code, said = switch.run("apply", "INTENT", "PLANS")
        assert code == 1
        assert "[busy]" in said
    until(lambda: switch.running() == before, meanwhile=switch.later)
    assert not (switch.folder / "startup").exists()


def test_another_hosts_commit_is_left_alone(switch: EosSwitch) -> None:
    planned(switch)
    assert switch.run("apply", "INTENT", "PLANS", "--pending")[0] == 0
    applied = switch.running()
    switch.environment |= {"XDG_STATE_HOME": str(switch.folder / "elsewhere")}
    code, said = switch.run("doctor", "INTENT")
    assert code == 1
    assert "a commit is pending: session switchcfg_" in said
    code, said = switch.run("abort", "INTENT")
    assert code == 1
    assert "[nothing_pending]" in said
    assert switch.running() == applied


def test_a_wrong_password_is_one_error_that_does_not_tell_it(switch: EosSwitch) -> None:
    switch.environment |= {"SWITCHCFG_EOS_PASSWORD": "a guess"}
    code, said = switch.run("verify", "INTENT")
    assert code == 1
    assert said.count("[unreachable]") == 1
    assert "Traceback" not in said
    assert "a guess" not in said


def test_a_server_that_the_ca_did_not_sign_is_refused(switch: EosSwitch, tmp_path: Path) -> None:
    certificate(tmp_path, "other")
    switch.environment |= {"SWITCHCFG_EOS_CA": str(tmp_path / "other.pem")}
    code, said = switch.run("verify", "INTENT")
    assert code == 1
    assert "CERTIFICATE_VERIFY_FAILED" in said
    assert "[unreachable]" in said
    assert "Traceback" not in said


async def asked(driver: EosDriver, *lines: str) -> str | None:
    try:
        return await driver.diff((Step("lines", "".join(f"{line}\n" for line in lines)),))
    finally:
        await driver.close()


def driver(switch: EosSwitch) -> EosDriver:
    address = f"127.0.0.1:{switch.port}"
    return EosDriver("leaf1", address, login=switch.login, state=switch.folder / "pending")


def sessions(switch: EosSwitch) -> set[str]:
    return set(switch.told("show configuration sessions")["sessions"])


def test_the_switchs_own_diff_is_shown_and_its_session_is_gone(switch: EosSwitch) -> None:
    before = switch.running()
    planned(switch)
    code, said = switch.run("diff", "INTENT", "PLANS")
    assert code == 0, said
    assert said.startswith("leaf1 (eos): the device reports changes:\n  @@ -1,5 +1,")
    assert "   interface Ethernet1\n      description theirs\n  +   service-profile DLCP\n" in said
    assert "  +qos map dscp 26 to traffic-class 5\n" in said
    assert switch.running() == before
    assert sessions(switch) == set()
    code, said = switch.run("apply", "INTENT", "PLANS", "--diff")
    assert code == 0, said
    assert "  +   service-profile DLCP\n" in said


def test_what_the_switch_refuses_leaves_no_session(switch: EosSwitch) -> None:
    with pytest.raises(CommitFailed, match="qos map dscp 3 to nonsense"):
        asyncio.run(asked(driver(switch), "qos map dscp 3 to nonsense"))
    assert sessions(switch) == set()


def test_what_is_the_same_is_an_empty_diff(switch: EosSwitch) -> None:
    assert asyncio.run(asked(driver(switch), "qos map dscp 46 to traffic-class 5")) == ""


def test_no_diff_where_somebody_else_has_a_session(
    switch: EosSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NAPALM asks for ten seconds whether it has gone."""
    monkeypatch.setattr(time, "sleep", lambda _: None)
    clock = iter(range(0, 1000, 6))
    monkeypatch.setattr(time, "time", lambda: next(clock))
    switch.told("configure session theirs", "qos map dscp 2 to traffic-class 6", "end")
    with pytest.raises(Busy, match="another user has a configuration session open"):
        asyncio.run(asked(driver(switch), "qos map dscp 1 to traffic-class 6"))
    assert sessions(switch) == {"theirs"}
