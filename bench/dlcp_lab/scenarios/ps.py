"""`dlcpctl bench ps`: step times with and without a parameter server on a congested fabric."""

import argparse
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from dlcp_lab.emulation.traffic.background import Udp
from dlcp_lab.ranks import launch
from dlcp_lab.report.machine import tcp_congestion_control
from dlcp_lab.report.statistic import Sample, pairs, quotient, slowest, some
from dlcp_lab.scenarios.claims import Findings
from dlcp_lab.scenarios.job import TIMEOUT, on_fabric
from dlcpd.cli.output import Output

# As in `bench ablation`: two leaves, four spines with half the rate of a leaf's hosts, random loss
# at each switch, background bursts. Host 0 has the server, and its port the incast.
PLAN: Final = {
    "leaves": 2, "spines": 4, "host_rate": "100mbit", "spine_rate": "25mbit",
    "classes": True, "ecn_bytes": 60_000, "loss": 0.003,
}  # fmt: skip
NETWORK: Final = {"entropy": 16}
WORKERS: Final = (4, 8)
SIZE: Final = 1 << 19  # bytes of parameters: 8 workers keep the server's port busy for 0.35 s
BOUNDS: Final = (0.01, 0.05)
ROUNDS: Final = 30
QUICK_ROUNDS: Final = 3
OTHERS_RATE: Final = "15mbit"

GLOO: Final = "Gloo reduce and broadcast"
GLOO_ALL: Final = "Gloo all-reduce"
ALL: Final = "dlcpd all-reduce, exact"
EXACT: Final = "server, exact"
EACH: Final = "a shard beside each worker"


def _bounded(bound: float) -> str:
    return f"server, bounded {bound:.0%}"


SYSTEMS: Final = (
    GLOO,
    GLOO_ALL,
    ALL,
    EXACT,
    *map(_bounded, BOUNDS),
    f"{EACH}, exact",
    f"{EACH}, bounded {BOUNDS[0]:.0%}",
)


def ps(options: argparse.Namespace, output: Output) -> int:
    """Measure and print."""
    found = Findings()
    rounds = QUICK_ROUNDS if options.quick else ROUNDS
    seeds = 1 if options.quick else options.seeds
    for workers in WORKERS[: 1 if options.quick else None]:
        times: dict[str, list[float]] = {name: [] for name in SYSTEMS}
        for seed in range(1, seeds + 1):
            title = f"{workers} workers, seed {seed}"
            measured = found.run(title, partial(_measure, workers, seed, rounds, output)) or {}
            for system, samples in measured.items():
                times[system].extend(samples)
        tails = {
            name: found.times(f"{workers} workers: {name}", of, partial(_ratios, times[GLOO], of))
            for name, of in times.items()
        }
        for name in (_bounded(BOUNDS[0]), f"{EACH}, bounded {BOUNDS[0]:.0%}"):
            what = f"{workers} workers: p99 of {name} over that of {GLOO}"
            found.claim(what, partial(_over, tails[name], tails[GLOO]), 1.0)
    text = (
        f"a step of {SIZE >> 10} KiB of parameters on hosts at 100 Mb/s, 4 spines at 25, 0.3 % "
        f"loss per switch, UDP bursts of others; the server, and the root of Gloo, on a host of "
        f"its own, logs synced; {rounds} steps per seed, seeds 1..{seeds}, slowest worker "
        f"counts; Gloo over TCP {tcp_congestion_control()}"
    )
    return found.report("ps", text, "p50, p99 of Gloo's reduce and broadcast / this").tell(output)


def _measure(workers: int, seed: int, rounds: int, output: Output) -> dict[str, list[float]]:
    """System -> seconds of each step."""
    plan = {**PLAN, "hosts": workers + 1, "seed": seed}
    arguments: dict[str, Any] = {
        "size": SIZE,
        "bounds": BOUNDS,
        "rounds": rounds,
        "warmup": 2,
        "seed": seed,
        "systems": SYSTEMS,
    }
    others = Udp(0, 3, OTHERS_RATE, seconds=TIMEOUT, on=0.2, off=0.3)
    with on_fabric(plan, NETWORK) as (net, hosts), net.background(others):
        work = launch.Work("dlcp_lab.scenarios.ps_rank", arguments, TIMEOUT)
        ranks: list[dict[str, Any]] = launch.run(hosts, work, progress=output.progress)
    return {name: slowest([rank[name] for rank in ranks[1:]]) for name in SYSTEMS}


def _over(one: Sample, other: Sample) -> float:
    """Ratio of the 99th percentiles. Raises: NotMeasured."""
    return quotient(one.p99, other.p99)


def _ratios(reference: Sequence[float], measured: Sequence[float]) -> str:
    """p50 and p99 of `reference` / `measured`. Raises: NotMeasured."""
    ranked = some(pairs(sorted(reference), sorted(measured)))
    at = [int(part * (len(ranked) - 1)) for part in (0.5, 0.99)]
    return ", ".join(f"{quotient(*ranked[place]):.2f}" for place in at)
