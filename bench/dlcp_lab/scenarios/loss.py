"""`dlcpctl bench loss`: random loss and bursts, over exact, bounded and Gloo."""

import argparse
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

from dlcp_lab.emulation import Fabric
from dlcp_lab.report.machine import tcp_congestion_control
from dlcp_lab.report.statistic import median, quotient
from dlcp_lab.scenarios.claims import Findings
from dlcp_lab.scenarios.job import DLCPD, GLOO, Job, JobPhase, Operation, Result, on_fabric, run
from dlcpd.cli.output import Output

RATE: Final = "200mbit"
SIZE: Final = 4 << 20  # bytes
BOUND: Final = 0.02  # per sender and chunk
LOSSES: Final = (0.0, 0.001, 0.01, 0.02, 0.05)
BURST: Final = 8.0  # packets, mean
ROUNDS: Final = 8
FLAT: Final = 0.9  # least fraction of the throughput without loss, for a loss below the bound
EQUAL: Final = 0.1  # for a loss above the bound, bounded may be slower than exact by this


def loss(options: argparse.Namespace, output: Output) -> int:
    """Measure and print."""
    found = Findings()
    times: dict[tuple[str, str], list[float]] = {}  # by condition and mode
    phases = tuple(_phases())
    for seed in range(1, options.seeds + 1):
        result = found.run(f"seed {seed}", partial(_measure, phases, seed, output)) or {}
        for phase in phases if result else ():
            condition, mode = phase.name.split(", ")
            times.setdefault((condition, mode), []).extend(result[phase.name][DLCPD].totals)
            times.setdefault((condition, GLOO), []).extend(result[phase.name][GLOO].totals)
    for (condition, mode), samples in sorted(times.items()):
        found.times(f"{condition}, {mode}", samples)
    _judge(found, times)
    text = (
        f"2 hosts, {RATE} ports, all-reduce of {SIZE >> 20} MiB, bound {BOUND:.0%}, bursts of "
        f"{BURST:g} packets in the mean, seeds 1..{options.seeds}; Gloo over TCP "
        f"{tcp_congestion_control()}"
    )
    return found.report("loss", text).tell(output)


def _measure(
    phases: tuple[JobPhase, ...], seed: int, output: Output
) -> dict[str, dict[str, Result]]:
    """Phase -> transport -> result."""
    with on_fabric({"hosts": 2, "host_rate": RATE, "seed": seed}, {}) as (net, hosts):
        job = Job(phases, transports=(DLCPD, GLOO))
        return run(net, hosts, job, seed=seed, output=output, at=_at)


def _phases() -> "list[JobPhase]":
    """Every condition in both modes. `_at` sets the loss of the fabric by the phase's name."""
    conditions = [f"random {share:g}" for share in LOSSES]
    conditions += [f"bursts {share:g}" for share in LOSSES[1:]]
    return [
        JobPhase(f"{condition}, {mode}", (Operation(SIZE, bound=bound),), ROUNDS, 2)
        for condition in conditions
        for mode, bound in (("exact", 0.0), ("bounded", BOUND))
    ]


def _at(where: str, net: Fabric) -> None:
    if where.startswith(("random", "bursts")):
        kind, share = where.split(",", maxsplit=1)[0].split()
        net.lose(float(share), burst_length=BURST if kind == "bursts" else 0.0)


def _judge(found: Findings, times: Mapping[tuple[str, str], Sequence[float]]) -> None:
    """`times`: seconds by condition and mode."""

    def ratio(one: tuple[str, str], other: tuple[str, str]) -> float:
        return quotient(median(times.get(one, ())), median(times.get(other, ())))

    clean = ("random 0", "bounded")
    below = [share for share in LOSSES[1:] if share < BOUND]
    for share in below:
        kept = partial(ratio, clean, (f"random {share:g}", "bounded"))
        found.claim(f"random {share:.1%}: throughput kept", kept, FLAT, at_most=False)
    beyond = f"random {LOSSES[-1]:g}"
    slower = partial(ratio, (beyond, "bounded"), (beyond, "exact"))
    found.claim(f"random {LOSSES[-1]:.0%}: bounded over exact", slower, 1 + EQUAL)
