"""What a process of ours finds where, and how it is started from every place that dlcpd can be in.

That no file of a user is imported, tests/attack/test_imports.py shows.
"""

import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlcpd import starter
from tests.pages import ROOT

PATIENCE = 60.0  # seconds
SITE = Path(sysconfig.get_path("purelib"))
DEPENDENCIES = ("cffi", "_cffi_backend", "msgspec", "nacl", "numpy", "numpy.libs", "pycparser",
                "uvloop")  # fmt: skip
# A Python without packages, if the one that runs the tests is of a virtual environment.
BARE = Path(sys.base_prefix, "bin", "python{}.{}".format(*sys.version_info))
PROBE = """
import importlib.util, json, os, sys
names = sys.argv[1].split(",")
found = {name: importlib.util.find_spec(name) for name in names}
places = {name: spec and os.path.dirname(spec.origin) for name, spec in found.items()}
json.dump({"found": places, "name": __name__, "argv": sys.argv, "path": sys.path}, sys.stdout)
"""
EMBEDDED = """
import sys
sys.path[:0] = sys.argv[1:]
from dlcp_client.ipc.embedded import start
daemon, control = start(None, "localhost")
control.hello(60.0)
print(" ".join(open(f"/proc/{daemon.pid}/cmdline").read().split("\\0")))
control.close()
daemon.close()
"""


def package(folder: Path, name: str) -> Path:
    """A package in a folder; the folder of the package."""
    (folder / name).mkdir(parents=True)
    (folder / name / "__init__.py").touch()
    return folder / name


@pytest.fixture
def prefix(tmp_path: Path) -> Path:
    """A folder in which a package is installed that says where names are found."""
    package(tmp_path / "prefix", "probe")
    (tmp_path / "prefix" / "probe" / "__main__.py").write_text(PROBE)
    (tmp_path / "prefix" / "probe-1.dist-info").mkdir()
    return tmp_path / "prefix"


@pytest.fixture
def path(monkeypatch: pytest.MonkeyPatch, prefix: Path) -> Iterator[list[str]]:
    """sys.path of a parent that sees that folder first."""
    plain = [each for each in sys.path if not each.endswith("_vendor")]  # setuptools adds its own
    monkeypatch.setattr(sys, "path", [str(prefix), *plain])
    return sys.path  # type: ignore[return-value]


def probed(*names: str, cwd: Path) -> dict[str, Any]:
    command = starter.command("probe", ",".join(names), "--more")
    done = subprocess.run(
        command,
        env=starter.environment(),
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.usefixtures("path")
def test_a_module_runs_as_by_python_m(prefix: Path) -> None:
    said = probed("os", cwd=prefix)
    assert said["name"] == "__main__"
    assert said["argv"] == [str(prefix / "probe" / "__main__.py"), "os", "--more"]


@pytest.mark.usefixtures("path")
def test_the_library_comes_first_then_installed_then_the_interpreters_own(prefix: Path) -> None:
    package(prefix, "queue")
    msgspec = package(prefix, "msgspec")
    said = probed("queue", "msgspec", "numpy", cwd=prefix)
    library = os.path.dirname(os.__file__)
    assert said["found"] == {
        "queue": library,
        "msgspec": str(msgspec),
        "numpy": str(SITE / "numpy"),
    }
    assert said["path"].index(str(prefix)) < said["path"].index(str(SITE))
    assert said["path"][-1] == str(ROOT)
    assert str(ROOT / "dlcpd") not in said["path"]  # the starter's own folder: it has an io/


@pytest.mark.usefixtures("path")
def test_our_packages_are_those_of_the_parent_wherever_others_lie(prefix: Path) -> None:
    for name in starter.OURS:
        package(prefix, name)
    said = probed(*starter.OURS, cwd=prefix)
    assert said["found"] == {
        "dlcpd": str(ROOT / "dlcpd"),
        "dlcp_client": str(ROOT / "client" / "dlcp_client"),
        "dlcp_lab": str(ROOT / "bench" / "dlcp_lab"),
        "switchcfg": str(ROOT / "switchcfg"),
    }


def test_a_folder_without_installed_packages_is_not_handed_over(
    path: list[str], prefix: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(prefix)
    (tmp_path / "project").mkdir()
    file = tmp_path / "packages.zip"
    file.touch()
    path[:0] = ["", ".", str(tmp_path / "project"), str(file), str(tmp_path / "none")]
    at = starter.command("dlcpd").index(starter.STARTER)
    assert starter.command("dlcpd", "--x")[at + 1 :] == [str(prefix), "dlcpd", "--x"]


def test_user_site_is_as_the_parent_has_it() -> None:
    code = "from dlcpd import starter; print(*starter.command('m')[1:3])"
    said = [
        subprocess.run(
            [sys.executable, *flags, "-c", code],
            capture_output=True,
            text=True,
            check=True,
            cwd=ROOT,
        ).stdout.split()
        for flags in ([], ["-s"])
    ]
    assert said == [["-P", starter.STARTER], ["-P", "-s"]]


def test_the_environment_keeps_all_but_the_path() -> None:
    variables = {"PYTHONPATH": "/x", "PYTHONWARNINGS": "error", "PYTHONHOME": "/y", "A": "b"}
    assert starter.environment(variables) == {
        "PYTHONWARNINGS": "error",
        "PYTHONHOME": "/y",
        "A": "b",
    }


def installed(folder: Path, *ours: Path) -> Path:
    """As by `pip install --target`: what a daemon needs, and `ours`."""
    folder.mkdir()
    for name in (*DEPENDENCIES, "numpy-*.dist-info"):
        for there in (*SITE.glob(name), *SITE.glob(f"{name}.*.so")):
            (folder / there.name).symlink_to(there)
    for there in ours:
        (folder / there.name).symlink_to(there)
    return folder


@pytest.mark.parametrize("where", ["a folder of PYTHONPATH", "a folder that the script names"])
def test_a_private_daemon_starts_from_where_dlcpd_is(tmp_path: Path, where: str) -> None:
    client = ROOT / "client" / "dlcp_client"
    if where == "a folder of PYTHONPATH":
        target = installed(tmp_path / "target", ROOT / "dlcpd", client)
        named: list[str] = []
    else:
        target = installed(tmp_path / "target")
        named = [str(ROOT), str(client.parent)]
    (tmp_path / "train.py").write_text(EMBEDDED)
    done = subprocess.run(
        [str(BARE), str(tmp_path / "train.py"), *named],
        cwd=tmp_path,
        text=True,
        env=starter.environment() | {"PYTHONPATH": str(target)},
        capture_output=True,
        check=False,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, done.stderr
    home = ROOT if named else target
    assert f"-P {home}/dlcpd/starter.py {target} dlcpd.daemon.main" in done.stdout


def in_order(before: list[str], code: str, **options: Any) -> list[str]:
    """sys.path of a command, when what PYTHONPATH named is forgotten."""
    done = subprocess.run(
        [sys.executable, "-c", f"{code}\nimport json, sys; json.dump(sys.path, sys.stdout)"],
        env=starter.environment() | {"PYTHONPATH": os.pathsep.join(before)},
        text=True,
        capture_output=True,
        check=True,
        **options,
    )
    found: list[str] = json.loads(done.stdout)
    return found


COMMAND = f"""
import sys
sys.path.insert(1, {str(ROOT)!r})
from dlcpd import starter
sys.path.remove({str(ROOT)!r})
sys.modules["dlcpd.daemon.main"] = type(sys)("main")
sys.modules["dlcpd.daemon.main"].main = lambda: 0
starter.dlcpd()
"""


def test_a_command_forgets_what_pythonpath_names(prefix: Path, tmp_path: Path) -> None:
    library = os.path.dirname(os.__file__)
    named = [str(tmp_path), str(prefix), str(SITE), library, "."]
    found = in_order(named, COMMAND, cwd=tmp_path)
    assert str(tmp_path) not in found and "" not in found
    assert {library, str(SITE)} <= set(found)
    assert found.index(library) < found.index(str(prefix))


def test_a_command_keeps_what_a_safe_python_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With -P no folder of a script stands first, and the first one must stay."""
    plain = in_order([], COMMAND, cwd=tmp_path)
    monkeypatch.setenv("PYTHONSAFEPATH", "1")
    assert in_order([], COMMAND, cwd=tmp_path) == plain


def test_the_daemon_starts_without_numpy() -> None:
    """It takes as long to import as all that is ours. Engines need it."""
    code = "import sys, dlcpd.daemon.main; print('numpy' in sys.modules)"
    said = subprocess.check_output([sys.executable, "-c", code], text=True, cwd=ROOT)
    assert said == "False\n"
