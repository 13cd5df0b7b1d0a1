"""What can be said of the units without starting them."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from dlcpd.daemon.config.file import load
from dlcpd.daemon.config.tables import DaemonTable
from dlcpd.io.config import EngineConfig
from tests.checks import Measured

DEPLOY = Path(__file__).parents[2] / "deploy"
SYSTEMD = DEPLOY / "systemd"
LIMIT = 25  # tenths, of `systemd-analyze security`

pytestmark = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is not installed"
)


@pytest.mark.check(1, "the service is hardened: exposure by systemd-analyze <= 2.5")
@pytest.mark.parametrize("unit", ["dlcpd.service", "dlcpd@.service"])
def test_exposure(unit: str, measured: Measured, tmp_path: Path) -> None:
    # A template alone has no name that systemd-analyze could look at.
    file = shutil.copy(SYSTEMD / unit, tmp_path / unit.replace("@", "@a"))
    done = subprocess.run(
        [
            "systemd-analyze",
            "security",
            "--no-pager",
            "--offline=true",
            f"--threshold={LIMIT}",
            str(file),
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    found = re.search(r"exposure level for \S+: (\S+)", done.stdout)
    assert done.returncode == 0 and found, done.stdout + done.stderr
    measured(f"{unit} {found[1]}")


def settings(file: Path) -> list[str]:
    return [line for line in file.read_text().splitlines() if line and not line.startswith("#")]


@pytest.mark.parametrize("kind", ["service", "socket"])
def test_the_template_differs_in_names_alone(kind: str) -> None:
    one, several = settings(SYSTEMD / f"dlcpd.{kind}"), settings(SYSTEMD / f"dlcpd@.{kind}")
    assert len(one) == len(several)
    differing = [(a, b) for a, b in zip(one, several, strict=True) if a != b]
    assert differing and all("%i" in b for _, b in differing), differing


def test_the_socket_is_where_the_daemon_has_it_and_belongs_to_who_may_use_it() -> None:
    lines = settings(SYSTEMD / "dlcpd.socket")
    assert f"ListenSequentialPacket={DaemonTable().socket}" in lines
    group = load(DEPLOY / "dlcpd.toml").daemon.socket_group
    assert f"SocketGroup={group}" in lines
    assert f"g {group} -" in settings(SYSTEMD / "sysusers.d/dlcpd.conf")


def test_what_is_killed_when_memory_is_short_is_neither_daemon_nor_engine_first() -> None:
    lines = settings(SYSTEMD / "dlcpd.service")
    [score] = [int(line.partition("=")[2]) for line in lines if line.startswith("OOMScoreAdjust=")]
    assert -1000 < score <= -900, "after every trainer, and before what the host cannot do without"
    assert "OOMPolicy=continue" in lines


def test_the_daemon_has_a_large_share_under_load_and_no_limit() -> None:
    lines = settings(SYSTEMD / "dlcpd.service")
    assert "CPUWeight=1000" in lines, "ten times systemd's default"
    limits = ("CPUQuota=", "Nice=", "IOWeight=", "CPUSchedulingPolicy=")
    assert not [line for line in lines if line.startswith(limits)]


def test_buffers_may_be_as_large_as_the_daemon_asks_for() -> None:
    values = tomllib.loads(
        "\n".join(
            line.replace("net.core.", "") for line in settings(SYSTEMD / "sysctl.d/60-dlcpd.conf")
        )
    )
    wanted = EngineConfig().receive_buffer
    assert values == {"rmem_max": wanted, "wmem_max": wanted}
