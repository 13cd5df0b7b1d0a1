"""Reads topology files, and what that of `[planner]` says of this host."""

from pathlib import Path
from typing import Final

from dlcpd.contract.errors import BadConfig
from dlcpd.daemon import log
from dlcpd.ipc.text_file import read
from dlcpd.schedules.network import HostCapacity

MOST_BYTES: Final = 16 << 20  # of the file: 65,536 links have 5 MB


def read_topology(file: Path, where: str) -> str:
    """The text of a topology file, which errors name as `where`. Raises: BadConfig."""
    return read(file, where, "topology file", MOST_BYTES)


def host_capacity(topology: str, host: str) -> HostCapacity | None:
    """Capacity of `host` by the file `topology`; None without a file, or if the file does not have
    the host: jobs then run as without a file.

    Raises: BadConfig naming the file.
    """
    if not topology:
        return None
    # Not before: most daemons have no topology, and need none of the planner.
    from dlcpd.planning.capacities import capacity_of  # noqa: PLC0415
    from dlcpd.planning.topology import parse  # noqa: PLC0415

    where = _where(topology)
    graph = parse(read_topology(Path(topology), where), where)
    try:
        return capacity_of(graph, host)
    except BadConfig as exc:
        raise BadConfig(f"{where}: {exc}") from exc


def capacity_told(topology: str, host: str) -> HostCapacity | None:
    """The capacity that this host tells its peers; logs where the file lacks it. Raises:
    BadConfig."""
    found = host_capacity(topology, host)
    if topology and found is None:
        log.warning("no_plan", why=absent(topology, host))
    return found


def absent(topology: str, host: str) -> str:
    """The text for a host that the file does not have."""
    return f"{_where(topology)}: host {host!r} is not in it; add it with its rate"


def _where(topology: str) -> str:
    return f"[planner] topology: {topology}"
