"""A fleet is upgraded and rolled back host by host, beside its jobs: by packages of two versions.

The next version speaks one more version of messages and of the protocol between peers. Host A is
`dlcpd.service`, host B `dlcpd@b.service` of the version before. Ranks have a client of the version
before, as an image of a training that nobody rebuilt.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Final

import pytest

from dlcpd.build import NOTE
from dlcpd.contract.messages import SERVED, VERSION
from dlcpd.daemon.peers.peer_messages import PEER_VERSION
from tests.checks import Measured
from tests.deploy.jobs import SOCKET, Job, main_pid, train
from tests.deploy.machine import Machine
from tests.deploy.test_service import change, instance
from tests.wheel import BUILD

pytestmark = pytest.mark.timeout(2 * BUILD)  # the package is built, and machines are shared

BEFORE: Final = "/opt/before"
CLIENT: Final = f"{BEFORE}/bin/python"
NEXT: Final = "9.9.9"
CHANGES: Final = {
    "contract/messages.py": (f"s/^VERSION: Final = {VERSION}/VERSION: Final = {VERSION + 1}/",),
    "daemon/peers/peer_messages.py": (
        f"s/^PEER_VERSION: Final = .*/PEER_VERSION: Final = {PEER_VERSION + 1}/",
        f"s/^OLDEST_PEER: Final = .*/OLDEST_PEER: Final = {PEER_VERSION}/",
    ),
}


def run(*words: str | Path) -> str:
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout


@pytest.fixture(scope="module")
def following(package: Path) -> str:
    """Inside the machine, the package of the next version: the one that was built, changed."""
    folder = package.parent / "next"
    root = folder / "root"
    run("mkdir", "-p", folder)
    run("dpkg-deb", "--raw-extract", package, root)
    [code] = root.glob("opt/dlcpd/lib/python3*/site-packages/dlcpd")
    for name, changes in CHANGES.items():
        source = code / name
        before = source.read_text()
        run("sed", "-Ei", *(word for each in changes for word in ("-e", each)), source)
        assert source.read_text() != before
        for stale in source.parent.glob(f"__pycache__/{source.stem}.*"):
            stale.unlink()
    (code / NOTE).write_text(NEXT)
    run("sed", "-i", f"s/^Version: .*/Version: {NEXT}/", root / "DEBIAN/control")
    run("dpkg-deb", "-Znone", "--build", root, folder / "dlcpd.deb")
    run("rm", "-r", root)
    return "/package/next/dlcpd.deb"


@pytest.fixture
def other(machine: Machine) -> Iterator[str]:
    """The socket of host B."""
    machine.run("systemctl reset-failed; systemctl start dlcpd.socket dlcpd.service")
    machine.run(f"cp -a /opt/dlcpd {BEFORE} && sed -i s:/opt/dlcpd:{BEFORE}: {BEFORE}/bin/dlcpd")
    start = f"ExecStart={BEFORE}/bin/dlcpd --config /etc/dlcpd/b.toml"
    change(machine, "dlcpd@b.service", "ExecStart=", start)
    try:
        with instance(machine, "b") as socket:
            yield socket
    finally:
        change(machine, "dlcpd@b.service")
        machine.run(f"rm -r {BEFORE} /etc/dlcpd/b.toml; dpkg --install /package/*.deb")


def daemon(machine: Machine) -> tuple[str, list[int]]:
    """Release and message versions of host A's running daemon, by the installed `dlcpctl`."""
    report = json.loads(
        machine.run("dlcpctl status --json /run/status >/dev/null; cat /run/status")
    )
    return report["version"], report["messages"]


def replaced(machine: Machine, package: str) -> str:
    """Install a package beside a job: the daemon of before serves it to its end. What dpkg says."""
    pid = main_pid(machine)
    said = machine.run(f"dpkg --install {package}")
    assert "jobs are served by the version of before" in said
    assert main_pid(machine) == pid
    return said


@pytest.mark.check(40, "upgrade and rollback of one host of two, beside a job, with older clients")
def test_an_upgrade_and_its_rollback(
    machine: Machine, following: str, other: str, measured: Measured
) -> None:
    first, spoken = daemon(machine)
    assert spoken == list(SERVED)
    for package, version, messages in (
        (following, NEXT, [VERSION + 1, VERSION]),
        ("/package/*.deb", first, list(SERVED)),
    ):
        with Job(machine, SOCKET, other, python=CLIENT) as ranks:
            train(ranks)
            replaced(machine, package)
            train(ranks)  # the daemon whose files are gone
            assert daemon(machine)[0] != version
        machine.until("dlcpctl status | grep -x '0 sessions'", "the job is gone")
        machine.run(f"dpkg --install {package}")  # as it said: no job is left
        assert daemon(machine) == (version, messages)
        with Job(machine, SOCKET, other, python=CLIENT) as ranks:
            train(ranks)
    measured(f"{first} -> {NEXT} -> {first}, three jobs of two hosts without an error")


@pytest.mark.check(41, "an upgrade in the middle of a drain: no job ends, and the cordon stays")
def test_an_upgrade_in_the_middle_of_a_drain(
    machine: Machine, following: str, other: str, measured: Measured
) -> None:
    first, _ = daemon(machine)
    kept = "dlcpd: healthy, not ready: cordoned (upgrade), as before"
    drain = machine.command("dlcpctl", "drain", "--why", "upgrade", "--wait", "600")
    with ExitStack() as stack:
        with Job(machine, SOCKET, other, python=CLIENT) as ranks:
            train(ranks)
            waiting = stack.enter_context(
                subprocess.Popen(drain, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            )
            machine.until("! dlcpctl health --ready", "new jobs are refused")
            assert kept in replaced(machine, following)
            train(ranks)  # it did not end
            assert waiting.poll() is None, "the drain goes on, by the daemon of before"
        text, _ = waiting.communicate()
    assert waiting.returncode == 0, text
    assert text.splitlines()[-1] == "no session is left: it is safe to stop the daemon or the host"
    assert kept in machine.run(f"dpkg --install {following}")
    assert daemon(machine)[0] == NEXT and first != NEXT
    refused = Job(machine, SOCKET, other, python=CLIENT)
    assert "takes no new jobs: cordoned (upgrade)" in refused.ranks[0].says()
    refused.end()
    machine.run("dlcpctl uncordon && dlcpctl health --ready")
    with Job(machine, SOCKET, other, python=CLIENT) as ranks:
        train(ranks)
    measured(f"{first} -> {NEXT} while a drain waits; cordoned until dlcpctl uncordon")
