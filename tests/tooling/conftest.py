"""One wheel for all tests of this folder, and one reader of the pages, who has installed it."""

import shutil
from collections.abc import Iterator

import pytest

from tests.pages import ROOT
from tests.tooling.installed import Installed, install
from tests.tooling.shell import Shell


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return install(tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def shell(installed: Installed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shell]:
    """That of somebody who follows a page from its first line to its last, beside the examples."""
    folder = tmp_path_factory.mktemp("reader")
    shutil.copytree(ROOT / "examples", folder / "examples")
    with Shell(folder, installed.environment / "bin") as made:
        yield made
