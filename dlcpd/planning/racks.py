"""Trees of two levels for racks in closed form: without a solver, often near the bound."""

from dlcpd.planning.graph import Graph, neighbours
from dlcpd.planning.packing import PackedTree, Packing
from dlcpd.planning.pair_loads import TooLarge, pair_loads
from dlcpd.planning.trees import both_ways
from dlcpd.schedules.forest import UNIT
from dlcpd.schedules.layout import ALIGNMENT
from dlcpd.schedules.network import Costs, Host, JobNetwork, Rack
from dlcpd.schedules.shares import two_levels as closed_form

_FREE = Costs(0, 0, 0, 0)  # costs do not change the trees


def two_levels(graph: Graph) -> Packing | None:
    """The trees that engines derive for racks, and the rate that links allow them.

    None: hosts are not in two racks or more below one core, or are too many to add up loads.
    """
    network = _in_racks(graph)
    if network is None:
        return None
    try:
        loads = pair_loads(graph)
    except TooLarge:
        return None
    made = closed_form(network, ALIGNMENT).forest.trees
    trees = tuple(PackedTree(tree.share / UNIT, tree.parents) for tree in made)
    carried = sum(tree.share * loads.of_ways(both_ways(tree.parents)) for tree in trees)
    return Packing(float((loads.capacity / carried)[carried > 0].min()), trees)


def _in_racks(graph: Graph) -> JobNetwork | None:
    near, count = neighbours(graph), len(graph.hosts)
    if any(len(near[host]) != 1 for host in range(count)):
        return None
    switches = {near[host][0] for host in range(count)}
    cores = {node for switch in switches for node in near[switch] if node >= count}
    links = {link[:2]: link.rate for link in graph.links}
    if len(switches) < 2 or min(switches) < count or len(cores) != 1 or cores & switches:
        return None
    (core,) = cores
    ways = [(host, near[host][0]) for host in range(count)]
    ways += [(switch, core) for switch in switches]
    if len(links) != 2 * len(ways) or any(way[::-1] not in links for way in ways):
        return None
    hosts = tuple(
        Host(graph.name(host), (links[host, above],), (links[above, host],))
        for host, above in ways[:count]
    )
    racks = tuple(
        Rack(
            tuple(graph.name(host) for host, above in ways[:count] if above == switch),
            links[switch, core],
            links[core, switch],
        )
        for switch in sorted(switches)
    )
    return JobNetwork(hosts, racks, _FREE, 0)
