"""The ports between simulated hosts: hosts on leaves, leaves on spines."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from dlcp_lab.simulation.calendar import Calendar
from dlcp_lab.simulation.egress import Egress, Wire
from dlcp_lab.simulation.losses import Losses
from dlcp_lab.simulation.switch import SharedBuffer, SwitchRules
from dlcp_lab.simulation.train import Train
from dlcpd.schedules.network import JobNetwork

Hops = tuple[Egress, ...]
PLAIN = SwitchRules()


class Spines(Enum):
    """How a leaf chooses the spine of a train."""

    ECMP = "ecmp"  # by a hash of source, target and path: a path of a pair keeps its spine
    PATHS = "paths"  # path p over spine p, as where each path is a network of its own
    SPRAY = "spray"  # one after the other, whatever the path


@dataclass(frozen=True)
class LeafSpine:
    """`hosts` hosts, `per_leaf` at each leaf, or as `placed`; one leaf needs no spines.

    `other` replaces wires by name: `h3>` from host 3 to its leaf, `>h3` from the leaf to it,
    `l0>s1` and `s1>l0` between leaf 0 and spine 1.
    """

    hosts: int
    up: Wire  # from each host to its leaf
    down: Wire  # from the leaf to each host
    per_leaf: int = 0  # 0: all
    spines: int = 0
    between: Wire | None = None  # from each leaf to each spine, and back
    rules: SwitchRules = PLAIN
    choice: Spines = Spines.ECMP
    other: Mapping[str, Wire] = field(default_factory=dict)
    seed: int = 0
    placed: tuple[int, ...] = ()  # leaf of each host, in any order; empty: `per_leaf` at each

    def __post_init__(self) -> None:
        if self.placed and len(self.placed) != self.hosts:
            raise ValueError(f"{len(self.placed)} hosts are placed, of {self.hosts}")
        if self.leaves > 1 and not (self.spines and self.between):
            raise ValueError(f"{self.leaves} leaves need spines, and wires to them")

    @property
    def leaves(self) -> int:
        if self.placed:
            return max(self.placed) + 1
        return -(-self.hosts // (self.per_leaf or self.hosts))

    def leaf(self, host: int) -> int:
        """The leaf of a host."""
        if self.placed:
            return self.placed[host]
        return host // (self.per_leaf or self.hosts)


def star(
    hosts: int,
    rate_bps: float,
    round_trip: float,
    *,
    loss: float = 0.0,
    burst: float = 1.0,
    seed: int = 0,
) -> LeafSpine:
    """One switch. `round_trip`: seconds between two hosts without any data; datagrams are lost
    between the switch and the host that they are for. A port holds a quarter of a megabyte, or the
    bandwidth-delay product if that is more."""
    delay = round_trip / 4
    buffer = max(256 << 10, rate_bps / 8 * round_trip)
    return LeafSpine(
        hosts,
        Wire(rate_bps, delay),
        Wire(rate_bps, delay, loss, burst),
        rules=SwitchRules(port_buffer=buffer),
        seed=seed,
    )


def of_network(
    network: JobNetwork, round_trip: float, *, buffer: float = 256 << 10, seed: int = 0
) -> LeafSpine:
    """A leaf per rack, each with one uplink to one spine; without racks, one switch.

    Rank r is host r; its wires have the sum of its rails' rates. `round_trip`: seconds without data
    between two hosts, of two racks if there are racks. `buffer`: bytes that wait at a port.
    """
    count = len(network.hosts)
    placed = [0] * count
    for number, group in enumerate(network.groups):
        for host in group:
            placed[host] = number
    delay = round_trip / (8 if network.racks else 4)
    other = {f"h{host}>": Wire(rate, delay) for host, rate in enumerate(network.out_bps)}
    other |= {f">h{host}": Wire(rate, delay) for host, rate in enumerate(network.in_bps)}
    for number, rack in enumerate(network.racks):
        other[f"l{number}>s0"] = Wire(rack.up_bps, delay)
        other[f"s0>l{number}"] = Wire(rack.down_bps, delay)
    wire = Wire(max(network.rates), delay)  # of none: `other` has all wires
    return LeafSpine(
        count,
        wire,
        wire,
        spines=1 if network.racks else 0,
        between=wire if network.racks else None,
        rules=SwitchRules(buffer),
        other=other,
        seed=seed,
        placed=tuple(placed),
    )


class SimFabric:
    """The ports of a plan, and the way of each train through them."""

    def __init__(
        self, plan: LeafSpine, calendar: Calendar, deliver: Callable[[Train], None]
    ) -> None:
        self.plan, self._calendar, self._deliver = plan, calendar, deliver
        self.ports: dict[str, Egress] = {}  # by name, those in use
        self._buffers: dict[str, SharedBuffer] = {}  # by switch
        self._ways: dict[tuple[int, int, int], Hops] = {}  # by source, target and spine
        self._turn = 0

    def send(self, train: Train) -> None:
        """Put a train on the wire of its host."""
        train.hops = self.way(train.source, train.target, self._spine(train))
        train.first = train.last = self._calendar.now
        train.hops[0].accept(train)

    def slowest(self, source: int, target: int) -> float:
        """Bits per second of the slowest wire between two hosts."""
        return min(port.wire.rate_bps for port in self.way(source, target))

    @property
    def dropped(self) -> int:
        """Datagrams without room."""
        return sum(sum(port.dropped.values()) for port in self.ports.values())

    @property
    def lost(self) -> int:
        """Datagrams lost by wires."""
        return sum(port.losses.lost for port in self.ports.values())

    def _spine(self, train: Train) -> int:
        spines = self.plan.spines
        if not spines or self.plan.leaf(train.source) == self.plan.leaf(train.target):
            return 0
        match self.plan.choice:
            case Spines.PATHS:
                return train.path % spines
            case Spines.SPRAY:
                self._turn += 1
                return self._turn % spines
            case Spines.ECMP:
                return hash((train.source, train.target, train.path, self.plan.seed)) % spines

    def way(self, source: int, target: int, spine: int = 0) -> Hops:
        """The ports between two hosts, over a spine if they are at two leaves."""
        known = self._ways.get((source, target, spine))
        if known is None:
            known = self._ways[source, target, spine] = tuple(
                self._port(*each) for each in self._legs(source, target, spine)
            )
        return known

    def _legs(self, source: int, target: int, spine: int) -> list[tuple[str, Wire, str]]:
        """Name of a port, its wire, and the switch that it belongs to (a host's: none)."""
        plan = self.plan
        a, b = plan.leaf(source), plan.leaf(target)
        between = []
        if a != b and plan.between is not None:
            between = [
                (f"l{a}>s{spine}", plan.between, f"l{a}"),
                (f"s{spine}>l{b}", plan.between, f"s{spine}"),
            ]
        return [(f"h{source}>", plan.up, ""), *between, (f">h{target}", plan.down, f"l{b}")]

    def _port(self, name: str, wire: Wire, switch: str) -> Egress:
        port = self.ports.get(name)
        if port is None:
            wire, rules = self.plan.other.get(name, wire), self.plan.rules
            port = self.ports[name] = Egress(
                name,
                wire,
                self._calendar,
                Losses(wire.loss, wire.burst, f"{self.plan.seed} {name}"),
                self._deliver,
                rules if switch else None,
                self._shared(switch, rules) if switch else None,
            )
        return port

    def _shared(self, switch: str, rules: SwitchRules) -> SharedBuffer | None:
        if rules.shared_buffer == float("inf"):
            return None
        return self._buffers.setdefault(switch, SharedBuffer(rules.shared_buffer))
