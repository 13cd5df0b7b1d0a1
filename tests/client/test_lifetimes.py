"""What is open at the end of a process is closed, however the process was started."""

import os
import subprocess
import sys
from multiprocessing.context import ForkContext, ForkServerContext, SpawnContext
from pathlib import Path

import pytest

from dlcp_client import lifetimes

CODE = "import sys; from tests.client.test_lifetimes import use; use(sys.argv[1])"


class Told:
    """A resource that writes what happened to it to a file."""

    def __init__(self, file: str) -> None:
        self._file = file

    def close(self) -> None:
        lifetimes.closed(self)
        self._say("closed")

    def abandon(self) -> None:
        self._say("abandoned")

    def _say(self, what: str) -> None:
        with open(self._file, "a", encoding="utf-8") as file:
            file.write(f"{what}\n")


def use(file: str) -> None:
    lifetimes.opened(Told(file))


@pytest.mark.parametrize(
    "context",
    [ForkContext(), ForkServerContext(), SpawnContext()],
    ids=["fork", "forkserver", "spawn"],
)
def test_in_a_child_of_multiprocessing(
    context: ForkContext | ForkServerContext | SpawnContext, tmp_path: Path
) -> None:
    file = str(tmp_path / "told")
    child = context.Process(target=use, args=(file,))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    assert Path(file).read_text() == "closed\n"


def test_in_a_script(tmp_path: Path) -> None:
    file = tmp_path / "told"
    path = os.pathsep.join(sys.path)
    env = os.environ | {"PYTHONPATH": path}
    subprocess.run([sys.executable, "-c", CODE, str(file)], env=env, check=True, timeout=60)
    assert file.read_text() == "closed\n"
