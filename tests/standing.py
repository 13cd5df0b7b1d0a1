"""Hosts whose daemons serve many tests, one after another.

A daemon and its engine take a second of CPU time to start: more than most tests of two ranks take.
Not for tests of how a daemon starts, of its settings, and of its end.

A plugin of pytest, see tests/conftest.py: the daemons end with its process.
"""

import signal
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from dlcp_lab.emulation.scratch import scratch_folder
from dlcp_lab.ranks.hosts import Hosts, Starting, on_loopback
from dlcpd.daemon.config.tables import ChecksTable, NetworkTable

# Many processes share few cores: a host that gets none for a second is not dead.
PATIENT: Final = NetworkTable(peer_timeout=10.0)


class StandingHosts:
    """Hosts on loopback, each of which is started when a test first needs that many."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._hosts: Hosts | None = None

    def sockets(self, count: int) -> list[str]:
        """Session sockets of the first `count` hosts.

        Raises: DaemonUnavailable naming a host whose daemon has ended.
        """
        if self._hosts is None:
            self._hosts = Hosts(Path(self._stack.enter_context(scratch_folder())))
        self._hosts.raise_if_ended()
        self._start(self._hosts, count)
        return [host.socket for host in self._hosts.members[:count]]

    def _start(self, hosts: Hosts, count: int) -> None:
        often = ChecksTable().digest_every
        plans = on_loopback(count, network=PATIENT, digest_every=often)[len(hosts.members) :]
        starting = [
            self._stack.enter_context(Starting(hosts.folder / plan.name, plan)) for plan in plans
        ]
        for one in starting:
            self._stack.callback(one.host.daemon.stop, signal.SIGTERM)
        hosts.members += [one.wait() for one in starting]

    def close(self) -> None:
        """Stop the daemons. The next call of `sockets` starts others."""
        self._hosts = None
        self._stack.close()


STANDING: Final = StandingHosts()


def pytest_unconfigure() -> None:
    STANDING.close()
