"""README.md, executed from top to bottom, and the programs of docs/interfaces.md and docs/fused.md,
with the wheel.

Each line for a shell is in LINES, each block of Python in readme_blocks.BLOCKS; a line that is in
neither fails here. LINES names a variant of seconds for each line that takes minutes.
"""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tests import pages
from tests.pages import ROOT
from tests.tooling import steps, test_deploy_page
from tests.tooling.shell import Shell
from tests.tooling.steps import Elsewhere, Run

README: Final = ROOT / "README.md"
INTERFACES: Final = [ROOT / "docs" / page for page in ("interfaces.md", "fused.md")]
HERE: Final = Path(__file__).parent
PROGRAMS: Final = [
    block
    for page in (README, *INTERFACES)
    for block in pages.blocks(page)
    if block.language == "python"
]
OF_INTERFACES: Final = [n for n, block in enumerate(PROGRAMS) if block.page != README.name]
pytestmark = pytest.mark.timeout(600)  # seconds; the wheel is built, and machines are shared

LINES: Final[steps.Table] = {
    "make demo": Run("dlcpctl demo --seconds 1", prints="open it in a browser"),
    "make system-deps": Elsewhere(".ci/run::system-deps"),
    "make test": Elsewhere(
        "tests/tooling/test_makefile.py::test_the_fast_tests_are_some_of_all_tests"
    ),
    "make test-all": Elsewhere(".ci/run::test-all"),
    "pip install -c constraints.txt '.[client]'": Elsewhere(".ci/run::venv"),
    "torchrun --nproc-per-node 2 examples/train_ddp.py": Elsewhere(
        "tests/tooling/test_quickstart.py::test_a_step_does_what_the_page_says"
    ),
    "dlcpctl status": Run(prints="1 sessions"),
    "dlcpctl top": Run("dlcpctl top --once --interval 1", prints="Mbit/s"),
    "dlcpctl doctor": Run(prints=" 0 fail"),
    "dlcpctl stop": Run(prints="dlcpd has ended"),
    "dlcpctl ledger LEDGER": Run("dlcpctl ledger ledger", prints="waived"),
    "dlcpctl replay LEDGER": Run("dlcpctl replay ledger", prints="reproduced bit for bit"),
    "dlcpctl verify --hosts 4 --loss 0.05 --mode bounded": Run(
        "dlcpctl verify --hosts 2 --loss 0.05 --mode bounded", prints="all promises held"
    ),
    "dlcpctl bench all-reduce --hosts 2 --sizes 1M,16M,64M --against gloo": Run(
        "dlcpctl bench all-reduce --hosts 2 --sizes 4K,1M --repeat 2 --warmup 1 --against gloo",
        prints="gloo",
    ),
    "switchcfg render switchcfg/examples/minimal.toml": Run(
        f"switchcfg render {ROOT / 'switchcfg' / 'examples' / 'minimal.toml'}",
        prints="BUFFER_PROFILE",
    ),
    "deploy/packages/build-packages .": test_deploy_page.PACKAGE,
    "sudo apt install ./dlcpd_*.deb": test_deploy_page.INSTALLED,
    "sudo usermod -aG dlcpd-users alice": test_deploy_page.USER,
}  # fmt: skip

OF_A_TRAINING: Final = tuple(line for line in LINES if line.startswith(
    ("dlcpctl status", "dlcpctl top", "dlcpctl stop")
))  # fmt: skip
DAEMON: Final = """
[daemon]
host = "host-{n}"
socket = "{folder}/{n}.sock"
[network]
paths = [{{ address = "127.0.0.{address}" }}]
peer_timeout = 30
[inject]
loss = 0.01
[ledger]
directory = "{folder}/ledger/{n}"
inputs = true
"""


@pytest.fixture(scope="module")
def training(shell: Shell) -> Iterator[None]:
    """Two daemons, each with a rank that trains; the shell's DLCPD_SOCKET is that of the first."""
    shell.variables({"WORLD_SIZE": "2", "DLCPD_STORE": str(shell.folder / "meeting")})
    for rank, n in enumerate("ab"):
        text = DAEMON.format(n=n, folder=shell.folder, address=rank + 1)
        (shell.folder / f"{n}.toml").write_text(text)
        shell.run(f"dlcpd --config {n}.toml &")
        shell.until(f"test -S {n}.sock")
        shell.run(
            f"RANK={rank} DLCPD_SOCKET=$PWD/{n}.sock python {HERE / 'working.py'} {n}.joined &"
        )
    shell.until("test -e a.joined -a -e b.joined")
    shell.variables({"DLCPD_SOCKET": str(shell.folder / "a.sock")})
    yield
    shell.run("unset WORLD_SIZE DLCPD_STORE DLCPD_SOCKET")


def test_no_line_is_left_out() -> None:
    steps.complete(README, LINES)
    for page in INTERFACES:
        steps.complete(page, {})


@pytest.mark.parametrize("step", steps.each(README, LINES))
def test_a_step_does_what_the_page_says(
    step: str, shell: Shell, request: pytest.FixtureRequest
) -> None:
    if step.startswith(steps.PYTHON):
        number = int(step.removeprefix(steps.PYTHON))
        assert ranks_that_hold(number, request.getfixturevalue("executed")) == ["0", "1"]
        return
    if step in OF_A_TRAINING:
        request.getfixturevalue("training")
    steps.done(step, LINES[step], shell)


@pytest.mark.parametrize("number", OF_INTERFACES)
def test_a_program_of_interfaces_does_what_the_page_says(number: int, executed: str) -> None:
    assert ranks_that_hold(number, executed) == ["0", "1"]


def ranks_that_hold(number: int, executed: str) -> list[str]:
    """Ranks that have executed the program of this number in PROGRAMS."""
    return sorted(re.findall(rf"rank (\d): block {number} holds", executed))


@pytest.fixture(scope="module")
def executed(shell: Shell) -> str:
    """Output of two ranks that execute PROGRAMS; the parameter server is an embedded one."""
    shutil.copy(HERE / "readme_blocks.py", shell.folder)
    for number, block in enumerate(PROGRAMS):
        (shell.folder / f"block{number}").write_text(block.text)
    files = " ".join(f"block{number}" for number in range(len(PROGRAMS)))
    return shell.run(f"torchrun --nproc-per-node 2 readme_blocks.py {files}")


@pytest.mark.usefixtures("executed")
def test_the_same_block_trains_with_a_server_that_has_a_name(shell: Shell) -> None:
    page = pages.blocks(ROOT / "docs" / "parameter-server.md")
    [server] = [block.text for block in page if block.language == "toml"]
    (shell.folder / "server.toml").write_text(server)
    [number] = [n for n, block in enumerate(PROGRAMS) if "ps.register" in block.text]
    alone = "env -u DLCPD_SOCKET"  # of the training that other lines of the page look at
    shell.run(f"{alone} dlcpd server --config server.toml & server=$!")
    program = f"torchrun --nproc-per-node 2 readme_blocks.py block{number}"
    printed = shell.run(f"{alone} DLCPD_STORE=$PWD/store {program}")
    shell.run("kill $server; wait $server")
    assert printed.count("block 0 holds") == 2
