"""Files of a user's folder are imported by none of our processes, whatever their names."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from dlcp_lab.ranks import processes
from dlcpd import starter
from tests.checks import Measured
from tests.daemon.kit import Daemon, configuration
from tests.pages import ROOT

CHECK = 125
PATIENCE = 100.0  # seconds; importing torch on a busy machine
CUSTOMIZING = ("sitecustomize", "usercustomize")  # which Python imports as it starts
INSTALLED = ("cffi", "cryptography", "msgspec", "nacl", "numpy", "prometheus_client", "uvloop")
# Not what Python itself imports while it starts: a user's Python has started.
LATER = ("calendar", "platform", "queue", "resource", "secrets", "select", "socket", *INSTALLED)
ALL = (*sys.stdlib_module_names, *CUSTOMIZING, *INSTALLED, *starter.OURS, "dlcpd_extension")
TRAINING = """
import os, sys
from pathlib import Path
os.environ |= {"PYTHONPATH": sys.argv[1]} if sys.argv[1] else {}
import torch, torch.distributed as dist
from dlcp_client import ddp
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
handle = ddp.register(model)
model(torch.ones(1, 8)).sum().backward()
handle.close()
Path(f"reduced-{dist.get_rank()}").touch()
dist.destroy_process_group()
"""


def project(folder: Path, names: tuple[str, ...]) -> Path:
    """A folder with modules and packages of these names that end whoever imports them."""
    folder.mkdir()
    for number, name in enumerate(names):
        file = folder / (f"{name}.py" if number % 2 else f"{name}/__init__.py")
        file.parent.mkdir(exist_ok=True)
        file.write_text('raise SystemExit(f"mine: {__name__}")\n')
    return folder


@pytest.mark.check(CHECK, "a project with modules of all names that daemons import: it trains")
@pytest.mark.parametrize("where", ["working directory", "PYTHONPATH"])
def test_a_training_beside_files_of_any_name(
    tmp_path: Path, where: str, measured: Measured
) -> None:
    folder = project(tmp_path / "project", ALL)
    script = folder / "scripts_of_mine" / "train.py"
    script.parent.mkdir()
    script.write_text(TRAINING)
    stands = folder if where == "working directory" else tmp_path
    done = subprocess.run(
        [
            sys.executable,
            "-P",
            "-m",
            "torch.distributed.run",
            "--standalone",
            "--nproc-per-node",
            "2",
            str(script),
            "" if stands == folder else str(folder),
        ],
        cwd=stands,
        env=without_path() | {"DLCPD_SHARE": "1", "OMP_NUM_THREADS": "1"},
        text=True,
        capture_output=True,
        check=False,
        timeout=PATIENCE,
    )
    assert (done.returncode, "mine" in done.stderr) == (0, False), done.stderr
    assert len(list(stands.glob("reduced-?"))) == 2
    measured(f"{len(ALL)} names in the {where}")


@pytest.mark.check(CHECK, "commands beside such modules, and with PYTHONPATH to them, run")
@pytest.mark.parametrize(
    ("command", "how"),
    [("dlcpd", "script"), ("dlcpctl", "script"), ("switchcfg", "script"), ("dlcpd", "-m"),
     ("switchcfg", "-m")],
)  # fmt: skip
def test_a_command_beside_files_of_any_name(tmp_path: Path, command: str, how: str) -> None:
    beside = project(tmp_path / "bin", LATER)
    named = project(tmp_path / "project", LATER)
    start = ["-m", command] if how == "-m" else [str(console_script(beside, command))]
    done = subprocess.run(
        [sys.executable, *start, *words_of(command, tmp_path)],
        cwd=beside,
        text=True,
        env=without_path() | {"PYTHONPATH": os.pathsep.join([str(named), str(ROOT)])},
        capture_output=True,
        check=False,
        timeout=PATIENCE,
    )
    assert (done.returncode, done.stderr) == (0, "")


def test_nothing_is_imported_before_the_path_is_in_order() -> None:
    """A module that a user's Python has not loaded yet could be the user's."""
    program = (
        "import __future__, os, site, sys; before = set(sys.modules); sys.path.insert(0, "
        f"{str(ROOT)!r}); import dlcpd.starter; print(*sorted(set(sys.modules) - before))"
    )
    isolated = [sys.executable, "-I", "-S", "-c", program]  # without files of installed packages
    done = subprocess.run(isolated, text=True, capture_output=True, check=True, timeout=PATIENCE)
    assert done.stdout.split() == ["dlcpd", "dlcpd.starter"]


def console_script(folder: Path, command: str) -> Path:
    """As pip makes it."""
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, function = scripts[command].split(":")
    file = folder / command
    file.write_text(f"import sys\nfrom {module} import {function}\nsys.exit({function}())\n")
    return file


def words_of(command: str, folder: Path) -> list[str]:
    """What makes the command import what it is made of."""
    (folder / "dlcpd.toml").touch()
    if command == "dlcpd":
        return ["--check-config", str(folder / "dlcpd.toml")]
    return ["--help"]


@pytest.mark.check(CHECK, "a host's daemon with PYTHONPATH to such modules: its engine starts")
def test_an_engine_beside_files_of_any_name(tmp_path: Path) -> None:
    path = {"PYTHONPATH": str(project(tmp_path / "project", LATER))}
    with Daemon(configuration(tmp_path), mode="", environ=path) as daemon, daemon.client() as one:
        one.greet()  # a daemon whose engine does not start ends instead


@pytest.mark.check(CHECK, "a rank of a benchmark beside such modules starts")
def test_a_rank_beside_files_of_any_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = project(tmp_path / "project", ALL)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PYTHONPATH", str(folder))
    child = processes.start(
        "tests.attack.imports_all", name="x", log=tmp_path / "log", environ=os.environ
    )
    assert child.process.wait(PATIENCE) == 0, (tmp_path / "log").read_text()


SERVER = """
import os, sys
from pathlib import Path
from dlcp_lab.faults.trainer import Trainer
if __name__ == "__main__":
    os.chdir(sys.argv[1])
    os.environ["PYTHONPATH"] = sys.argv[1]
    trainer = Trainer(Path("log"))
    trainer.ask("close")
    print(trainer.answer(60.0)["code"], os.environ["PYTHONPATH"] == sys.argv[1], flush=True)
    trainer.end()
"""


@pytest.mark.check(CHECK, "the server that trainers of fault tests fork from, likewise")
def test_a_fork_server_beside_files_of_any_name(tmp_path: Path) -> None:
    folder = project(tmp_path / "project", ALL)
    (tmp_path / "server.py").write_text(SERVER)
    done = subprocess.run(
        [sys.executable, str(tmp_path / "server.py"), str(folder)],
        cwd=tmp_path,
        text=True,
        env=without_path(),
        capture_output=True,
        check=False,
        timeout=PATIENCE,
    )
    assert (done.stdout, done.stderr) == ("result True\n", "")


def without_path() -> dict[str, Any]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
