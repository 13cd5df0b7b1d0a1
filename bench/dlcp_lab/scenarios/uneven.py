"""`dlcpctl bench uneven`: a slow host, and racks behind slow uplinks, with and without a plan."""

import argparse
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from dlcp_lab.emulation import Fabric
from dlcp_lab.emulation.scratch import scratch_folder
from dlcp_lab.report.machine import tcp_congestion_control
from dlcp_lab.report.statistic import quotient
from dlcp_lab.scenarios.claims import Findings
from dlcp_lab.scenarios.job import DLCPD, GLOO, Job, JobPhase, Operation, on_fabric, run
from dlcpd.cli.output import Output

HOSTS: Final = 4
RATE: Final = "100mbit"  # of a host, in both directions
SLOW: Final = "25mbit"
UPLINK: Final = "50mbit"
ROUNDS: Final = 6
MIB: Final = 1 << 20
ON_UPLINK: Final = 1.1  # most bytes on an uplink, of the tensor's, in each direction


@dataclass(frozen=True, slots=True)
class UnevenCase:
    """A network, and the speeds that a plan must reach."""

    name: str
    size: int  # bytes of a tensor
    plan: Mapping[str, Any]  # fields of Plan
    slow: Mapping[str, str]  # rates of links, where they are not RATE
    over_gloo: float  # least speed of the plan
    over_direct: float


NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})
RACKS: Final = MappingProxyType({"leaves": 2, "spines": 1, "spine_rate": UPLINK})
CASES: Final = (
    UnevenCase(f"host 0 at {SLOW}", 4 * MIB, NOTHING, {"h0-l0": SLOW}, 1.45, 1.35),
    UnevenCase(f"2 racks, uplinks {UPLINK}", 8 * MIB, RACKS, NOTHING, 2.4, 1.4),
)


@dataclass(slots=True)
class UnevenTimes:
    """Seconds of each round, and bytes that a leaf sent to its spine per round."""

    gloo: list[float] = field(default_factory=list)
    direct: list[float] = field(default_factory=list)
    planned: list[float] = field(default_factory=list)
    uplink: list[float] = field(default_factory=list)  # with the plan


def uneven(options: argparse.Namespace, output: Output) -> int:
    """Measure and print."""
    found = Findings()
    for case in CASES:
        times = UnevenTimes()
        for seed in range(1, options.seeds + 1):
            measure = partial(_measure, case, times, seed, output)
            found.run(f"{case.name}, seed {seed}", measure)
        title = f"{case.name}, {case.size // MIB} MiB"
        gloo = found.times(f"{title}: Gloo", times.gloo)
        direct = found.times(f"{title}: direct", times.direct)
        planned = found.times(f"{title}: planned", times.planned)
        for name, other, least in (
            ("Gloo", gloo, case.over_gloo),
            ("direct", direct, case.over_direct),
        ):
            speed = partial(_speed, other, planned)
            found.claim(f"{case.name}: plan / {name}, speed", speed, least, at_most=False)
        if case.plan:
            share = partial(_most_of, times.uplink, case.size)
            found.claim(f"{case.name}: bytes on an uplink / tensor", share, ON_UPLINK)
    text = (
        f"{HOSTS} hosts at {RATE} both ways, racks of hosts 0, 2 and 1, 3; all-reduces, exact; "
        f"Gloo's ring over TCP {tcp_congestion_control()}, seeds 1..{options.seeds}"
    )
    return found.report("uneven", text).tell(output)


def _speed(other: Any, planned: Any) -> float:
    return quotient(other.p50, planned.p50)


def _most_of(sent: Sequence[float], size: int) -> float:
    """Raises: NotMeasured."""
    return quotient(max(sent, default=0.0), float(size), "nothing was sent")


def _measure(case: UnevenCase, times: UnevenTimes, seed: int, output: Output) -> None:
    """Measure Gloo and `direct` alternately, then the plan on the same fabric made anew."""
    folder = scratch_folder()
    with folder:
        file = Path(folder.name) / "topology.toml"
        file.write_text(topology(case))
        for topology_file, transports in (("", (DLCPD, GLOO)), (str(file), (DLCPD,))):
            _run(case, times, topology_file, transports, seed=seed, output=output)


def _run(
    case: UnevenCase,
    times: UnevenTimes,
    file: str,
    transports: tuple[str, ...],
    *,
    seed: int,
    output: Output,
) -> None:
    plan = {"hosts": HOSTS, "host_rate": RATE, "seed": seed, **case.plan}
    leaves = plan.get("leaves", 1)
    limits = {f"h{host}-l{host % leaves}": RATE for host in range(HOSTS)} | dict(case.slow)
    marks: list[dict[str, Any]] = []

    def at(where: str, net: Fabric) -> None:
        if where in ("uneven", "end"):
            marks.append(net.statistics())

    job = Job((JobPhase("uneven", (Operation(case.size),), ROUNDS, 2),), transports=transports)
    with on_fabric(plan, {}, limits=limits, topology=file) as (net, hosts):
        found = run(net, hosts, job, seed=seed, output=output, at=at)["uneven"]
    if not file:
        times.gloo += found[GLOO].totals
        times.direct += found[DLCPD].totals
        return
    times.planned += found[DLCPD].totals
    rounds = ROUNDS + job.phases[0].warmup
    first, last = marks[0], marks[-1]
    times.uplink += [
        (last[name].sent_bytes - first[name].sent_bytes) / rounds
        for name in last
        if name.startswith(("l0:s", "l1:s", "s0:l"))
    ]


def topology(case: UnevenCase) -> str:
    """The topology file of a case."""
    rates = {host: case.slow.get(f"h{host}-l0", RATE) for host in range(HOSTS)}
    lines = ["[hosts]", *(f'host{host} = "{rate}"' for host, rate in rates.items())]
    leaves = case.plan.get("leaves", 1)
    for leaf in range(leaves) if leaves > 1 else ():
        names = ", ".join(f'"host{host}"' for host in range(leaf, HOSTS, leaves))
        lines += [f"[racks.l{leaf}]", f"hosts = [{names}]", f'uplink = "{UPLINK}"']
    return "\n".join(lines) + "\n"
