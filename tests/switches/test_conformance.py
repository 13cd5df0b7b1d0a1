"""What every driver promises, asked of each with a real protocol and the nearest to a device."""

import asyncio
import json
import math
import os
import shutil
import time
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from switchcfg.cli.neighbours import look
from switchcfg.drivers.driver import Commit, Driver
from switchcfg.drivers.eos import EosDriver
from switchcfg.drivers.gnmi import GnmiDriver
from switchcfg.drivers.login import Login
from switchcfg.drivers.nvue import NvueDriver
from switchcfg.drivers.nxos import NxosDriver
from switchcfg.drivers.ssh import SshDriver
from switchcfg.errors import Busy, CommitFailed, NothingPending
from switchcfg.intent.intent import parse
from switchcfg.plan.state import Place, difference
from switchcfg.platforms.linux.platform import Linux
from switchcfg.platforms.platform import ShellPlatform, Step
from switchcfg.platforms.sonic.platform import Sonic
from tests.switches.nvue_switch import NAME, NvueSwitch
from tests.switches.sonic_switch import SonicSwitch
from tests.switches.ssh_switch import SshSwitch, until
from tests.switches.test_eos import EosSwitch
from tests.switches.test_gnmi import GnmiSwitch
from tests.switches.test_netconf import NetconfSwitch, queue
from tests.switches.test_nxos import GRAIN, NxosSwitch

NEEDS = {
    "linux": ("sshd",),
    "sonic": ("sshd", "redis-check-rdb"),
    "sonic-reload": ("sshd", "redis-check-rdb"),
    "gnmi": (),
    "netconf": ("sshd", "netconfd"),
    "eos": (),
    "nvue": ("sshd",),
    "nxos": (),
}
pytestmark = pytest.mark.netns
WHO = "me@here"
PEERS = frozenset(["192.0.2.1"])
LONG = 600  # seconds until a revert that no test waits for


@dataclass
class Endpoint:
    """A device, and what may be done to it."""

    driver: Callable[[], Driver]  # a new one: another process would have another
    state: Callable[[], object]  # what the device is, past the driver
    good: tuple[Step, ...]  # changes the state
    bad: tuple[Step, ...]  # changes it as well, and then is refused
    restore: str
    end: Callable[[], None]
    later: Callable[[float], None] | None  # makes time pass on the device, where that can be had
    grain: int = 0  # seconds that its timer may be late
    says: tuple[str, ...] = ()  # what its own diff of the good steps names; (): it has none
    early: bool = True  # it has one before anything is done, too
    platform: str = ""  # "": its neighbours cannot be had here
    port: str = ""  # hears port Ethernet7 of spine1
    peers: frozenset[str] = frozenset()  # of BGP sessions
    mtu: int = 0  # of the port; 0: not told


def shell(switch: SshSwitch, platform: ShellPlatform) -> Callable[[], Driver]:
    intent = parse((switch.folder / "intent.toml").read_text(), "intent")
    [device] = intent.devices
    spoken = platform.shell(intent, device)
    config = switch.folder / "ssh_config"
    return lambda: SshDriver(device.name, "door", spoken, config=config)


def linux(folder: Path) -> Endpoint:
    switch = SshSwitch(folder)
    switch.begin()
    switch.on_loopback()
    good = Step("a queue", "tc qdisc add dev p1 root bfifo limit 5000\n")
    return Endpoint(
        shell(switch, Linux()),
        switch.queues,
        (good,),
        (good, Step("none", "tc qdisc nonsense\n")),
        "tc qdisc del dev p1 root 2>/dev/null || :\n",
        switch.end,
        switch.later,
    )


def sonic(folder: Path) -> Endpoint:
    switch = SonicSwitch(folder)
    switch.begin()
    switch.on_loopback()
    spine = {"lldp_rem_sys_name": "spine1", "lldp_rem_port_id": "etp7"}
    switch.hear("Ethernet0", {**spine, "lldp_rem_port_desc": "Ethernet7"})
    add = [{"op": "add", "path": "/SCHEDULER/ours", "value": {"type": "STRICT"}}]
    pool = [{"op": "add", "path": "/BUFFER_POOL/ours", "value": {"size": "1"}}]
    good, bad = Step("a scheduler", json.dumps(add)), Step("a pool", json.dumps(pool))
    restore = Sonic().restore({}, ())
    return Endpoint(
        shell(switch, Sonic()),
        switch.contents,
        (good,),
        (good, bad),
        restore,
        switch.end,
        switch.later,
        platform="sonic",
        port="Ethernet0",
    )


def sonic_reload(folder: Path) -> Endpoint:
    """Of a release that takes no patch: all at once, by a reload of the whole switch."""
    switch = SonicSwitch(folder)
    switch.begin()
    switch.fill({"VERSIONS": {"DATABASE": {"VERSION": "version_202405_02"}}})
    switch.on_loopback()
    present = Sonic().read(switch.shell(f"{switch.folder}/bin/sonic-cfggen -d --print-data"))
    profile = Place("BUFFER_PROFILE", "DLCP_Q7", "size")
    changes = difference(present, {profile: "0"}, lambda *_: False)
    [good] = Sonic().steps(present, changes)
    pool = [{"op": "add", "path": "/BUFFER_POOL/ours", "value": {"size": "1"}}]
    bad = Step("a pool", json.dumps(pool))
    restore = Sonic().restore(present, changes)
    return Endpoint(
        shell(switch, Sonic()),
        switch.contents,
        (good,),
        (good, bad),
        restore,
        switch.end,
        switch.later,
    )


def gnmi(folder: Path) -> Endpoint:
    switch, path = GnmiSwitch(folder), os.environ["PATH"]
    os.environ["PATH"] = switch.environment["PATH"]  # this host waits for the device

    tree = json.loads((folder / "tree.json").read_text())
    spine = {"system-name": "spine1", "port-id": "7", "port-description": "Ethernet7"}
    heard = {"neighbor": [{"id": "1", "state": spine}]}
    tree["lldp"] = {"interfaces": {"interface": [{"name": "Ethernet1", "neighbors": heard}]}}
    (folder / "tree.json").write_text(json.dumps(tree))

    def end() -> None:
        os.environ["PATH"] = path
        switch.end()

    where = "openconfig-qos:qos/queue-management-profiles/queue-management-profile[name=OURS]"
    leaf = "max-drop-probability-percent"

    def put(percent: int) -> Step:
        body = {"delete": [], "update": {f"{where}/wred/uniform/config": {leaf: percent}}}
        return Step("a curve", json.dumps(body))

    address = f"127.0.0.1:{switch.port}"
    ca, cert, key = (str(folder / name) for name in ("ca.pem", "client.pem", "client.key"))
    login = Login(ca, cert, key, user="", password="")
    return Endpoint(
        lambda: GnmiDriver("leaf1", address, login=login, folder=folder / "pending"),
        switch.tree,
        (put(50),),
        (put(60), put(500)),
        json.dumps({"delete": ["openconfig-qos:qos/queue-management-profiles"], "update": {}}),
        end,
        switch.later,
        platform="openconfig",
        port="Ethernet1",
    )


def netconf(folder: Path) -> Endpoint:
    switch = NetconfSwitch(folder)
    switch.begin()
    ask = switch.driver

    def state() -> object:
        return asyncio.run(_closed(ask(), lambda driver: driver.get()))

    return Endpoint(
        ask,
        state,
        (queue(1, 10, 1001),),
        (queue(2, 10, 2002), queue(3, 100, 50)),
        "",
        switch.end,
        None,
        says=("+ 1001",),
    )


def eos(folder: Path) -> Endpoint:
    switch = EosSwitch(folder)

    def mapped(dscp: int) -> Step:
        return Step("a map", f"qos map dscp {dscp} to traffic-class 6\n")

    return Endpoint(
        lambda: EosDriver(
            "leaf1", f"127.0.0.1:{switch.port}", login=switch.login, state=folder / "pending"
        ),
        switch.running,
        (mapped(1),),
        (mapped(2), Step("none", "qos map dscp 3 to nonsense\n")),
        "",
        switch.end,
        switch.later,
        says=("@@ ", "\n+qos map dscp 1 to traffic-class 6"),
        platform="eos",
        port="Ethernet1",
        peers=PEERS,
        mtu=9214,
    )


def nvue(folder: Path) -> Endpoint:
    switch = NvueSwitch(folder)

    def mapped(dscp: int) -> Step:
        line = f"nv set qos mapping default-global dscp {dscp} switch-priority 6"
        return Step("a map", f"{line}\n")

    config = folder / "ssh_config"
    return Endpoint(
        lambda: NvueDriver(NAME, NAME, config=config),
        switch.applied,
        (mapped(1),),
        (mapped(2), Step("none", "nv set qos nonsense 1\n")),
        "",
        switch.end,
        switch.later,
        says=("- set:\n    qos:\n", "'1':\n              switch-priority: 6"),
    )


def nxos(folder: Path) -> Endpoint:
    switch = NxosSwitch(folder)

    def grouped(name: str) -> Step:
        return Step(
            "a policy", f"policy-map type qos {name}\n  class class-default\n    set qos-group 4\n"
        )

    return Endpoint(
        lambda: NxosDriver("leaf1", f"127.0.0.1:{switch.port}", login=switch.login),
        switch.running,
        (grouped("one"),),
        (grouped("two"), Step("none", "qos nonsense\n")),
        "",
        switch.end,
        switch.later,
        GRAIN,
        says=("policy-map type qos one\n  class class-default\n    set qos-group 4",),
        early=False,
        platform="nxos",
        port="Ethernet1/1",
        peers=PEERS,
        mtu=9216,
    )


MADE = {
    "linux": linux, "sonic": sonic, "sonic-reload": sonic_reload, "gnmi": gnmi,
    "netconf": netconf, "eos": eos, "nvue": nvue, "nxos": nxos,
}  # fmt: skip
# pygnmi leaves the files that it reads to the collector.
LEAKY = pytest.mark.filterwarnings(
    "ignore::ResourceWarning", "ignore::pytest.PytestUnraisableExceptionWarning"
)


@pytest.fixture(
    scope="module",
    params=[
        "linux",
        "sonic",
        "sonic-reload",
        pytest.param("gnmi", marks=LEAKY),
        "netconf",
        "eos",
        "nvue",
        "nxos",
    ],
)
def endpoint(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Endpoint]:
    name = str(request.param)
    absent = [tool for tool in NEEDS[name] if not shutil.which(tool)]
    if absent:
        pytest.skip(f"{', '.join(absent)} not installed")
    made = MADE[name](tmp_path_factory.mktemp(name))
    yield made
    made.end()


async def _closed(driver: Driver, what: Callable[[Driver], Awaitable[Any]]) -> Any:
    try:
        return await what(driver)
    finally:
        await driver.close()


def do(endpoint: Endpoint, what: Callable[[Driver], Awaitable[Any]]) -> Any:
    """With a driver of its own, as a process of its own would have."""
    return asyncio.run(_closed(endpoint.driver(), what))


def commit(
    endpoint: Endpoint, *, seconds: int = LONG, bad: bool = False, diff: bool = False
) -> str | None:
    steps = endpoint.bad if bad else endpoint.good
    wanted = Commit(steps, endpoint.restore, seconds, WHO, diff)
    said: str | None = do(endpoint, lambda driver: driver.commit(wanted))
    return said


def soon(endpoint: Endpoint) -> int:
    """Seconds until a revert before which this machine, as busy as it is, has done more."""
    if endpoint.later is not None:
        return LONG
    began = time.monotonic()
    commit(endpoint)
    do(endpoint, lambda driver: driver.abort())
    return max(3, math.ceil(4 * (time.monotonic() - began)))


def test_it_is_ready_and_tells_the_same_twice(endpoint: Endpoint) -> None:
    assert not do(endpoint, lambda driver: driver.examine())
    first, second = (do(endpoint, lambda driver: driver.get()) for _ in range(2))
    assert first == second
    assert do(endpoint, lambda driver: driver.pending()) is None


def test_it_tells_its_neighbours(endpoint: Endpoint) -> None:
    if not endpoint.platform:
        return
    seen = do(endpoint, lambda driver: look(driver, endpoint.platform, mtu=True))
    [heard] = seen.lldp
    assert (heard.port, heard.system.partition(".")[0]) == (endpoint.port, "spine1")
    assert "Ethernet7" in heard.ports
    assert (seen.bgp or frozenset()) == endpoint.peers
    assert seen.mtu.get(endpoint.port, 0) == endpoint.mtu


def test_a_question_that_it_does_not_take_leaves_a_subject_unknown(endpoint: Endpoint) -> None:
    before = endpoint.state()
    seen = do(endpoint, lambda driver: look(driver, "acme"))
    assert seen.unknown == ("neighbours: switchcfg cannot ask acme",)
    wrong = "junos" if endpoint.platform != "junos" else "eos"
    seen = do(endpoint, lambda driver: look(driver, wrong))
    assert seen.lldp is None and seen.unknown[0].startswith("LLDP: ")
    assert endpoint.state() == before


def names(endpoint: Endpoint, diff: str | None, *, early: bool = False) -> bool:
    if not endpoint.says or (early and not endpoint.early):
        return diff is None
    return diff is not None and all(each in diff for each in endpoint.says)


def test_a_diff_names_what_would_change_and_leaves_nothing(endpoint: Endpoint) -> None:
    before = endpoint.state()
    for _ in range(2):  # what the first one left, the second one would name, or be refused for
        diff = do(endpoint, lambda driver: driver.diff(endpoint.good))
        assert names(endpoint, diff, early=True)
        assert endpoint.state() == before
    assert do(endpoint, lambda driver: driver.pending()) is None


def test_a_commit_says_what_it_changes_where_that_is_asked_for(endpoint: Endpoint) -> None:
    before = endpoint.state()
    assert commit(endpoint) is None
    do(endpoint, lambda driver: driver.abort())
    assert names(endpoint, commit(endpoint, diff=True))
    assert do(endpoint, lambda driver: driver.pending()).who == WHO
    do(endpoint, lambda driver: driver.abort())
    assert endpoint.state() == before


def test_not_confirmed_it_reverts(endpoint: Endpoint) -> None:
    before = endpoint.state()
    seconds = soon(endpoint)
    commit(endpoint, seconds=seconds)
    assert endpoint.state() != before
    if endpoint.later is not None:
        endpoint.later(seconds)
    patience, pause = (60.0, 0.5) if endpoint.later is not None else (60.0 + seconds, 2.0)
    # netconfd looks at its timer where it hears nothing for a second.
    until(lambda: endpoint.state() == before, seconds=patience, every=pause)
    until(lambda: do(endpoint, lambda driver: driver.pending()) is None, seconds=patience)
    with pytest.raises(NothingPending):
        do(endpoint, lambda driver: driver.confirm())


def test_aborted_it_reverts_at_once_and_only_once(endpoint: Endpoint) -> None:
    before = endpoint.state()
    commit(endpoint)
    found = do(endpoint, lambda driver: driver.pending())
    assert found.who == WHO
    assert 0 < found.seconds <= LONG + endpoint.grain
    do(endpoint, lambda driver: driver.abort())
    assert endpoint.state() == before
    with pytest.raises(NothingPending):
        do(endpoint, lambda driver: driver.abort())


def test_a_refused_step_leaves_nothing(endpoint: Endpoint) -> None:
    before = endpoint.state()
    with pytest.raises(CommitFailed):
        commit(endpoint, bad=True)
    assert endpoint.state() == before
    assert do(endpoint, lambda driver: driver.pending()) is None


def test_while_one_is_pending_another_is_told_whose_it_is(endpoint: Endpoint) -> None:
    before = endpoint.state()
    commit(endpoint)
    with pytest.raises(Busy, match=WHO):
        commit(endpoint)
    if endpoint.says and endpoint.early:
        with pytest.raises(Busy, match=WHO):
            do(endpoint, lambda driver: driver.diff(endpoint.good))
    do(endpoint, lambda driver: driver.abort())
    assert endpoint.state() == before


def test_confirmed_it_stays(endpoint: Endpoint) -> None:
    """The last one: nothing takes it back."""
    seconds = soon(endpoint)
    commit(endpoint, seconds=seconds)
    do(endpoint, lambda driver: driver.confirm())
    after = endpoint.state()
    assert do(endpoint, lambda driver: driver.pending()) is None
    with pytest.raises(NothingPending):
        do(endpoint, lambda driver: driver.confirm())
    if endpoint.later is not None:
        endpoint.later(seconds)
    time.sleep(2 if endpoint.later is not None else seconds + 1)
    assert endpoint.state() == after
    do(endpoint, lambda driver: driver.save())
    assert endpoint.state() == after
