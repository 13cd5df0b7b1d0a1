"""docs/deploy.md: each line for a shell is executed in the machine that tests/deploy boots."""

from typing import Final

import pytest

from tests.pages import ROOT
from tests.tooling import steps
from tests.tooling.steps import Elsewhere

DEPLOY: Final = ROOT / "docs" / "deploy.md"
PACKAGE: Final = Elsewhere("tests/deploy/conftest.py::package", "deploy/packages/build-packages")
# apt calls dpkg for a file; a new user instead of one that is there.
INSTALLED: Final = Elsewhere("tests/deploy/conftest.py::machine", "dpkg --install")
USER: Final = Elsewhere("tests/deploy/conftest.py::machine", "useradd --user-group --groups dlcpd-")
BY_HAND: Final = Elsewhere("tests/deploy/test_package.py::install_by_hand", "docs/deploy.md")
LINES: Final[steps.Table] = {
    "deploy/packages/build-packages .": PACKAGE,
    "sudo apt install ./dlcpd_*.deb": INSTALLED,
    "sudo dnf install python3.11 ./dlcpd-*.rpm && sudo systemctl enable --now dlcpd.service": (
        Elsewhere("tests/deploy/test_package.py::test_rpm", "systemctl enable --now dlcpd.service")
    ),
    "sudo usermod -aG dlcpd-users alice": USER,
    "dlcpctl status": Elsewhere(BY_HAND.by, "dlcpctl status"),
    "pip install 'dlcpd[client]'": Elsewhere(".ci/run::venv"),
    "DLCPD_SOCKET=/run/dlcpd/dlcpd.sock torchrun --nproc-per-node 2 examples/train_ddp.py": (
        Elsewhere("tests/tooling/test_quickstart.py::test_a_step_does_what_the_page_says")
    ),
}  # fmt: skip


def table() -> steps.Table:
    """LINES, and the block for a host without dpkg: install_by_hand takes it from the page."""
    lines = steps.typed(DEPLOY)
    first = next(n for n, line in enumerate(lines) if line.startswith("sudo python3 -m venv"))
    return {**LINES, **dict.fromkeys(lines[first:], BY_HAND)}


def test_no_line_is_left_out() -> None:
    steps.complete(DEPLOY, table())


@pytest.mark.parametrize("line", steps.each(DEPLOY, table()))
def test_a_line_is_executed_by_the_test_that_is_named(line: str) -> None:
    how = table()[line]
    assert isinstance(how, Elsewhere)
    how.check()
