"""What is built and installed runs where no checkout is: commands, data files, entry points."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import time
import zipfile
from pathlib import Path
from typing import Final

import pytest

from dlcp_lab.emulation import cables, early_drop
from tests.checks import Measured
from tests.wheel import BUILD, Built, Installed, beside_torch, environ, environment

pytestmark = pytest.mark.timeout(2 * BUILD)  # builds fetch setuptools, and machines are shared
PACKAGES: Final = ("dlcp_client", "dlcp_lab", "dlcpd", "switchcfg")
PATIENCE: Final = 60.0  # seconds until a test fails; never a measure of anything


@pytest.fixture(scope="module")
def installed(built: Built, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return beside_torch(tmp_path_factory.mktemp("wheel"), built.wheel)


@pytest.mark.check(15, "wheel: in a clean environment, without torch, a daemon serves")
def test_a_clean_environment_without_torch(
    built: Built, tmp_path: Path, measured: Measured
) -> None:
    clean = environment(tmp_path, str(built.wheel))
    assert "No module named 'torch'" in clean.run("python", "-c", "import torch").stderr
    version = clean.run("dlcpd", "--version").stdout.splitlines()[0]
    assert version == f"dlcpd {built.wheel.name.split('-')[1]}"

    doctor = clean.run("dlcpctl", "doctor", "--json", "-")
    failing = [row for row in json.loads(doctor.stdout) if row["verdict"] == "fail"]
    assert doctor.returncode == bool(failing) and "Traceback" not in doctor.stderr

    door = tmp_path / "dlcpd.sock"
    (tmp_path / "dlcpd.toml").write_text(f'[daemon]\nsocket = "{door}"\n')
    daemon = subprocess.Popen(
        clean.command("dlcpd", "--config", str(tmp_path / "dlcpd.toml")),
        cwd=clean.empty,
        env=environ(),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until_it_listens(door, daemon)
        status = clean.run("dlcpctl", "status", "--socket", str(door))
        assert status.returncode == 0 and "0 sessions" in status.stdout, status.stderr
        daemon.send_signal(signal.SIGTERM)
        _, log = daemon.communicate(timeout=PATIENCE)
    finally:
        daemon.kill()
        daemon.communicate()
    assert daemon.returncode == 0 and "Traceback" not in log
    brings = len(list(clean.environment.glob("lib/python*/site-packages/*.dist-info")))
    measured(f"{version}, {brings - 1} other packages; doctor: {doctor.stderr.splitlines()[-1]}")


def until_it_listens(door: Path, daemon: "subprocess.Popen[str]") -> None:
    """Return when a daemon accepts clients."""
    deadline = time.monotonic() + PATIENCE
    while True:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            if sock.connect_ex(str(door)) == 0:
                return
        assert daemon.poll() is None and time.monotonic() < deadline, "no daemon"
        time.sleep(0.05)


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_comes_from_the_wheel(installed: Installed, package: str) -> None:
    where = installed.run("python", "-c", f"import {package}; print({package}.__file__)")
    assert where.stdout.startswith(str(installed.environment)), where.stderr


def test_the_wheel_brings_these_packages_and_no_other(built: Built) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)


def test_the_source_distribution_can_be_read_tested_and_pinned(built: Built) -> None:
    with tarfile.open(built.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        "CHANGELOG.md",
        "LICENSE",
        "Makefile",
        "README.md",
        "constraints.txt",
        "setup.py",
        ".ci/run",
        ".ci/system-deps",
        "docs/wire.md",
        "examples/train_ddp.py",
        "tests/conftest.py",
        "deploy/ansible/roles/dlcpd/tasks/main.yml",
        "deploy/packages/build-packages",
        "deploy/kubernetes/dlcpd.yaml",
        "deploy/oci/Containerfile",
        "deploy/slurm/prolog",
        "deploy/systemd/dlcpd.service",
        "bench/dlcp_lab/emulation/cable.c",
        "bench/dlcp_lab/emulation/early_drop.bpf.c",
        "dlcpd/io/datapath/datapath.h",
        "dlcpd/core/paths/space.pxd",
        "dlcpd/io/datapath/receive.c",
        "dlcpd/page/web/uplot.js",
    }
    assert wanted - names == set()


CHOICE: Final = "from dlcpd.io.datapath.library import choose; print(choose('auto') is not None)"


def test_the_compiled_data_path_is_there_where_a_compiler_was(installed: Installed) -> None:
    has_compiler = shutil.which("gcc") is not None
    assert installed.run("python", "-c", CHOICE).stdout.strip() == str(has_compiler)


FORM: Final = "from dlcpd.transfer_form import form; print(form())"


def test_the_transfer_layer_is_compiled_where_a_compiler_was(installed: Installed) -> None:
    expected = "compiled" if shutil.which("gcc") is not None else "interpreted"
    assert installed.run("python", "-c", FORM).stdout.strip() == expected


def test_a_wheel_made_without_a_compiler_works(built: Built, tmp_path: Path) -> None:
    """The extensions are optional: numpy and the interpreter do their work, and a setting that
    demands C is refused."""
    without = {"CC": "/bin/false", "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", str(tmp_path), str(built.sdist)],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | without,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    libraries = tmp_path / "libraries"
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.endswith(".so")]
        archive.extractall(libraries)  # noqa: S202  # our own
    from_wheel = os.environ | {"PYTHONPATH": str(libraries)}
    for program, says in (
        (CHOICE, "False"),
        (FORM, "interpreted"),
        (
            "from dlcpd.contract.errors import BadConfig\n"
            "from dlcpd.io.datapath.library import choose\n"
            "try: choose('compiled')\n"
            "except BadConfig as exc: print(exc)",
            "there is no compiled data path",
        ),
        (
            "from dlcpd.ctl.main import main\n"
            "main(['bench', 'all-reduce', '--sizes', '64K', '--repeat', '2', '--against', 'none'])",
            "65536",
        ),
    ):
        ran = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,
            env=from_wheel,
            timeout=100,
        )
        assert says in ran.stdout + ran.stderr, ran.stderr


def test_what_was_measured_is_drawn(installed: Installed) -> None:
    words = ("bench", "all-reduce", "--sizes", "4K", "--repeat", "2", "--json", "bench.json")
    assert installed.run("dlcpctl", *words).returncode == 0
    done = installed.run("dlcpctl", "report", "bench.json")
    assert done.returncode == 0 and "times" in done.stdout, done.stderr
    text = (installed.empty / "report.html").read_text()
    assert "var uPlot=" in text and "Timeline" in text


@pytest.mark.netns
def test_a_lab_comes_up_with_its_data_files_and_goes_down(installed: Installed) -> None:
    name = ("--name", f"w{os.getpid()}")
    try:
        delay = ("--delay", "1ms") if cables.compiler() else ()
        made = installed.document("lab", "up", *name, "--hosts", "2", "--ecn", "64K", *delay)
        dropper = "bpf queue count" if early_drop.available() else "nft virtual queue"
        assert made["features"]["early drops"] == dropper
        assert made["features"]["delays"] == ("cables in user space" if delay else "none")
        inside = installed.run("dlcpctl", "lab", "run", *name, "--host", "0", "--", "true")
        assert inside.returncode == 0, inside.stderr
    finally:
        removed = installed.document("lab", "down", *name)
    assert len(removed) == 3 + bool(delay)  # two hosts, a switch and the cables
