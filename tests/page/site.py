"""What a page looks at: daemons that lose what arrives, a training on them; and the page."""

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

from dlcp_lab.ranks.hosts import HostPlan, on_loopback
from tests.daemon.kit import PATIENCE, environment

TRAINER = Path(__file__).with_name("trainer.py")
LOSS = 0.01


def plans(*names: str) -> list[HostPlan]:
    """Two hosts, each with two paths, that lose LOSS of what arrives."""
    made = on_loopback(2, paths=2, loss=LOSS, seed=7)
    for plan, name in zip(made, names, strict=False):
        object.__setattr__(plan, "name", name)
    return made


class Rank:
    """Runs tests/page/trainer.py."""

    def __init__(self, job: str, store: str, rank: int, socket: str) -> None:
        environ = {
            "RANK": str(rank),
            "WORLD_SIZE": "2",
            "DLCPD_STORE": store,
            "DLCPD_SOCKET": socket,
            "DLCPD_WARN_AFTER": "0",
        }
        self._process = subprocess.Popen(
            [sys.executable, str(TRAINER), job],
            env=environment() | environ,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def begin(self, steps: int) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{steps}\n")

    def says(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


@contextmanager
def training(job: str, *sockets: str) -> Iterator[list[Rank]]:
    """Two joined ranks."""
    with ExitStack() as stack:
        store = stack.enter_context(tempfile.TemporaryDirectory())
        ranks = []
        for rank, socket in enumerate(sockets):
            ranks.append(Rank(job, store, rank, socket))
            stack.callback(ranks[-1].end)
        assert [rank.says() for rank in ranks] == ["joined", "joined"]
        yield ranks


def steps(ranks: list[Rank], count: int) -> None:
    """Take some, all ranks."""
    for rank in ranks:
        rank.begin(count)
    assert [rank.says() for rank in ranks] == ["done"] * len(ranks)


class Page:
    """A running `dlcpctl page`. Use as a context manager."""

    def __init__(self, socket: str, *options: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "dlcpd.ctl.main", "page", "--socket", socket, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        assert self._process.stdout
        line = self._process.stdout.readline()
        assert line.startswith("http://"), line + self._process.communicate(timeout=PATIENCE)[1]
        self.url = line.split()[0]
        self.pid = self._process.pid

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> int:
        self._process.terminate()
        self._process.communicate(timeout=PATIENCE)
        return self._process.returncode


def status(socket: str) -> dict[str, Any]:
    """What `dlcpctl status --json` says."""
    done = subprocess.run(
        [sys.executable, "-m", "dlcpd.ctl.main", "status", "--socket", socket, "--json", "-"],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
        timeout=PATIENCE,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found
