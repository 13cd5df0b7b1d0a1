"""`dlcpctl bench drop`: losses at 2:1 overload, drop precedence by magnitude and at random."""

import argparse
from statistics import fmean, median
from typing import Any, Final

from dlcp_lab.scenarios.claims import Claim, Report
from dlcp_lab.scenarios.job import OURS, Job, Operation, Phase, Result, on_fabric, run
from dlcpd.ctl.output import Output

RATE: Final = 25e6  # bit/s of each port: the most that two cores can overload twofold
BUFFER: Final = 640 << 10  # bytes per port: 128 KiB for the last of five queues, which has the data
SIZE: Final = 4 << 20  # bytes
HOSTS: Final = 3
ROUNDS: Final = 5
BOUND: Final = 0.5  # high enough that the network decides what is lost, not the bound
FABRIC: Final = {
    "hosts": HOSTS, "host_rate": f"{RATE:.0f}bit", "classes": True,
    "buffer_bytes": BUFFER, "ecn_bytes": 40_000,
}  # fmt: skip
# Overload on purpose: no congestion control, every host sends at twice the rate of a port.
NETWORK: Final = {"congestion_control": False, "rate_limit_bps": 2 * RATE}

# Both have equally many segments of each drop precedence, and the same switch. Which segments have
# which drop precedence differs.
RANKS: Final = {"both": "by magnitude", "shuffled": "at random"}


def drop(options: argparse.Namespace, output: Output) -> int:
    """Measure and print."""
    seeds = range(1, options.seeds + 1)
    found = {(ranks, seed): _measure(ranks, seed, output) for seed in seeds for ranks in RANKS}
    rows = [
        [
            f"{RANKS[ranks]}, seed {seed}",
            f"{_lost(result):.1%}",
            f"{fmean(result.energy):.2%}",
            f"{_relative(result):.3f}",
        ]
        for (ranks, seed), result in found.items()
    ]
    ratios = [_relative(found["both", s]) / _relative(found["shuffled", s]) for s in seeds]
    what = "energy lost per segment lost, ranks by magnitude / at random"
    return Report(
        "drop",
        f"{HOSTS} hosts, {RATE / 1e6:.0f} Mb/s ports at 2:1 overload, gradients of the "
        f"character transformer, bound {BOUND:.0%}, seeds 1..{options.seeds}",
        ("", "segments lost", "energy lost", "energy / segments"),
        rows,
        [Claim(what, median(ratios), 0.25)],
        _data(found),
    ).tell(output)


def _measure(ranks: str, seed: int, output: Output) -> Result:
    phase = Phase("overload", (Operation(SIZE, bound=BOUND),), ROUNDS, 1, "model")
    network = {**NETWORK, "drop_precedence": ranks}
    with on_fabric({**FABRIC, "seed": seed}, network) as (net, hosts):
        output.progress(f"early drops: {net.features()['early drops']}")
        return run(net, hosts, Job((phase,)), seed=seed, output=output)["overload"][OURS]


def _lost(result: Result) -> float:
    """Fraction of the segments that were waived."""
    return result.counts["waived"] / max(result.counts["sent"], 1)


def _relative(result: Result) -> float:
    """Energy lost per segment lost; 1 = no better than chance."""
    return fmean(result.energy) / max(_lost(result), 1e-9)


def _data(found: dict[tuple[str, int], Result]) -> Any:
    return [
        {
            "drop_precedence": ranks,
            "seed": seed,
            "lost": _lost(r),
            "energy": r.energy,
            "times": r.times,
        }
        for (ranks, seed), r in found.items()
    ]
