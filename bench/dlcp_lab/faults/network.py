"""Addresses of hosts on loopback, and of the relay between them.

Every host has its own addresses in 127.0.0.0/8, and the relay has others for every host. So all
ports are equal, and an address identifies the host.
"""

import itertools
import os
from dataclasses import dataclass, field
from typing import Final

DATA_PORT: Final = 7471  # UDP and TCP, below the ephemeral ports
CONTROL_PORT: Final = 7472
METRICS_PORT: Final = 7473
MAX_HOSTS: Final = 90  # a host's relay is that host + 100
MAX_PATHS: Final = 8  # third octets of a network
_RELAY: Final = 100
_networks: Final = itertools.count(37 * os.getpid())  # differs between processes


@dataclass(frozen=True, slots=True)
class Network:
    """`hosts` hosts with `paths` addresses each; host h has 127.N.P.(h + 1) on path p."""

    hosts: int
    paths: int = 1
    number: int = field(default_factory=lambda: next(_networks))

    def address(self, host: int, path: int = 0) -> str:
        """Address of a host's daemon."""
        return f"{self._prefix(path)}.{host + 1}"

    def relay(self, host: int, path: int = 0) -> str:
        """Address of the relay for a host, which its peers are given."""
        return f"{self._prefix(path)}.{host + 1 + _RELAY}"

    def host_of(self, address: str) -> int:
        """The host that has an address."""
        return int(address.rpartition(".")[2]) - 1

    def _prefix(self, path: int) -> str:
        nets = 256 // MAX_PATHS  # of one second octet
        second, third = 16 + self.number // nets % 200, self.number % nets * MAX_PATHS + path
        return f"127.{second}.{third}"
