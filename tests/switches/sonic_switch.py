"""A SONiC-like switch: CONFIG_DB in a real Redis, `config` behind a real sshd."""

import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import redis

from tests.switches.ssh_switch import SshSwitch, until

SCRIPT = Path(__file__).parent / "sonic" / "config.py"
INTENT = """\
schema = 1
[fabric]
name = "lab"
[[device]]
name = "DEVICE"
platform = "sonic"
[[device.ports]]
names = ["Ethernet0", "Ethernet4"]
rate = "100Gbit"
"""
THEIRS: dict[str, dict[str, dict[str, str]]] = {
    "VERSIONS": {"DATABASE": {"VERSION": "version_202511_01"}},
    "DEVICE_METADATA": {"localhost": {"hostname": "leaf1", "hwsku": "Force10-S6000"}},
    "PORT": {
        name: {"admin_status": "up", "lanes": "1,2,3,4", "speed": "100000", "alias": name}
        for name in ("Ethernet0", "Ethernet4", "Ethernet8")
    },
    "BUFFER_POOL": {"egress_lossy_pool": {"mode": "dynamic", "size": "12766208", "type": "egress"}},
    "BUFFER_PROFILE": {
        "egress_lossy_profile": {"pool": "egress_lossy_pool", "size": "1518", "dynamic_th": "3"}
    },
    "SCHEDULER": {"scheduler.0": {"type": "DWRR", "weight": "14"}},
    "QUEUE": {"Ethernet8|0": {"scheduler": "scheduler.0"}},
}


class SonicSwitch(SshSwitch):
    """Ethernet8 is somebody else's."""

    intent = INTENT
    redis: "subprocess.Popen[bytes] | None" = None

    def begin(self) -> None:
        super().begin()
        bin_ = self.folder / "bin"
        server = shutil.which("redis-server")
        if server is None:  # Debian's redis-tools has the program under one of its other names
            server = str(bin_ / "redis-server")
            Path(server).symlink_to(shutil.which("redis-check-rdb") or "redis-check-rdb")
        self.redis = subprocess.Popen(
            (
                server,
                "--port",
                "0",
                "--unixsocket",
                str(self.folder / "redis"),
                "--save",
                "",
                "--dir",
                str(self.folder),
            ),
            stdout=subprocess.DEVNULL,
        )
        for name in ("config", "sonic-cfggen", "sonic-db-cli", "sonic-db-dump"):
            self.tool(name)
        until((self.folder / "redis").exists)
        self.fill(THEIRS)

    def fill(self, tables: dict[str, dict[str, dict[str, str]]]) -> None:
        """Put rows into CONFIG_DB, past all tools."""
        with self.database().pipeline() as pipe:
            for table, rows in tables.items():
                for key, fields in rows.items():
                    pipe.hset(f"{table}|{key}", mapping=fields)
            pipe.execute()

    def hear(self, port: str, row: dict[str, str]) -> None:
        """A neighbour tells of itself by LLDP."""
        db: Any = redis.Redis(unix_socket_path=str(self.folder / "redis"), db=0)
        db.hset(f"LLDP_ENTRY_TABLE:{port}", mapping=row)
        db.close()

    def tool(self, name: str, *, delay: float = 0.0) -> None:
        """Put the switch's command in place; it takes that much longer to write."""
        file = self.folder / "bin" / name
        file.write_text(
            f"#!/bin/sh\nexport SONIC_FOLDER={self.folder} SONIC_DELAY={delay} SONIC_TOOL={name}\n"
            f"export PYTHONPATH={SCRIPT.parents[3]}\n"
            f'exec {sys.executable} {SCRIPT} "$@"\n'
        )
        file.chmod(0o755)

    def database(self) -> Any:
        return redis.Redis(unix_socket_path=str(self.folder / "redis"), db=4, decode_responses=True)

    def contents(self) -> dict[str, dict[str, str]]:
        """All of CONFIG_DB."""
        db = self.database()
        found = {key: dict(db.hgetall(key)) for key in db.scan_iter()}
        db.close()
        return found

    def noted(self, what: str) -> list[str]:
        """Lines of `flaps`, or of `syslog`."""
        file = self.folder / what
        return file.read_text().splitlines() if file.exists() else []

    def end(self) -> None:
        if self.redis is not None:
            self.redis.kill()
            self.redis.wait()
        super().end()
