"""Network of a job: the capacities between its hosts, as integers that all engines share."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from typing import Annotated, Final, NamedTuple, Self

from msgspec import Meta

from dlcpd.contract.forms import between, most

DIGITS: Final = 2  # significant digits of a rate or cost: measurements are no better


MAX_RAILS: Final = 16
MAX_RATE: Final = 10**15  # bit/s
MAX_COST: Final = 10**6  # nanoseconds; more than ten times those of a slow host
Rate = Annotated[int, between(1, MAX_RATE)]
Cost = Annotated[int, between(0, MAX_COST)]
Rails = Annotated[tuple[Rate, ...], Meta(min_length=1, max_length=MAX_RAILS)]


class HostCapacity(NamedTuple):
    """What a host tells its peers: rates of its rails in bit/s, and its rack."""

    out_bps: Rails
    in_bps: Rails
    rack: Annotated[str, most(255)] = ""  # "" = all hosts are on one switch
    up_bps: Annotated[int, between(0, MAX_RATE)] = 0  # of the rack's uplink; 0 without a rack
    down_bps: Annotated[int, between(0, MAX_RATE)] = 0


class BadNetwork(ValueError):
    """A network is not valid; the text names host, rack or cost, and the reason."""


@dataclass(frozen=True, slots=True)
class Host:
    """Capacity of a host, by rail and direction."""

    name: str
    out_bps: tuple[int, ...]  # to the network, of each rail
    in_bps: tuple[int, ...]  # from the network, of each rail


@dataclass(frozen=True, slots=True)
class Rack:
    """Hosts behind one switch, and the capacity of its uplink by direction."""

    hosts: tuple[str, ...]
    up_bps: int  # out of the rack
    down_bps: int  # into it


class Costs(NamedTuple):
    """CPU time of an engine, in nanoseconds, and the latency of one hop."""

    transfer_ns: Cost
    datagram_ns: Cost
    wake_up_ns: Cost
    latency_ns: Cost


FIRST_VERSION: Final = 1  # of the network that a job begins with

TYPICAL: Final = Costs(40_000, 500, 30_000, 100_000)  # of a host that has not measured them


def agreed(costs: Sequence[Costs]) -> Costs:
    """The largest of each cost of some hosts: an operation waits for its slowest host."""
    return Costs(*map(max, zip(*costs, strict=True)))


@dataclass(frozen=True)
class JobNetwork:
    """Hosts and racks of a job. Without racks, all hosts are on one switch.

    All rates and costs are rounded to DIGITS significant digits, so that equal measurements give
    equal networks. Raises: BadNetwork.
    """

    hosts: tuple[Host, ...]  # in an order that is equal on all engines
    racks: tuple[Rack, ...]  # none, or racks that hold every host once
    costs: Costs
    version: int

    def __post_init__(self) -> None:
        names = [host.name for host in self.hosts]
        if not names:
            raise BadNetwork("a network needs at least one host")
        for name in names:
            if names.count(name) > 1:
                raise BadNetwork(f"host {name} is named twice")
        if self.version < 0:
            raise BadNetwork(f"version {self.version} is negative")
        for host in self.hosts:
            _check_host(host)
        for field, cost in self.costs._asdict().items():
            if cost < 0:
                raise BadNetwork(f"{field} is negative")
        self._check_racks(set(names))
        object.__setattr__(self, "hosts", tuple(map(_rounded_host, self.hosts)))
        object.__setattr__(self, "racks", tuple(map(_rounded_rack, self.racks)))
        object.__setattr__(self, "costs", Costs(*map(rounded, self.costs)))

    def _check_racks(self, names: set[str]) -> None:
        placed: set[str] = set()
        for number, rack in enumerate(self.racks):
            if not rack.hosts:
                raise BadNetwork(f"rack {number} has no host")
            if min(rack.up_bps, rack.down_bps) <= 0:
                raise BadNetwork(f"rack {number} has an uplink without a positive rate")
            for name in rack.hosts:
                if name not in names:
                    raise BadNetwork(f"rack {number} has an unknown host {name}")
                if name in placed:
                    raise BadNetwork(f"host {name} is in two racks, or twice in one")
                placed.add(name)
        for name in sorted(names - placed) if self.racks else ():
            raise BadNetwork(f"host {name} is in no rack")

    def of(self, names: Sequence[str]) -> Self:
        """The part of the network between some of its hosts, in the order given."""
        hosts = {host.name: host for host in self.hosts}
        kept = [
            replace(rack, hosts=tuple(name for name in names if name in rack.hosts))
            for rack in self.racks
        ]
        racks = tuple(rack for rack in kept if rack.hosts)
        return replace(self, hosts=tuple(hosts[name] for name in names), racks=racks)

    @property
    def out_bps(self) -> tuple[int, ...]:
        """Send rate of each host over all rails, in bit/s."""
        return tuple(sum(host.out_bps) for host in self.hosts)

    @property
    def in_bps(self) -> tuple[int, ...]:
        """Receive rate of each host over all rails, in bit/s."""
        return tuple(sum(host.in_bps) for host in self.hosts)

    @property
    def rates(self) -> tuple[int, ...]:
        """Capacity of each host over all rails, in bit/s: the lesser of the two directions."""
        return tuple(map(min, self.out_bps, self.in_bps))

    @property
    def capacities(self) -> list[HostCapacity]:
        """What each host would tell: the inverse of `job_network`, whose racks have other names."""
        rack_of = {name: at for at, rack in enumerate(self.racks) for name in rack.hosts}
        told = []
        for host in self.hosts:
            mine = HostCapacity(host.out_bps, host.in_bps)
            if host.name in rack_of:
                at = rack_of[host.name]
                rack = self.racks[at]
                mine = mine._replace(rack=str(at), up_bps=rack.up_bps, down_bps=rack.down_bps)
            told.append(mine)
        return told

    @property
    def uniform(self) -> bool:
        """Whether all hosts have equal rates, and there is one rack at most."""
        return len({(host.out_bps, host.in_bps) for host in self.hosts}) == 1 and (
            len(self.racks) < 2  # two racks have an uplink between them
        )

    @property
    def groups(self) -> tuple[tuple[int, ...], ...]:
        """Positions of the hosts of each rack; one group without racks."""
        if not self.racks:
            return (tuple(range(len(self.hosts))),)
        at = {host.name: position for position, host in enumerate(self.hosts)}
        return tuple(tuple(sorted(at[name] for name in rack.hosts)) for rack in self.racks)

    @cached_property
    def digest(self) -> bytes:
        """16 bytes, equal for equal networks."""
        text = repr((self.version, self.hosts, self.racks, self.costs))
        return blake2b(text.encode(), digest_size=16).digest()


def job_network(
    hosts: Sequence[tuple[str, HostCapacity | None]],
    version: int = FIRST_VERSION,
    costs: Costs = TYPICAL,
) -> JobNetwork | None:
    """The network of hosts with what each told, in this order; None if no host told anything.

    Of an uplink of which hosts told different capacities, the least holds. Raises: BadNetwork.
    """
    if all(told is None for _, told in hosts):
        return None
    made, racks = list[Host](), dict[str, Rack]()
    for name, told in hosts:
        if told is None:
            raise BadNetwork(f"host {name} told no rate: set [planner] topology there")
        made.append(Host(name, told.out_bps, told.in_bps))
        if told.rack:
            known = racks.get(told.rack, Rack((), told.up_bps, told.down_bps))
            up, down = min(known.up_bps, told.up_bps), min(known.down_bps, told.down_bps)
            racks[told.rack] = Rack((*known.hosts, name), up, down)
    return JobNetwork(tuple(made), tuple(racks.values()), costs, version)


def rounded(value: int) -> int:
    """`value` with DIGITS significant digits, halves up."""
    unit: int = 10 ** max(0, len(str(value)) - DIGITS)
    return (value + unit // 2) // unit * unit


def _check_host(host: Host) -> None:
    if not host.out_bps or len(host.out_bps) != len(host.in_bps):
        raise BadNetwork(f"host {host.name} needs as many rails in each direction, at least one")
    if min(*host.out_bps, *host.in_bps) <= 0:
        raise BadNetwork(f"host {host.name} has a rail without a positive rate")


def _rounded_host(host: Host) -> Host:
    return Host(host.name, tuple(map(rounded, host.out_bps)), tuple(map(rounded, host.in_bps)))


def _rounded_rack(rack: Rack) -> Rack:
    return Rack(rack.hosts, rounded(rack.up_bps), rounded(rack.down_bps))
