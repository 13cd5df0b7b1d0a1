"""A SONiC-like switch of a release that takes no patch of ours: reloaded as a whole, by consent."""

import asyncio
import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import asyncssh
import pytest

from switchcfg.drivers import ssh
from switchcfg.drivers.driver import Commit
from switchcfg.drivers.ssh import SshDriver
from switchcfg.errors import Busy, CommitFailed
from switchcfg.intent.intent import parse
from switchcfg.plan.plan import Plan, plan
from switchcfg.platforms.sonic import scripts
from switchcfg.platforms.sonic.platform import Sonic
from tests.switches.sonic_switch import SonicSwitch
from tests.switches.ssh_switch import until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(
        not (shutil.which("sshd") and shutil.which("redis-check-rdb")),
        reason="sshd or redis is not installed",
    ),
]
SONIC = Sonic()


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[SonicSwitch]:
    with SonicSwitch(tmp_path).running() as made:
        made.fill({"VERSIONS": {"DATABASE": {"VERSION": "version_202405_02"}}})
        made.on_loopback()
        yield made


def allow(switch: SonicSwitch) -> None:
    file = switch.folder / "intent.toml"
    file.write_text(file.read_text().replace("[[device.ports]]", "reload = true\n[[device.ports]]"))


def test_without_consent_nothing_is_touched_and_with_it_all_is_done_and_taken_back(
    switch: SonicSwitch,
) -> None:
    before = switch.contents()
    code, said = switch.run("plan", "INTENT", "--out", "PLANS")
    assert code == 1
    assert "allow that with [[device]] reload = true" in said
    assert switch.noted("reloads") == []
    allow(switch)
    code, said = switch.run("plan", "INTENT", "--out", "PLANS")
    assert code == 2, said
    assert "disrupts: the switch restarts its services" in said
    code, said = switch.run("apply", "INTENT", "PLANS", "--revert-after", "120")
    assert code == 1
    assert "its steps may take 20 minutes, and the device would revert before they end: " in said
    assert "give --revert-after 1260 or more" in said
    assert switch.noted("reloads") == []
    code, said = switch.run("apply", "INTENT", "PLANS", "--json")
    assert code == 0, said
    assert f"{switch.name}: disrupts: the switch restarts its services" in said
    assert switch.noted("reloads") == ["-y"]
    now = switch.contents()
    assert {key: now[key] for key in before} == before  # what is theirs, and all other tables
    assert "WRED_PROFILE|DLCP_Q7" in now
    assert switch.run("verify", "INTENT")[0] == 0
    code, said = switch.run("rollback", "INTENT", "--device", switch.name)
    assert code == 0, said
    assert switch.contents() == before
    assert switch.noted("reloads") == ["-y", "-y"]


# --- what goes wrong ------------------------------------------------------------------------


def planned(switch: SonicSwitch) -> tuple[Plan, SshDriver, Commit]:
    allow(switch)
    intent = parse((switch.folder / "intent.toml").read_text(), "intent")
    [device] = intent.devices
    present = SONIC.read(switch.shell(f"{switch.folder}/bin/sonic-cfggen -d --print-data"))
    made = plan(intent, device, SONIC, present)
    driver = SshDriver(
        device.name, "door", SONIC.shell(intent, device), config=switch.folder / "ssh_config"
    )
    return made, driver, Commit(made.steps, SONIC.restore(present, made.changes), 600, "me@here")


def test_a_switch_that_is_not_ready_refuses_and_is_not_reloaded_to_undo_nothing(
    switch: SonicSwitch,
) -> None:
    before = switch.contents()
    (switch.folder / "not ready").touch()
    _, driver, wanted = planned(switch)

    async def run() -> None:
        with pytest.raises(CommitFailed, match="SwSS container is not ready"):
            await driver.commit(wanted)
        assert await driver.pending() is None
        await driver.close()

    asyncio.run(run())
    assert switch.contents() == before
    assert switch.noted("reloads") == []


def test_ports_that_do_not_come_back_undo_it(
    switch: SonicSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = switch.contents()
    monkeypatch.setattr(scripts, "PATIENCE", 5)
    (switch.folder / "stays down").touch()
    _, driver, wanted = planned(switch)

    async def run() -> None:
        with pytest.raises(CommitFailed, match="come up again: Ethernet0 Ethernet4 Ethernet8"):
            await driver.commit(wanted)
        await driver.close()

    asyncio.run(run())
    assert switch.contents() == before
    assert switch.noted("reloads") == ["-y", "-y -f"]


def test_a_connection_that_breaks_meanwhile_is_made_again(
    switch: SonicSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    connections: list[asyncssh.SSHClientConnection] = []
    connect = ssh.connect

    async def noted(name: str, config: Path | None) -> asyncssh.SSHClientConnection:
        connections.append(await connect(name, config))
        return connections[-1]

    monkeypatch.setattr(ssh, "connect", noted)
    monkeypatch.setattr(ssh, "POLL", 0.2)
    switch.tool("config", delay=1.0)
    made, driver, wanted = planned(switch)

    async def run() -> None:
        task = asyncio.create_task(driver.commit(wanted))
        while not (switch.folder / "down").exists():
            await asyncio.sleep(0.05)
        connections[-1].abort()
        await task
        await driver.confirm()
        await driver.close()

    asyncio.run(run())
    assert made.changes
    assert len(connections) == 2
    assert "WRED_PROFILE|DLCP_Q7" in switch.contents()
    assert switch.noted("reloads") == ["-y"]


def test_time_that_runs_out_in_the_middle_reverts(switch: SonicSwitch) -> None:
    before = switch.contents()
    switch.tool("config", delay=4.0)
    _, driver, wanted = planned(switch)

    async def run() -> None:
        with pytest.raises((CommitFailed, Busy), match=r"time ran out|is reverting a change"):
            await driver.commit(Commit(wanted.steps, wanted.restore, 2, wanted.who))
        await driver.close()

    asyncio.run(run())
    until(lambda: not Path("/run/switchcfg", switch.name).exists())
    assert switch.contents() == before
    assert switch.noted("reloads") == ["-y", "-y -f"]


def test_the_validators_are_those_of_the_release(switch: SonicSwitch) -> None:
    """Else the tests above would prove nothing."""
    value = {"pool": "egress_lossy_pool", "size": "0", "dynamic_th": "1"}
    patch = switch.folder / "patch.json"
    patch.write_text(json.dumps([{"op": "add", "path": "/BUFFER_PROFILE/X", "value": value}]))
    apply = f"{switch.folder}/bin/config apply-patch {patch} 2>&1 || :"
    assert "Modification of BUFFER_PROFILE table is illegal" in switch.shell(apply)
    switch.fill({"VERSIONS": {"DATABASE": {"VERSION": "version_202511_01"}}})
    assert "Done" in switch.shell(apply)
