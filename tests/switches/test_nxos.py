"""switchcfg and a switch that speaks NX-API: its scheduler goes back, its answers are read."""

import shutil
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from switchcfg.drivers.login import Login
from tests.switches.nxos_target import PASSWORD, USER
from tests.switches.ssh_switch import until
from tests.switches.tls_switch import TlsSwitch

GRAIN = 60  # seconds that its timer may be late: the scheduler counts in minutes
THEIRS = """\
policy-map type qos theirs
  class class-default
    set qos-group 3
interface Ethernet1/1
  description theirs
interface Ethernet1/2
"""


class NxosSwitch(TlsSwitch):
    platform, ports, kind = "nxos", "Ethernet1/", "NXOS"

    def __init__(self, folder: Path) -> None:
        (folder / "running").write_text(THEIRS)
        (folder / "version").write_text("10.3(4a)")
        (folder / "features").write_text("scheduler")
        super().__init__(folder, ("-m", "tests.switches.nxos_target"))
        self.environment |= {"SWITCHCFG_NXOS_USER": USER, "SWITCHCFG_NXOS_PASSWORD": PASSWORD}
        self.ahead = 0.0

    @property
    def login(self) -> Login:
        return Login(str(self.folder / "ca.pem"), "", "", USER, PASSWORD)

    def running(self) -> str:
        """Without its scheduler."""
        return (self.folder / "running").read_text()

    def later(self, seconds: float) -> None:
        """So many seconds pass on the switch, and what its timer may be late."""
        self.ahead += seconds + GRAIN
        (self.folder / "ahead").write_text(str(self.ahead))


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[NxosSwitch]:
    made = NxosSwitch(tmp_path)
    yield made
    made.end()
