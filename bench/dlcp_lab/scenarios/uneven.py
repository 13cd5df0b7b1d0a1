"""`dlcpctl bench uneven`: a slow host, and racks behind slow uplinks, with and without a plan.

Racks are interleaved: neighbouring ranks are in different ones.
"""

import argparse
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, Final

from dlcp_lab.emulation import Fabric
from dlcp_lab.emulation.scratch import scratch_folder
from dlcp_lab.ranks import launch
from dlcp_lab.ranks.hosts import Hosts
from dlcp_lab.report.machine import tcp_congestion_control
from dlcp_lab.report.statistic import quotient
from dlcp_lab.scenarios.claims import Findings
from dlcp_lab.scenarios.job import (
    DLCPD,
    GLOO,
    TIMEOUT,
    Job,
    JobPhase,
    Operation,
    on_fabric,
    run,
)
from dlcpd.cli.output import Output

RATE: Final = "100mbit"  # of a host, in both directions
SLOW: Final = "25mbit"
UPLINK: Final = "50mbit"
ROUNDS: Final = 6
WARMUP: Final = 2
MIB: Final = 1 << 20
ON_UPLINK: Final = 1.1  # most bytes on an uplink / the least


@dataclass(frozen=True, slots=True)
class UnevenCase:
    """A network, and the speeds that a plan must reach."""

    name: str
    collective: str
    size: int  # bytes of a tensor, or of all parts together
    over_direct: float  # least speed of the plan, of direct's; of a ring's with `schedule`
    over_gloo: float = 0.0  # the same; 0: not compared
    hosts: int = 4
    rate: str = RATE  # of a host
    first: str = ""  # of host 0; "" = that of the others
    uplink: str = UPLINK
    racks: int = 1
    schedule: str = ""  # with and without the network; "" = what engines choose

    @property
    def title(self) -> str:
        of = f"{self.schedule} of" if self.schedule else "of"
        return f"{self.name}, {self.collective} {of} {self.size // MIB} MiB"

    @property
    def without(self) -> str:
        """The schedule without the network."""
        return f"{self.schedule} in the order of ranks" if self.schedule else "direct"

    @property
    def least(self) -> float:
        """The least bytes on an uplink, in each direction; of a ring: those in its best order."""
        if self.schedule:
            return 2 * self.size * (self.hosts - 1) / self.hosts
        return self.size if self.collective == "all_reduce" else self.size / self.racks


# At 25 and 12.5 Mb/s eight engines and ranks keep two slow cores busy, and uplinks wait.
_HALVES: Final = UnevenCase(
    "2 racks of 4",
    "all_gather",
    4 * MIB,
    2.5,
    hosts=8,
    rate="12500kbit",
    uplink="6250kbit",
    racks=2,
)
CASES: Final = (
    UnevenCase(f"host 0 at {SLOW}", "all_reduce", 4 * MIB, 1.35, 1.45, first=SLOW),
    UnevenCase("2 racks of 2", "all_reduce", 8 * MIB, 1.4, 2.4, racks=2),
    UnevenCase("2 racks of 2", "all_reduce", 8 * MIB, 1.7, racks=2, schedule="ring"),
    _HALVES,
    replace(_HALVES, collective="reduce_scatter"),
    UnevenCase("equal hosts", "broadcast", 16 * MIB, 2.0),
)


# A step gathers the parameters and scatters the gradients: each rack's half crosses once each. The
# engines of 4 hosts take 0.8 to 1.0 s of CPU time per step. At 100 Mb/s a planned step has 0.72 s
# of bytes: two cores would be the limit, not uplinks.
FSDP_MODEL: Final = {"width": 512, "layers": 4, "steps": 5}  # 4 MiB of float32
_SLOWER: Final = UnevenCase(
    "2 racks of 2", "FSDP2", 4 * MIB, 1.5, rate="25mbit", uplink="12500kbit", racks=2
)
FSDP: Final = (  # uplinks allow 2.0 and 4.0
    _SLOWER,
    replace(_SLOWER, name="2 racks of 4", hosts=8, over_direct=2.5),
)
ROUNDING: Final = 1e-5  # of weights after a few steps, whose sums are added in another order


@dataclass(slots=True)
class FsdpSteps:
    """Seconds of each step, bytes on each uplink per step, and errors of the weights."""

    times: list[float] = field(default_factory=list)
    uplink: list[float] = field(default_factory=list)
    errors: list[float] = field(default_factory=list)


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
        times, title = UnevenTimes(), case.title
        for seed in range(1, options.seeds + 1):
            found.run(f"{title}, seed {seed}", partial(_measure, case, times, seed, output))
        compared = [(case.without, times.direct, case.over_direct)]
        if case.over_gloo:
            compared.insert(0, ("Gloo", times.gloo, case.over_gloo))
        others = [(n, found.times(f"{title}: {n}", t), least) for n, t, least in compared]
        planned = found.times(f"{title}: planned", times.planned)
        for name, other, least in others:
            speed = partial(_speed, other, planned)
            found.claim(f"{title}: plan / {name}, speed", speed, least, at_most=False)
        if case.racks > 1:
            share = partial(_most_of, times.uplink, case.least)
            found.claim(f"{title}: bytes on an uplink / the least", share, ON_UPLINK)
    for case in FSDP:
        _claim_fsdp(case, found, options.seeds, output)
    halves, steps = (f"{each.rate} and {each.uplink}" for each in (_HALVES, FSDP[0]))
    text = (
        f"hosts at {RATE} both ways, uplinks of racks {UPLINK}, halves in {_HALVES.name} {halves}, "
        f"FSDP2 {steps}, racks interleaved, exact; "
        f"Gloo's ring over TCP {tcp_congestion_control()}, seeds 1..{options.seeds}"
    )
    return found.report("uneven", text).tell(output)


def _claim_fsdp(case: UnevenCase, found: Findings, seeds: int, output: Output) -> None:
    """FSDP2 in racks: steps with and without the plan, uplinks, and the weights."""
    title, trained = case.title, {"direct": FsdpSteps(), "planned": FsdpSteps()}
    for seed in range(1, seeds + 1):
        found.run(f"{title}, seed {seed}", partial(_train, case, trained, seed, output))
    direct, planned = (found.times(f"{title}: {n}", s.times) for n, s in trained.items())
    speed = partial(_speed, direct, planned)
    found.claim(f"{title}: plan / direct, speed", speed, case.over_direct, at_most=False)
    on_uplink = partial(_most_of, trained["planned"].uplink, case.size)
    found.claim(f"{title}: bytes on an uplink / the least", on_uplink, ON_UPLINK)
    error = partial(_most_of, [e for s in trained.values() for e in s.errors], 1.0)
    found.claim(f"{title}: error of the weights, relative", error, ROUNDING)


def _train(case: UnevenCase, trained: dict[str, FsdpSteps], seed: int, output: Output) -> None:
    with scratch_folder() as folder:
        file = Path(folder) / "topology.toml"
        file.write_text(topology(case))
        for name, used in (("direct", ""), ("planned", str(file))):
            with on_network(case, seed, used) as (net, hosts):
                train_fsdp(net, hosts, trained[name], output)


def train_fsdp(net: Fabric, hosts: Hosts, into: FsdpSteps, output: Output) -> None:
    """Train on all hosts. The error is infinite if ranks have different weights."""
    marks: list[dict[str, Any]] = []

    def at(where: str, _: object) -> None:
        if where in ("step", "end"):
            marks.append(net.statistics())

    work = launch.Work("dlcp_lab.scenarios.fsdp_rank", FSDP_MODEL, TIMEOUT)
    ranks = launch.run(hosts, work, progress=output.progress, at_barrier=at)
    equal = len({rank["digest"] for rank in ranks}) == 1
    into.times += [max(step) for step in zip(*(r["times"] for r in ranks), strict=True)][1:]
    # Not the first step, which begins sessions, nor the weights that ranks gather at the end.
    into.uplink += on_uplinks(marks[1], marks[-2], len(marks) - 3)
    into.errors.append(ranks[0]["error"] if equal else inf)


def _speed(other: Any, planned: Any) -> float:
    return quotient(other.p50, planned.p50)


def _most_of(sent: Sequence[float], least: float) -> float:
    """Raises: NotMeasured."""
    return quotient(max(sent, default=0.0), least, "nothing was sent")


def _measure(case: UnevenCase, times: UnevenTimes, seed: int, output: Output) -> None:
    """Measure Gloo and `direct` alternately, then the plan on the same fabric made anew."""
    both = (DLCPD, GLOO) if case.over_gloo else (DLCPD,)
    with scratch_folder() as folder:
        file = Path(folder) / "topology.toml"
        file.write_text(topology(case))
        for topology_file, transports in (("", both), (str(file), (DLCPD,))):
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
    marks: list[dict[str, Any]] = []

    def at(where: str, net: Fabric) -> None:
        if where in ("uneven", "end"):
            marks.append(net.statistics())

    operation = Operation(case.size, collective=case.collective, schedule=case.schedule)
    job = Job((JobPhase("uneven", (operation,), ROUNDS, WARMUP),), transports=transports)
    with on_network(case, seed, file) as (net, hosts):
        found = run(net, hosts, job, seed=seed, output=output, at=at)["uneven"]
    if not file:
        times.gloo += found[GLOO].totals if GLOO in found else []
        times.direct += found[DLCPD].totals
        return
    times.planned += found[DLCPD].totals
    times.uplink += on_uplinks(marks[0], marks[-1], ROUNDS + WARMUP)


@contextmanager
def on_network(case: UnevenCase, seed: int, file: str) -> Iterator[tuple[Fabric, Hosts]]:
    """The fabric of a case, and its daemons with a topology file."""
    plan: dict[str, Any] = {"hosts": case.hosts, "host_rate": case.rate, "seed": seed}
    if case.racks > 1:
        plan |= {"leaves": case.racks, "spines": 1, "spine_rate": case.uplink}
    limits = {f"h{host}-l{host % case.racks}": case.rate for host in range(case.hosts)}
    limits["h0-l0"] = case.first or case.rate
    with on_fabric(plan, {}, limits=limits, topology=file) as made:
        yield made


def on_uplinks(first: Mapping[str, Any], last: Mapping[str, Any], rounds: int) -> list[float]:
    """Bytes of each direction of each uplink in a round, between two statistics of the fabric."""
    return [
        (last[name].sent_bytes - first[name].sent_bytes) / rounds
        for name in last
        if name.startswith(("l0:s", "l1:s", "s0:l"))
    ]


def topology(case: UnevenCase) -> str:
    """The topology file of a case."""
    rates = [case.first or case.rate, *[case.rate] * (case.hosts - 1)]
    lines = ["[hosts]", *(f'host{host} = "{rate}"' for host, rate in enumerate(rates))]
    for rack in range(case.racks) if case.racks > 1 else ():
        names = ", ".join(f'"host{host}"' for host in range(rack, case.hosts, case.racks))
        lines += [f"[racks.l{rack}]", f"hosts = [{names}]", f'uplink = "{case.uplink}"']
    return "\n".join(lines) + "\n"
