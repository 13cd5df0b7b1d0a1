"""The capacity of a host in a topology, as its daemon tells it to peers."""

from dlcpd.contract.errors import BadConfig
from dlcpd.planning.graph import Graph, neighbours
from dlcpd.schedules.network import MAX_RATE, HostCapacity


def capacity_of(graph: Graph, host: str) -> HostCapacity | None:
    """Rates and rack of a host; None if the topology does not have it.

    A rack is a switch with hosts whose uplinks lead to one other switch, or to switches without
    hosts, as the spines of a fabric. Raises: BadConfig unless the host has one link, to a switch,
    in both directions.
    """
    if host not in graph.hosts:
        return None
    node, count = graph.hosts.index(host), len(graph.hosts)
    out = {link.target: link.rate for link in graph.links if link.source == node}
    into = {link.source: link.rate for link in graph.links if link.target == node}
    if len(out) != 1 or out.keys() != into.keys() or min(out) < count:
        raise BadConfig(
            f"host {host!r} needs one link in both directions, to a switch: [planner] describes a "
            "host by its rate and its rack"
        )
    [switch] = out
    rate, back = min(out[switch], MAX_RATE), min(into[switch], MAX_RATE)
    onwards = neighbours(graph)
    above = [other for other in onwards[switch] if other >= count]
    spines = all(min(onwards[other]) >= count for other in above)
    if not above or not (spines or len(above) == 1):
        return HostCapacity((rate,), (back,))
    up = sum(link.rate for link in graph.links if link.source == switch and link.target in above)
    down = sum(link.rate for link in graph.links if link.target == switch and link.source in above)
    rack = graph.name(switch)
    return HostCapacity((rate,), (back,), rack, min(up, MAX_RATE), min(down, MAX_RATE))
