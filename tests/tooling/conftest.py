"""One wheel for all tests of this folder, and one reader of the pages, who has installed it."""

import shutil
from collections.abc import Iterator
from typing import Final

import pytest

from tests.pages import ROOT
from tests.tooling.shell import Shell
from tests.wheel import Installed, beside_torch, build

# Of private daemons: an engine of a machine that tests share may have to wait for a CPU for longer
# than the second after which peers take it for dead.
PATIENT: Final = "[network]\npeer_timeout = 30\n"


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("wheel")
    return beside_torch(folder, build(folder).wheel)


@pytest.fixture(scope="module")
def shell(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """That of somebody who follows a page from its first line to its last, beside the examples."""
    folder = tmp_path_factory.mktemp("reader")
    shutil.copytree(ROOT / "examples", folder / "examples")
    (folder / "patient.toml").write_text(PATIENT)
    with Shell(folder, installed.environment / "bin") as made:
        made.variables({"DLCPD_CONFIG": str(folder / "patient.toml")})
        yield made
