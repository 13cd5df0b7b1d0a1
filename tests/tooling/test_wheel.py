"""What is built and installed runs where no checkout is: commands, data files, entry points."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest

from dlcp_lab.emulation import early_drop

pytestmark = pytest.mark.timeout(600)  # seconds; builds fetch setuptools, and machines are shared
ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = ("dlcp_client", "dlcp_lab", "dlcpd", "switchcfg")
# Of a checkout, what git ignores or keeps for itself.
NOT_SOURCE: Final = (
    ".git", ".venv", "build", "dist", "shared", "*.egg-info", "__pycache__", ".*_cache",
    ".hypothesis", ".coverage", "*.so",
)  # fmt: skip


@dataclass(frozen=True)
class Installed:
    """A virtual environment with the wheel, and an empty folder to stand in."""

    sdist: Path
    wheel: Path
    environment: Path
    empty: Path

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """A program of the environment, in the empty folder; nothing leads back here."""
        program, *arguments = words
        environ = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
        return subprocess.run(
            [str(self.environment / "bin" / program), *arguments],
            capture_output=True, text=True, check=False, cwd=self.empty, env=environ, timeout=300,
        )  # fmt: skip

    def document(self, *words: str) -> Any:
        """The JSON of a command that must succeed."""
        done = self.run("dlcpctl", *words, "--json", "-")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    """The wheel is built from the source distribution, so each lacks nothing of the other."""
    folder = tmp_path_factory.mktemp("wheel")
    source = shutil.copytree(ROOT, folder / "source", ignore=shutil.ignore_patterns(*NOT_SOURCE))
    _check_run(sys.executable, "-m", "build", "--outdir", str(folder / "dist"), str(source))
    shutil.rmtree(source)
    [sdist], [wheel] = (folder / "dist").glob("*.tar.gz"), (folder / "dist").glob("*.whl")
    environment = folder / "venv"
    _check_run(sys.executable, "-m", "venv", "--without-pip", str(environment))
    python = str(environment / "bin" / "python")
    _check_run(sys.executable, "-m", "pip", "--python", python, "install", "--no-deps",
               "--no-index", str(wheel))  # fmt: skip
    # torch and the others come from here. A .pth file in a folder that a .pth file names is not
    # read, so the editable installation of this checkout stays out.
    libraries = sysconfig.get_path("purelib", vars={"base": str(environment)})
    Path(libraries, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    (folder / "empty").mkdir()
    return Installed(sdist, wheel, environment, folder / "empty")


def _check_run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("package", PACKAGES)
def test_every_package_comes_from_the_wheel(installed: Installed, package: str) -> None:
    where = installed.run("python", "-c", f"import {package}; print({package}.__file__)")
    assert where.stdout.startswith(str(installed.environment)), where.stderr


def test_the_wheel_brings_these_packages_and_no_other(installed: Installed) -> None:
    with zipfile.ZipFile(installed.wheel) as archive:
        tops = {name.partition("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == set(PACKAGES)


def test_the_source_distribution_can_be_read_tested_and_pinned(installed: Installed) -> None:
    with tarfile.open(installed.sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        "CHANGELOG.md", "LICENSE", "Makefile", "README.md", "constraints.txt", ".ci/run",
        ".ci/system-deps", "docs/wire.md", "examples/train_ddp.py", "tests/conftest.py",
        "deploy/deb/build-deb", "deploy/systemd/dlcpd.service",
        "bench/dlcp_lab/emulation/early_drop.bpf.c", "dlcpd/io/datapath/datapath.h",
        "dlcpd/io/datapath/receive.c", "dlcpd/ctl/web/uplot.js",
    }  # fmt: skip
    assert wanted - names == set()


CHOICE: Final = "from dlcpd.io.datapath.library import choose; print(choose('auto') is not None)"


def test_the_compiled_data_path_is_there_where_a_compiler_was(installed: Installed) -> None:
    has_compiler = shutil.which("gcc") is not None
    assert installed.run("python", "-c", CHOICE).stdout.strip() == str(has_compiler)


def test_a_wheel_made_without_a_compiler_works(installed: Installed, tmp_path: Path) -> None:
    """The extension is optional: numpy does its work, and who asks for C is told."""
    environ = {"CC": "/bin/false", "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--no-deps", "-w", str(tmp_path),
         str(installed.sdist)],
        capture_output=True, text=True, check=False, env=os.environ | environ, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    [wheel] = tmp_path.glob("*.whl")
    libraries = tmp_path / "libraries"
    with zipfile.ZipFile(wheel) as archive:
        assert not [name for name in archive.namelist() if name.endswith(".so")]
        archive.extractall(libraries)  # noqa: S202  # our own
    environ = os.environ | {"PYTHONPATH": str(libraries)}
    for program, says in (
        (CHOICE, "False"),
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
            [sys.executable, "-c", program], capture_output=True, text=True, check=False,
            cwd=installed.empty, env=environ, timeout=100,
        )  # fmt: skip
        assert says in ran.stdout + ran.stderr, ran.stderr


def test_the_demo_trains_and_judges(installed: Installed) -> None:
    found = installed.document("demo", "--share", "0.02")
    assert found["broken"] == []
    verdicts = [check["verdict"] for check in found["checks"] if check["promise"] == "P1"]
    assert verdicts == ["held", "held"]


def test_promises_are_verified(installed: Installed) -> None:
    assert installed.document("verify", "--hosts", "2", "--loss", "0.02")["broken"] == []


def test_an_operation_is_measured(installed: Installed) -> None:
    words = ("bench", "all-reduce", "--sizes", "4K", "--repeat", "2", "--warmup", "1")
    rows = installed.document(*words)["rows"]
    assert [(row["transport"], row["wrong"]) for row in rows] == [("dlcpd", 0), ("gloo", 0)]


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
        made = installed.document("lab", "up", *name, "--hosts", "2", "--ecn", "64K")
        dropper = "bpf queue count" if early_drop.available() else "nft virtual queue"
        assert made["features"]["early drops"] == dropper
        inside = installed.run("dlcpctl", "lab", "run", *name, "--host", "0", "--", "true")
        assert inside.returncode == 0, inside.stderr
    finally:
        removed = installed.document("lab", "down", *name)
    assert len(removed) == 3
