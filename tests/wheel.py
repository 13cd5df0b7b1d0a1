"""What is published, built from this checkout, and an environment in which it is installed."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dlcpd import __version__
from dlcpd.build import VARIABLE
from tests.pages import ROOT

BUILD: Final = 1500.0  # seconds until a build fails; never a measure of anything
VERSION: Final = f"{__version__}+wheel"  # of what is built; the checkout's is without a commit
# Of a checkout, what git ignores or keeps for itself.
NOT_SOURCE: Final = (
    ".git", ".venv", "build", "dist", "shared", "*.egg-info", "__pycache__", ".*_cache",
    ".hypothesis", ".coverage", "*.so", "site",
)  # fmt: skip


@dataclass(frozen=True)
class Built:
    """What is published."""

    sdist: Path
    wheel: Path


@dataclass(frozen=True)
class Installed:
    """A virtual environment with the wheel, and an empty folder to stand in."""

    environment: Path
    empty: Path

    def run(self, *words: str) -> "subprocess.CompletedProcess[str]":
        """A program of the environment, in the empty folder; nothing leads back here."""
        return subprocess.run(
            self.command(*words),
            capture_output=True,
            text=True,
            check=False,
            cwd=self.empty,
            env=environ(),
            timeout=BUILD,
        )

    def command(self, program: str, *arguments: str) -> list[str]:
        """The command line of a program of the environment."""
        return [str(self.environment / "bin" / program), *arguments]

    def document(self, *words: str) -> Any:
        """The JSON of a command that must succeed."""
        done = self.run("dlcpctl", *words, "--json", "-")
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)


def environ() -> dict[str, str]:
    """Without what would lead Python back to this checkout."""
    return {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}


def build(folder: Path) -> Built:
    """The wheel is built from the source distribution, so each lacks nothing of the other."""
    source = shutil.copytree(ROOT, folder / "source", ignore=shutil.ignore_patterns(*NOT_SOURCE))
    note = f"{VARIABLE}={VERSION} 1a2b3c4"  # as of a build from git, which the copy is not
    words = "-m", "build", "--outdir", str(folder / "dist"), str(source)
    check_run("env", note, sys.executable, *words)
    shutil.rmtree(source)
    [sdist], [wheel] = (folder / "dist").glob("*.tar.gz"), (folder / "dist").glob("*.whl")
    return Built(sdist, wheel)


def environment(folder: Path, *install: str) -> Installed:
    """A new one below `folder`. `install`: arguments of pip."""
    made = Installed(folder / "venv", folder / "empty")
    made.empty.mkdir()
    check_run(sys.executable, "-m", "venv", "--without-pip", str(made.environment))
    python = str(made.environment / "bin" / "python")
    check_run(sys.executable, "-m", "pip", "--python", python, "install", *install)
    return made


def beside_torch(folder: Path, wheel: Path) -> Installed:
    """The wheel, with torch and what else there is here, but none of this checkout's own."""
    made = environment(folder, "--no-deps", "--no-index", str(wheel))
    # A .pth file in a folder that a .pth file names is not read, so the editable installation of
    # this checkout stays out.
    libraries = sysconfig.get_path("purelib", vars={"base": str(made.environment)})
    Path(libraries, "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    torchrun = made.environment / "bin" / "torchrun"
    python = made.environment / "bin" / "python"
    torchrun.write_text(f"#!{python}\nfrom torch.distributed.run import main\nmain()\n")
    torchrun.chmod(0o755)
    return made


def check_run(*words: str) -> None:
    """Run a program that must succeed."""
    done = subprocess.run(
        words, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False, timeout=BUILD
    )
    assert done.returncode == 0, done.stdout + done.stderr
