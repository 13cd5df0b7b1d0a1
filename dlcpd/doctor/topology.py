"""Check of the topology file: this host as its daemon will tell it to peers."""

from typing import Final

from dlcpd.contract.errors import BadConfig
from dlcpd.daemon.config.tables import Config
from dlcpd.daemon.config.topology import absent, host_capacity
from dlcpd.doctor.rows import Row, fail, good, warn
from dlcpd.planning.rates import in_words
from dlcpd.schedules.network import HostCapacity

CHECK: Final = "topology"


def judge_topology(config: Config) -> list[Row]:
    """No row without a file. `config` is resolved."""
    file, host = config.planner.topology, config.daemon.host
    if not file:
        return []
    try:
        found = host_capacity(file, host)
    except BadConfig as exc:
        remedy = "correct the file (docs/planner.md); the daemon does not start with it"
        return [fail(CHECK, str(exc), remedy)]
    if found is None:
        remedy = "jobs of this host run without a plan until it is there"
        return [warn(CHECK, absent(file, host), remedy)]
    return [good(CHECK, _words(host, found))]


def _words(host: str, found: HostCapacity) -> str:
    out, into = in_words(sum(found.out_bps)), in_words(sum(found.in_bps))
    said = f"{host} sends {out} and receives {into}"
    if not found.rack:
        return f"{said}; no racks"
    up, down = in_words(found.up_bps), in_words(found.down_bps)
    return f"{said}; rack {found.rack}, whose uplink sends {up} and receives {down}"
