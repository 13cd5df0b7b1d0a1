"""Rate, delay, loss and cut of one direction of a link: a value, changed by replacing it."""

from dataclasses import dataclass
from enum import StrEnum

from dlcp_lab.emulation.plan import Plan, bits_per_second, check_delay, check_loss
from dlcp_lab.emulation.topology import Direction, chosen, directions, is_host


class LinkCut(StrEnum):
    """Whether a direction carries packets."""

    NO = "no"
    SILENT = "silent"  # packets vanish and no route changes, as in a gray failure
    CLEAN = "clean"  # the link is down and every switch routes around it


@dataclass(frozen=True, slots=True)
class Condition:
    """Rate and faults of one direction.

    Raises: FabricError.
    """

    rate: str = ""  # "" = no limit, the default of hosts
    loss: float = 0.0  # fraction of packets dropped at random
    burst_loss: float = 0.0  # fraction dropped in bursts
    burst_length: float = 8.0  # mean packets per burst
    cut: LinkCut = LinkCut.NO
    delay: float = 0.0  # seconds; fixed when the fabric is made

    def __post_init__(self) -> None:
        if self.rate:
            bits_per_second(self.rate)
        check_loss(self.loss)
        check_loss(self.burst_loss, self.burst_length)
        check_delay(self.delay)


def initial(plan: Plan) -> dict[str, Condition]:
    """The condition of every direction as planned, by its name.

    Raises: FabricError for a delay or limit of an unknown link, or a wrong rate.
    """
    limits = {way.name: rate for link, rate in plan.limits for way in chosen(plan, link)}
    delays = {way.name: delay for link, delay in plan.delays for way in chosen(plan, link)}
    return {
        name: _initial(plan, way, limits.get(name, ""), delays.get(name, 0.0))
        for name, way in directions(plan).items()
    }


def _initial(plan: Plan, way: Direction, limit: str, delay: float) -> Condition:
    if way.from_host:
        return Condition(limit, delay=delay)
    rate = limit or (plan.host_rate if is_host(way.target.node) else plan.spine_rate)
    return Condition(rate, plan.loss, plan.burst_loss, plan.burst_length, delay=delay)
