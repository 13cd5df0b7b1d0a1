"""The NETCONF driver against netconfd: real SSH, a real candidate, a real confirmed commit."""

import asyncio
import os
import re
import shutil
import socket
import subprocess
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from ncclient.manager import Manager
from ncclient.xml_ import to_ele

from switchcfg.cli import workflow
from switchcfg.drivers.netconf import NetconfDriver
from switchcfg.errors import BadState, CommitFailed, Unreachable
from switchcfg.plan.plan import Plan
from switchcfg.plan.state import Change, Place, State, fingerprint
from switchcfg.platforms.platform import Netconf, Step
from tests.switches.ssh_switch import until

pytestmark = [
    pytest.mark.netns,
    pytest.mark.skipif(
        not (shutil.which("sshd") and shutil.which("netconfd")),
        reason="sshd or netconfd is not installed",
    ),
]
MODULE = Path(__file__).with_name("switchcfg-test-qos.yang")
QOS = "urn:dlcpd:switchcfg-test-qos"
BASE = "urn:ietf:params:xml:ns:netconf:base:1.0"
SSHD = """\
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
ListenAddress 127.0.0.1
Port {port}
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
Subsystem netconf "/usr/sbin/netconf-subsystem --ncxserver-sockname={port}@{folder}/ncx.sock"
"""
CLIENT = """\
Host *
    User root
    IdentityFile {folder}/key
    UserKnownHostsFile {folder}/known_hosts
"""


def queue(number: int, low: int, high: int) -> Step:
    """A queue's thresholds, as an RPC that puts them into the candidate."""
    values = f"<id>{number}</id><low>{low}</low><high>{high}</high>"
    config = f'<config><qos xmlns="{QOS}"><queue>{values}</queue></qos></config>'
    rpc = f'<edit-config xmlns="{BASE}"><target><candidate/></target>{config}</edit-config>'
    return Step("a queue", rpc)


ASK = (
    f'<get-config xmlns="{BASE}"><source><running/></source><filter type="subtree">'
    f'<qos xmlns="{QOS}"/></filter></get-config>'
)
# netconfd has no comparison; what its candidate holds takes the place of one.
COMPARE = ASK.replace("<running/>", "<candidate/>")


def highs(reply: str) -> list[str]:
    return re.findall(r"<(?:\w+:)?high>(\d+)<", reply)


DIALECT = Netconf(
    ASK,
    lambda reply: " ".join(highs(reply)),
    lambda step: step.payload,
    compare=COMPARE,
    compared=lambda reply: "".join(f"+ {each}\n" for each in highs(reply)),
)


class NetconfSwitch:
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.children: list[subprocess.Popen[Any]] = []

    def begin(self) -> None:
        for key in ("key", "host_key"):
            make = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", self.folder / key)
            subprocess.run(make, check=True)
        host_key = (self.folder / "host_key.pub").read_text()
        (self.folder / "known_hosts").write_text(f"[127.0.0.1]:{self.port} {host_key}")
        names = {"folder": self.folder, "port": self.port}
        (self.folder / "sshd_config").write_text(SSHD.format(**names))
        (self.folder / "ssh_config").write_text(CLIENT.format(**names))
        modules = self.folder / "modules"
        modules.mkdir()
        shutil.copy(MODULE, modules)
        Path("/run/sshd").mkdir(exist_ok=True)  # Debian's sshd wants it
        self.start(
            "netconfd",
            "--no-startup",
            "--target=candidate",
            "--access-control=off",
            "--superuser=root",
            f"--port={self.port}",
            f"--ncxserver-sockname={self.folder}/ncx.sock",
            f"--modpath={modules}:/usr/share/yuma/modules",
            f"--module={MODULE.stem}",
        )
        until((self.folder / "ncx.sock").exists)
        self.start(shutil.which("sshd") or "sshd", "-D", "-f", str(self.folder / "sshd_config"))
        until(self.answers)

    def start(self, *argv: str) -> None:
        with (self.folder / f"{Path(argv[0]).name}.log").open("wb") as log:
            # In its own folder: netconfd leaves a backup where it stands.
            child = subprocess.Popen(
                argv,
                cwd=self.folder,
                env={**os.environ, "HOME": str(self.folder)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        self.children.append(child)

    def answers(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def driver(self, *, state: str = "state", dialect: Netconf = DIALECT) -> NetconfDriver:
        return NetconfDriver(
            "leaf1",
            f"127.0.0.1:{self.port}",
            dialect,
            ssh_config=self.folder / "ssh_config",
            state=self.folder / state,
        )

    def end(self) -> None:
        for child in reversed(self.children):
            child.kill()
            child.wait()


@pytest.fixture(scope="module")
def switch(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NetconfSwitch]:
    made = NetconfSwitch(tmp_path_factory.mktemp("netconf"))
    try:
        made.begin()
        yield made
    finally:
        made.end()


def drive(
    switch: NetconfSwitch, what: Callable[[NetconfDriver], Awaitable[Any]], **options: Any
) -> Any:
    """Do something in a session of its own."""

    async def run() -> Any:
        driver = switch.driver(**options)
        try:
            return await what(driver)
        finally:
            await driver.close()

    return asyncio.run(run())


def running(switch: NetconfSwitch) -> str:
    return str(drive(switch, lambda driver: driver.get()))


class Highs:
    """As much of a platform as a workflow needs: the state is which thresholds there are."""

    name = "test"  # no questions about neighbours are known

    def read(self, text: str) -> State:
        return {Place("high", value, ""): "" for value in text.split()}

    def restore(self, before: State, changes: Sequence[Change]) -> str:
        return ""


def planned(switch: NetconfSwitch, value: str, *steps: Step) -> Plan:
    before = Highs().read(running(switch))
    changes = (Change(Place("high", value, ""), None, ""),)
    return Plan("leaf1", "test", "lab", fingerprint(before), changes, steps, ())


def applied(switch: NetconfSwitch, plan: Plan) -> None:
    platform: Any = Highs()

    async def both(driver: NetconfDriver) -> None:
        await workflow.apply(driver, platform, plan, seconds=60, tell=lambda _: None)
        await driver.confirm()

    drive(switch, both)


def test_the_workflow_applies_and_confirms(switch: NetconfSwitch) -> None:
    applied(switch, planned(switch, "1111", queue(1, 10, 1111)))
    assert "1111" in running(switch)
    assert drive(switch, lambda driver: driver.pending()) is None


async def candidate(driver: NetconfDriver) -> list[str]:
    ask = to_ele(COMPARE)
    return highs(await driver._call(lambda session: session.dispatch(ask).xml))  # noqa: SLF001


NONSENSE = f'<edit-config xmlns="{BASE}"><target><candidate/></target></edit-config>'


@pytest.mark.parametrize("forgets", [True, False])
def test_a_diff_leaves_nothing_in_the_candidate(
    switch: NetconfSwitch, monkeypatch: pytest.MonkeyPatch, forgets: bool
) -> None:
    """Also where the device does not forget it with the lock, as RFC 6241 asks."""
    if not forgets:
        monkeypatch.setattr(Manager, "locked", lambda *_: nullcontext())
    before = drive(switch, candidate)
    steps = (queue(3, 10, 3333),)

    async def both(driver: NetconfDriver) -> None:
        assert "+ 3333" in (await driver.diff(steps) or "")
        assert await candidate(driver) == before
        with pytest.raises(CommitFailed):
            await driver.diff((*steps, Step("nonsense", NONSENSE)))
        assert await candidate(driver) == before

    drive(switch, both)


def test_no_diff_where_the_device_has_none_or_does_not_say_it(
    switch: NetconfSwitch, monkeypatch: pytest.MonkeyPatch
) -> None:
    def silent(_reply: str) -> str:
        raise BadState("no comparison")

    steps = (queue(3, 10, 3333),)
    without = replace(DIALECT, compare="")
    assert drive(switch, lambda driver: driver.diff(steps), dialect=without) is None
    odd = replace(DIALECT, compared=silent)
    monkeypatch.setattr(Manager, "locked", lambda *_: nullcontext())

    async def refused(driver: NetconfDriver) -> None:
        with pytest.raises(CommitFailed, match="leaf1: no comparison"):
            await driver.diff(steps)
        assert "3333" not in await candidate(driver)

    drive(switch, refused, dialect=odd)


def test_a_commit_that_the_device_loses_is_noticed(switch: NetconfSwitch) -> None:
    """netconfd forgets what it has validated before it commits it, and says "ok" all the same."""
    validate = f'<validate xmlns="{BASE}"><source><candidate/></source></validate>'
    plan = planned(switch, "2222", queue(2, 10, 2222), Step("validate", validate))
    with pytest.raises(
        CommitFailed, match="differs from the plan after the change: high 2222 is None"
    ):
        applied(switch, plan)
    assert "2222" not in running(switch)
    applied(switch, planned(switch, "2222", queue(2, 10, 2222)))


def test_a_host_key_that_is_not_known_is_refused(switch: NetconfSwitch) -> None:
    known = switch.folder / "known_hosts"
    text = known.read_text()
    known.write_text("")
    try:
        with pytest.raises(Unreachable):
            running(switch)
    finally:
        known.write_text(text)
