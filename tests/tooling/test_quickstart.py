"""docs/quickstart.md, executed from top to bottom, with what is installed from the wheel.

What a page shows as printed is printed, up to numbers and the name of the host.
"""

import os
import re
from collections.abc import Iterator
from typing import Final

import pytest

from tests import pages
from tests.pages import ROOT, shape
from tests.tooling import steps, test_deploy_page
from tests.tooling.conftest import PATIENT
from tests.tooling.shell import Shell
from tests.tooling.steps import Elsewhere, Run

QUICKSTART: Final = ROOT / "docs" / "quickstart.md"
pytestmark = pytest.mark.timeout(600)  # seconds; the wheel is built, and machines are shared

ENVIRONMENT: Final = Elsewhere(".ci/run::venv")  # make venv: a virtual environment, and pip
FABRIC: Final = f"q{os.getpid()}"
LINES: Final[steps.Table] = {
    "python3 -m venv .venv": ENVIRONMENT,
    ". .venv/bin/activate": ENVIRONMENT,
    "pip install -c constraints.txt '.[client]'": ENVIRONMENT,
    "torchrun --nproc-per-node 2 examples/train_ddp.py": Run(),
    "DLCPD_SHARE=0 DLCPD_CONFIG=lossy.toml torchrun --nproc-per-node 2 examples/train_ddp.py": (
        Run()
    ),
    "dlcpctl doctor": Run(prints=" 0 fail"),
    # The two hosts are those of an emulated fabric, whose first one has this address.
    **{
        f"torchrun --nnodes 2 --node-rank {rank} --nproc-per-node 1 --master-addr host-a "
        "--master-port 29500 examples/train_ddp.py": Run(
            f"dlcpctl lab run --name {FABRIC} --host {rank} -- torchrun --nnodes 2 --node-rank "
            f"{rank} --nproc-per-node 1 --master-addr 10.77.0.2 --master-port 29500 "
            f"examples/train_ddp.py {then}",
            prints=prints, netns=True,
        )
        for rank, (then, prints) in enumerate(
            ((">first 2>&1 & first=$!", ""), ("&& wait $first && cat first", "Ledger(operations="))
        )
    },
    "dlcpd --config dlcpd.toml &": Run("dlcpd --config dlcpd.toml &"),
    "export DLCPD_SOCKET=$PWD/dlcpd.sock": Run(
        "export DLCPD_SOCKET=$PWD/dlcpd.sock; until [ -S dlcpd.sock ]; do sleep 0.1; done"
    ),
    "dlcpctl status": Run(),
    "dlcpctl stop": Run(),
    "unset DLCPD_SOCKET": Run(),
    "deploy/packages/build-packages .": test_deploy_page.PACKAGE,
    "sudo apt install ./dlcpd_*.deb": test_deploy_page.INSTALLED,
    "sudo usermod -aG dlcpd-users alice": test_deploy_page.USER,
}  # fmt: skip


def shown() -> dict[str, list[str]]:
    """Lines that a page shows as printed, by the last command before them that prints."""
    found, last = dict[str, list[str]](), ""
    for block in pages.blocks(QUICKSTART):
        if block.language == "sh":
            last = [line for line in block.typed if not line.startswith("unset")][-1]
        elif block.language == "text":
            found[last] = block.text.splitlines()
    return found


@pytest.fixture(scope="module")
def configured(shell: Shell) -> Shell:
    """The files that the page shows, where the shell is."""
    tables = [block.text for block in pages.blocks(QUICKSTART) if block.language == "toml"]
    for text, name in zip(tables, ("lossy.toml", "dlcpd.toml"), strict=True):
        (shell.folder / name).write_text(text + PATIENT)
    return shell


@pytest.fixture(scope="module")
def two_hosts(shell: Shell) -> Iterator[None]:
    shell.run(f"dlcpctl lab up --name {FABRIC} --hosts 2")
    yield
    shell.run(f"dlcpctl lab down --name {FABRIC}")


def test_no_line_is_left_out() -> None:
    steps.complete(QUICKSTART, LINES)
    assert len(shown()) == 4


# Python blocks are two lines of examples/train_ddp.py, which is run.
@pytest.mark.parametrize(
    "step", [each for each in steps.each(QUICKSTART, LINES) if "python 0" not in each.values]
)
def test_a_step_does_what_the_page_says(
    step: str, configured: Shell, request: pytest.FixtureRequest
) -> None:
    how = LINES[step]
    if getattr(how, "netns", False):
        request.getfixturevalue("two_hosts")
    printed = steps.done(step, how, configured)
    if step == TRAIN:
        losses = [float(found) for found in re.findall(r"loss ([\d.]+)", printed)]
        assert len(losses) == 6 and losses[-1] < 0.5 * losses[0]
    shapes = {shape(line) for line in printed.splitlines()}
    assert [line for line in shown().get(step, []) if shape(line) not in shapes] == [], printed


TRAIN: Final = "torchrun --nproc-per-node 2 examples/train_ddp.py"


def test_the_example_is_short_and_has_the_lines_of_the_page() -> None:
    example = (ROOT / "examples" / "train_ddp.py").read_text()
    assert len(example.splitlines()) <= 80
    [block] = [block for block in pages.blocks(QUICKSTART) if block.language == "python"]
    assert "ddp.register(student, bounded(0.01))" in example
    assert "ddp.register(model, bounded(0.01))" in block.text
