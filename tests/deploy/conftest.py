"""One wheel, one package and one machine for all tests of this folder."""

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests.deploy import image
from tests.deploy.machine import Machine, unavailable
from tests.wheel import BUILD, Built, build

ROOT: Final = Path(__file__).parents[2]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return build(tmp_path_factory.mktemp("built"))


@pytest.fixture(scope="session")
def package(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The .deb, as `deploy/packages/build-packages` makes it, with the .rpm beside it."""
    if reason := unavailable():
        pytest.skip(f"machine: {reason}")
    folder = tmp_path_factory.mktemp("package")
    done = subprocess.run(
        [str(ROOT / "deploy/packages/build-packages"), str(folder), str(built.wheel)],
        env=os.environ | {"PYTHON": sys.executable, "TMPDIR": str(folder)},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    [deb] = folder.glob("*.deb")
    return deb


@pytest.fixture(scope="session")
def machine(package: Path) -> Iterator[Machine]:
    """Booted, with the package installed and a user who may use the daemon."""
    shown = {Path(__file__).parent: "/checks", ROOT / "deploy": "/deploy", ROOT: str(ROOT)}
    machine = Machine(shown | {package.parent: "/package"})
    try:
        machine.booted()
        machine.run("rm -f /usr/sbin/policy-rc.d")  # images of containers let nothing be started
        machine.run("dpkg --install /package/*.deb")
        machine.run("useradd --user-group --groups dlcpd-users --no-create-home trainer")
        yield machine
    finally:
        machine.off()


@pytest.fixture(scope="session")
def podman(tmp_path_factory: pytest.TempPathFactory) -> Iterator[image.Podman]:
    """With image.IMAGE, which deploy/oci/Containerfile makes."""
    if reason := image.unavailable():
        pytest.skip(f"images: {reason}")
    folder = tmp_path_factory.mktemp("images")
    with image.Podman(folder) as podman:
        image.make_base(podman, folder)
        image.build(podman, ROOT)
        yield podman
