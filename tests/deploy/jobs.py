"""Trainers inside the machine: two ranks of an ordinary user, by the Python of the package."""

import subprocess
from typing import Final

from tests.deploy.machine import Machine

PYTHON: Final = "/opt/dlcpd/bin/python"
SOCKET: Final = "/run/dlcpd/dlcpd.sock"
MAIN: Final = "$(systemctl show --property MainPID --value dlcpd)"


class Rank:
    """Runs tests/deploy/trainer.py."""

    def __init__(
        self, machine: Machine, store: str, rank: int, socket: str, python: str = PYTHON
    ) -> None:
        self._process = subprocess.Popen(
            machine.command(
                "env",
                f"RANK={rank}",
                "WORLD_SIZE=2",
                f"DLCPD_STORE={store}",
                f"DLCPD_SOCKET={socket}",
                python,
                "-I",
                "/checks/trainer.py",
                user="trainer",
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            bufsize=1,
        )

    def step(self) -> None:
        """Begin one."""
        assert self._process.stdin
        self._process.stdin.write("\n")

    def says(self) -> str:
        assert self._process.stdout
        return self._process.stdout.readline().strip()

    def end(self) -> None:
        self._process.kill()
        self._process.communicate()


class Job:
    """Two ranks, on a daemon each if two sockets are given; `python` has their client."""

    def __init__(self, machine: Machine, *sockets: str, python: str = PYTHON) -> None:
        store = machine.run("setpriv --reuid=trainer --regid=trainer --clear-groups mktemp -d")
        self.ranks = [
            Rank(machine, store, rank, socket, python)
            for rank, socket in zip((0, 1), sockets or (SOCKET, SOCKET), strict=True)
        ]

    def __enter__(self) -> list[Rank]:
        assert [rank.says() for rank in self.ranks] == ["joined", "joined"]
        return self.ranks

    def __exit__(self, *_: object) -> None:
        self.end()

    def end(self) -> None:
        for rank in self.ranks:
            rank.end()


def train(ranks: list[Rank]) -> None:
    """One step of both."""
    for rank in ranks:
        rank.step()
    assert [rank.says() for rank in ranks] == ["sum 3 3", "sum 3 3"]


def main_pid(machine: Machine) -> str:
    """Process id of the daemon, inside; "0": none runs."""
    return machine.run(f"echo {MAIN}")
