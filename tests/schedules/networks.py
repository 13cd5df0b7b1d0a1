"""Networks of tests: hosts by their rates, in racks."""

from collections.abc import Sequence

from dlcpd.schedules.network import TYPICAL, Host, JobNetwork, Rack

MEGA = 1_000_000


def network_of(
    rates: Sequence[int], racks: Sequence[Sequence[int]] = (), uplink: int = 0
) -> JobNetwork:
    """Hosts h0, h1, ... with these rates in Mb/s; racks by positions of hosts, with one uplink."""
    hosts = tuple(Host(f"h{at}", (rate * MEGA,), (rate * MEGA,)) for at, rate in enumerate(rates))
    groups = tuple(
        Rack(tuple(f"h{at}" for at in group), uplink * MEGA, uplink * MEGA) for group in racks
    )
    return JobNetwork(hosts, groups, TYPICAL, 1)


def uneven(world: int) -> JobNetwork:
    """One host at a quarter of the rate of the others."""
    return network_of([25, *[100] * (world - 1)])
