"""The networks of `dlcpctl bench plan`, and the figures that a plan must reach on them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dlcp_lab.simulation.planned import PlanCase
from dlcpd.schedules.network import FIRST_VERSION, TYPICAL, Host, JobNetwork, Rack

MBPS: Final = 1_000_000


def _job(
    rates: Sequence[int], racks: Sequence[Sequence[int]] = (), uplink: float = 0
) -> JobNetwork:
    """Hosts with these rates; hosts of each rack, with uplinks of a rate, Mb/s both ways."""
    hosts = tuple(Host(f"h{i}", (r * MBPS,), (r * MBPS,)) for i, r in enumerate(rates))
    names = [tuple(f"h{host}" for host in rack) for rack in racks]
    uplink_bps = int(uplink * MBPS)
    made = tuple(Rack(hosts, uplink_bps, uplink_bps) for hosts in names)
    return JobNetwork(hosts, made, TYPICAL, FIRST_VERSION)


def _interleaved(racks: int, each: int) -> list[range]:
    """Hosts of each rack: ranks go from rack to rack."""
    return [range(rack, racks * each, racks) for rack in range(racks)]


_TWO_BY_FOUR: Final = _job([100] * 8, _interleaved(2, 4), 50)
# FSDP2 of `bench uneven`: a layer of 1 MiB is one operation, and waits for the one before.
_OF_FSDP2: Final = _job([25] * 8, _interleaved(2, 4), 12.5)
CASES: Final[dict[str, PlanCase]] = {
    "25/100/100/100": PlanCase(_job([25, 100, 100, 100]), "all_reduce", 4 << 20),
    "100/400/400/400": PlanCase(_job([100, 400, 400, 400]), "all_reduce", 8 << 20),
    "25+7x100": PlanCase(_job([25] + [100] * 7), "all_reduce", 4 << 20),
    "2x2": PlanCase(_job([100] * 4, _interleaved(2, 2), 50), "all_reduce", 8 << 20),
    "2x4": PlanCase(_TWO_BY_FOUR, "all_reduce", 8 << 20),
    "4x16": PlanCase(_job([100] * 64, _interleaved(4, 16), 50), "all_reduce", 8 << 20),
    "2x4-gather": PlanCase(_TWO_BY_FOUR, "all_gather", 4 << 20),
    "2x4-scatter": PlanCase(_TWO_BY_FOUR, "reduce_scatter", 4 << 20),
    "2x4-layer-gather": PlanCase(_OF_FSDP2, "all_gather", 1 << 20),
    "2x4-layer-scatter": PlanCase(_OF_FSDP2, "reduce_scatter", 1 << 20),
    "broadcast": PlanCase(_job([100] * 4), "broadcast", 16 << 20),
    "equal": PlanCase(_job([100] * 4), "all_reduce", 4 << 20),
}


@dataclass(frozen=True, slots=True)
class PlanLeast:
    """Figures of a plan, each at least; 0: not asked."""

    share: float = 0.0  # of the bound
    over_ring: float = 0.0  # speed in units of the ring's
    over_direct: float = 0.0
    uplink: float = 0.0  # at most: bytes on uplinks in units of the least
    same: bool = False  # the plan's program is that of direct, step by step


LEAST: Final = {
    "25/100/100/100": PlanLeast(share=0.9, over_direct=1.35),
    "2x2": PlanLeast(share=0.9, over_direct=1.4, uplink=1.1),
    "broadcast": PlanLeast(over_direct=2.0),
    "100/400/400/400": PlanLeast(share=0.9, over_ring=1.6),
    "25+7x100": PlanLeast(share=0.9, over_ring=1.6),
    "2x4": PlanLeast(share=0.9, over_ring=3.2),
    "4x16": PlanLeast(share=0.9, over_ring=3.2),
    "equal": PlanLeast(same=True),
    "2x4-gather": PlanLeast(over_direct=2.5, uplink=1.1),
    "2x4-scatter": PlanLeast(over_direct=2.5, uplink=1.1),
    "2x4-layer-gather": PlanLeast(over_direct=2.5, uplink=1.1),
    "2x4-layer-scatter": PlanLeast(over_direct=2.5, uplink=1.1),
}
