"""Makes a planned fabric, in one batch per tool and namespace: starting processes is slow."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping
from typing import Final

from dlcp_lab.emulation import cables, rules
from dlcp_lab.emulation.condition import Condition
from dlcp_lab.emulation.early_drop import early_drop_lines
from dlcp_lab.emulation.namespaces import command, inside
from dlcp_lab.emulation.plan import Plan
from dlcp_lab.emulation.queues import queue_lines
from dlcp_lab.emulation.topology import (
    Direction,
    Link,
    Port,
    Route,
    directions,
    identity,
    is_host,
    links,
    nodes,
    routes,
    switches,
)

# With offloads a 64 KiB burst would cross the switch as one "packet": one drop, one queue slot.
OFFLOADS: Final = ("tx-udp-segmentation", "tso", "gso", "gro")
OFF: Final = " ".join(f"{feature} off" for feature in OFFLOADS)

# Path discovery counts hops by ICMP answers of switches, which are rate-limited by default.
SWITCH_SETTINGS: Final = {
    "ip_forward": "1",
    "fib_multipath_hash_policy": "1",  # addresses and ports
    "icmp_ratelimit": "0",
}
# Older kernels do not have these per namespace.
NEW_SETTINGS: Final = {"icmp_msgs_per_sec": "100000", "icmp_msgs_burst": "10000"}
SEED: Final = "fib_multipath_hash_seed"  # since Linux 6.11; without it, every start hashes anew


def build(name: str, plan: Plan, conditions: Mapping[str, Condition]) -> None:
    """Make all namespaces, links, routes, queues and rules.

    Raises: FabricError; the caller removes the parts that were made by then.
    """
    delayed = cables.cabled(plan, conditions)
    if delayed:
        cables.compiled()  # refused before there is anything to remove
    command("ip", "-batch", "-", stdin="\n".join(_links(name, plan, delayed)))
    for node in nodes(plan):
        namespace = f"{name}-{node}"
        command(*inside(namespace, "sh", "-e"), stdin="\n".join(_settings(plan, node, delayed)))
        ip_lines = [*_addresses(plan, node), *route_lines(plan, node)]
        command("ip", "-n", namespace, "-batch", "-", stdin="\n".join(ip_lines))
    for switch, ways in by_switch(plan).items():
        _equip(f"{name}-{switch}", plan, ways, conditions)
    for way in directions(plan).values():
        if way.from_host and (rate := conditions[way.name].rate):
            lines = "\n".join(queue_lines(plan, way.source.device, rate))
            command("tc", "-n", f"{name}-{way.source.node}", "-batch", "-", stdin=lines)
    if delayed:
        lines = "\n".join(cables.settings(delayed, OFF))
        command(*inside(f"{name}-{cables.NODE}", "sh", "-e"), stdin=lines)
        cables.start(name, delayed, conditions)


def by_switch(plan: Plan) -> dict[str, list[Direction]]:
    """The directions whose queues and rules each switch has."""
    found: dict[str, list[Direction]] = defaultdict(list)
    for way in directions(plan).values():
        found[way.switch_port.node].append(way)
    return found


def route_lines(plan: Plan, node: str, down: Collection[str] = ()) -> Iterator[str]:
    """Lines for `ip -batch` that add or replace a node's routes."""
    for route in routes(plan, node, down):
        yield f"route replace {_route(route)}"


def _route(route: Route) -> str:
    if not route.ways:
        return f"unreachable {route.subnet}"
    source = f" src {route.source}" if route.source else ""
    if len(route.ways) == 1:
        [(gateway, device)] = route.ways
        return f"{route.subnet}{source} via {gateway} dev {device}"
    ways = " ".join(f"nexthop via {gateway} dev {device}" for gateway, device in route.ways)
    return f"{route.subnet}{source} {ways}"


def _links(name: str, plan: Plan, delayed: Collection[Link]) -> Iterator[str]:
    for node in (*nodes(plan), *([cables.NODE] if delayed else [])):
        yield f"netns add {name}-{node}"
    for link in delayed:
        yield from cables.link_lines(name, link)
    for link in links(plan):
        if link in delayed:
            continue
        low, high = link.low, link.high
        yield (
            f"link add {low.device} netns {name}-{low.node} type veth "
            f"peer name {high.device} netns {name}-{high.node}"
        )


def _settings(plan: Plan, node: str, delayed: Collection[Link]) -> Iterator[str]:
    """Shell commands for settings that only ethtool and /proc have."""
    for link in delayed:
        for port in (link.low, link.high):
            if port.node == node:
                yield cables.patience(port)
    for port in _ports(plan, node):
        yield f"ethtool -K {port.device} {OFF}"
    if is_host(node):
        return
    folder = "/proc/sys/net/ipv4"
    for key, value in SWITCH_SETTINGS.items():
        yield f"echo {value} > {folder}/{key}"
    seed = str(plan.seed + switches(plan).index(node))  # else all switches would choose alike
    for key, value in {**NEW_SETTINGS, SEED: seed}.items():
        yield f"if [ -w {folder}/{key} ]; then echo {value} > {folder}/{key}; fi"


def _addresses(plan: Plan, node: str) -> Iterator[str]:
    if not is_host(node):
        yield f"address add {identity(plan, node)}/32 dev lo"
    for port in _ports(plan, node):
        yield f"address add {port.address} dev {port.device}"
    for device in ("lo", *(port.device for port in _ports(plan, node))):
        yield f"link set {device} up"


def _ports(plan: Plan, node: str) -> list[Port]:
    return [port for link in links(plan) for port in (link.low, link.high) if port.node == node]


def port_lines(plan: Plan, device: str, rate: str) -> Iterator[str]:
    """Lines for `tc -batch`: the queues of a switch output, and its early drops in BPF."""
    yield from queue_lines(plan, device, rate)
    if plan.ecn_bytes and plan.early_drop == "bpf":
        yield from early_drop_lines(plan, device, rate)


def _equip(
    namespace: str, plan: Plan, ways: list[Direction], conditions: Mapping[str, Condition]
) -> None:
    """Give a switch its queues and its rules."""
    lines = [
        line
        for way in ways
        if not way.from_host and not plan.bare
        for line in port_lines(plan, way.source.device, conditions[way.name].rate)
    ]
    command("tc", "-n", namespace, "-batch", "-", stdin="\n".join(lines))
    chains = [rules.chain(plan, way, conditions[way.name]) for way in ways]
    text = rules.table(plan, ways) + "".join(chains)
    command(*inside(namespace, "nft", "-f", "-"), stdin=text)
