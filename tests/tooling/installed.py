"""The wheel in a virtual environment of its own, and what runs there."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from tests.pages import ROOT

# Of a checkout, what git ignores or keeps for itself.
NOT_SOURCE: Final = (
    ".git", ".venv", "build", "dist", "shared", "*.egg-info", "__pycache__", ".*_cache",
    ".hypothesis", ".coverage", "*.so", "site",
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


def install(folder: Path) -> Installed:
    """The wheel is built from the source distribution, so each lacks nothing of the other."""
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
    torchrun = environment / "bin" / "torchrun"
    torchrun.write_text(f"#!{python}\nfrom torch.distributed.run import main\nmain()\n")
    torchrun.chmod(0o755)
    (folder / "empty").mkdir()
    return Installed(sdist, wheel, environment, folder / "empty")


def _check_run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
