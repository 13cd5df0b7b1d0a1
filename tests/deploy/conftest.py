"""One package and one machine for all tests of this folder."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.deploy.machine import Machine, unavailable

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The .deb, as `deploy/deb/build-deb` makes it."""
    if reason := unavailable():
        pytest.skip(f"machine: {reason}")
    folder = tmp_path_factory.mktemp("package")
    done = subprocess.run(
        [str(ROOT / "deploy/deb/build-deb"), str(folder)],
        env=os.environ | {"PYTHON": sys.executable, "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    [deb] = folder.glob("*.deb")
    return deb


@pytest.fixture(scope="session")
def machine(package: Path) -> Iterator[Machine]:
    """Booted, with the package installed and a user who may use the daemon."""
    machine = Machine(
        {Path(__file__).parent: "/checks", ROOT / "deploy": "/deploy", package.parent: "/package"}
    )
    try:
        machine.booted()
        machine.run("rm -f /usr/sbin/policy-rc.d")  # images of containers let nothing be started
        machine.run("dpkg --install /package/*.deb")
        machine.run("useradd --user-group --groups dlcpd-users --no-create-home trainer")
        yield machine
    finally:
        machine.off()
