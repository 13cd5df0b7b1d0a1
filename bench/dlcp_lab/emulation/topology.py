"""Names, links, addresses and routes of a fabric. Pure: a plan in, values out.

Nodes are `h3` (host), `l0` (leaf) and `s1` (spine); rail r has the leaves and spines
r*n .. r*n+n-1. A link is `h3-l1` or `l1-s0`, one direction of it `l1:h3`.

Rail r is 10.(77+r).0.0/16: host i has .i.2 on eth<r>, its leaf .i.1. In traces of routes leaf n is
.254.n+1 and spine n is .255.n+1; .252 and .253 are the links between them.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from dlcp_lab.emulation.plan import FabricError, Plan

FIRST_RAIL: Final = 77  # second byte of rail 0's addresses


@dataclass(frozen=True, slots=True)
class Port:
    """One end of a link."""

    node: str
    device: str
    address: str  # with its prefix length


@dataclass(frozen=True, slots=True)
class Link:
    """Two ports; `low` is on the host, or on the leaf of a link to a spine."""

    low: Port
    high: Port

    @property
    def directions(self) -> tuple["Direction", "Direction"]:
        """Low to high, then high to low."""
        return Direction(self.low, self.high), Direction(self.high, self.low)


@dataclass(frozen=True, slots=True)
class Direction:
    """One direction of a link, from port `source` to port `target`."""

    source: Port
    target: Port

    @property
    def name(self) -> str:
        """Name, such as `l1:h3`."""
        return f"{self.source.node}:{self.target.node}"

    @property
    def link(self) -> str:
        """Name of its link."""
        return "-".join(sorted((self.source.node, self.target.node)))  # h before l before s

    @property
    def from_host(self) -> bool:
        """Whether a host sends in it; the others leave through a queue of a switch."""
        return is_host(self.source.node)

    @property
    def switch_port(self) -> Port:
        """The switch port of the direction: the target if a host sends, else the source."""
        return self.target if self.from_host else self.source


@dataclass(frozen=True, slots=True)
class Route:
    """A destination and the ways to it; no ways if it is unreachable."""

    subnet: str
    ways: tuple[tuple[str, str], ...]  # gateway and device; several are equal-cost paths
    source: str = ""  # source address of ICMP errors of this route


def is_host(node: str) -> bool:
    """Whether a node's name is that of a host."""
    return node.startswith("h")


def nodes(plan: Plan) -> list[str]:
    """All nodes, hosts first."""
    return [f"h{host}" for host in range(plan.hosts)] + switches(plan)


def switches(plan: Plan) -> list[str]:
    """Leaves, then spines."""
    leaves = [f"l{leaf}" for leaf in range(plan.rails * plan.leaves)]
    return leaves + [f"s{spine}" for spine in range(plan.rails * plan.spines)]


def host_address(plan: Plan, host: int, rail: int = 0) -> str:
    """IPv4 address of a host.

    Raises: FabricError.
    """
    for name, number, count in (("host", host, plan.hosts), ("rail", rail, plan.rails)):
        if not 0 <= number < count:
            raise FabricError(f"{name} {number}: this fabric has {name}s 0..{count - 1}")
    return f"{_rail(rail)}.{host}.2"


def identity(plan: Plan, switch: str) -> str:
    """The address of a leaf or spine itself, unique in the fabric."""
    per_rail, third = (plan.leaves, 254) if switch.startswith("l") else (plan.spines, 255)
    rail, number = divmod(int(switch[1:]), per_rail)
    return f"{_rail(rail)}.{third}.{number + 1}"


def links(plan: Plan) -> list[Link]:
    """All links, host links first."""
    return [*_host_links(plan), *_spine_links(plan)]


def directions(plan: Plan) -> dict[str, Direction]:
    """Both directions of every link, by name."""
    return {way.name: way for link in links(plan) for way in link.directions}


def chosen(plan: Plan, name: str) -> list[Direction]:
    """The directions that a name means: `l0-s1` both, `l0:s1` one, "" all.

    Raises: FabricError.
    """
    found = [
        way for link in links(plan) for way in link.directions if name in {"", way.link, way.name}
    ]
    if not found:
        known = ", ".join(dict.fromkeys(way.link for way in directions(plan).values()))
        raise FabricError(
            f"the fabric has no link {name!r}: use one of {known}, or a direction such as l0:h0"
        )
    return found


def routes(plan: Plan, node: str, down: Collection[str] = ()) -> list[Route]:
    """Routes of a node to subnets other than its own, without the links in `down`."""
    if is_host(node):
        return _host_routes(plan, int(node[1:]))
    if node.startswith("l"):
        return list(_leaf_routes(plan, int(node[1:]), down))
    return list(_spine_routes(plan, int(node[1:]), down))


def _rail(rail: int) -> str:
    return f"10.{FIRST_RAIL + rail}"


def _leaf_of(plan: Plan, host: int, rail: int) -> int:
    return rail * plan.leaves + plan.leaf_of(host)


def _host_links(plan: Plan) -> Iterator[Link]:
    for rail in range(plan.rails):
        for host in range(plan.hosts):
            subnet = f"{_rail(rail)}.{host}"
            yield Link(
                Port(f"h{host}", f"eth{rail}", f"{subnet}.2/24"),
                Port(f"l{_leaf_of(plan, host, rail)}", f"h{host}", f"{subnet}.1/24"),
            )


def _spine_links(plan: Plan) -> Iterator[Link]:
    for leaf in range(plan.rails * plan.leaves):
        rail = leaf // plan.leaves
        for spine in range(rail * plan.spines, (rail + 1) * plan.spines):
            low, high = _pair(plan, leaf, spine)
            yield Link(
                Port(f"l{leaf}", f"s{spine}", f"{low}/31"),
                Port(f"s{spine}", f"l{leaf}", f"{high}/31"),
            )


def _pair(plan: Plan, leaf: int, spine: int) -> tuple[str, str]:
    """Addresses of a leaf's and a spine's end of the link between them."""
    rail, number = divmod(leaf, plan.leaves)
    third, fourth = divmod(2 * (number * plan.spines + spine % plan.spines), 256)
    subnet = f"{_rail(rail)}.{252 + third}"
    return f"{subnet}.{fourth}", f"{subnet}.{fourth + 1}"


def _host_routes(plan: Plan, host: int) -> list[Route]:
    rails = range(plan.rails)
    ways = [((f"{_rail(rail)}.{host}.1", f"eth{rail}"),) for rail in rails]
    return [Route("default", ways[0])] + [
        Route(f"{_rail(rail)}.0.0/16", ways[rail]) for rail in rails
    ]


def _leaf_routes(plan: Plan, leaf: int, down: Collection[str]) -> Iterator[Route]:
    rail = leaf // plan.leaves
    spines = range(rail * plan.spines, (rail + 1) * plan.spines)
    for host in range(plan.hosts):
        other = _leaf_of(plan, host, rail)
        if other == leaf:
            continue
        ways = tuple(
            (_pair(plan, leaf, spine)[1], f"s{spine}")
            for spine in spines
            if not {f"l{leaf}-s{spine}", f"l{other}-s{spine}"} & set(down)
        )
        yield Route(f"{_rail(rail)}.{host}.0/24", ways, identity(plan, f"l{leaf}"))


def _spine_routes(plan: Plan, spine: int, down: Collection[str]) -> Iterator[Route]:
    rail = spine // plan.spines
    for host in range(plan.hosts):
        leaf = _leaf_of(plan, host, rail)
        way = _pair(plan, leaf, spine)[0], f"l{leaf}"
        ways = () if f"l{leaf}-s{spine}" in down else (way,)
        yield Route(f"{_rail(rail)}.{host}.0/24", ways, identity(plan, f"s{spine}"))
