"""`dlcpctl bench drop`: losses at 2:1 overload, drop precedence by magnitude and at random."""

import argparse
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from dlcp_lab.report.measured import figure
from dlcp_lab.report.statistic import NotMeasured, mean, median, quotient
from dlcp_lab.scenarios.claims import Findings
from dlcp_lab.scenarios.job import DLCPD, Job, JobPhase, Operation, Result, on_fabric, run
from dlcpd.cli.output import Output

RATE: Final = 25e6  # bit/s of each port: the most that two cores can overload twofold
BUFFER: Final = 640 << 10  # bytes per port: 128 KiB for the last of five queues, which has the data
SIZE: Final = 4 << 20  # bytes
HOSTS: Final = 3
ROUNDS: Final = 5
BOUND: Final = 0.5  # high enough that the network decides what is lost, not the bound
LEAST: Final = 0.25  # fraction of segments lost; an overload of 2:1 loses twice as many
FABRIC: Final = {
    "hosts": HOSTS, "host_rate": f"{RATE:.0f}bit", "classes": True,
    "buffer_bytes": BUFFER, "ecn_bytes": 40_000,
}  # fmt: skip
# Overload on purpose: no congestion control, every host sends at twice the rate of a port.
NETWORK: Final = {"congestion_control": False, "rate_limit_bps": 2 * RATE}

HEADER: Final = ("", "segments lost", "energy lost", "energy / segments")
# Both have equally many segments of each drop precedence, and the same switch. Which segments have
# which drop precedence differs.
RANKS: Final = {"both": "by magnitude", "shuffled": "at random"}


def drop(options: argparse.Namespace, output: Output) -> int:
    """Measure and print."""
    seeds, findings = range(1, options.seeds + 1), Findings()
    found: dict[tuple[str, int], Result] = {}
    for seed in seeds:
        for ranks, name in RANKS.items():
            title = f"{name}, seed {seed}"
            if result := findings.run(title, partial(_measure, ranks, seed, output)):
                found[ranks, seed] = result
                findings.row(title, partial(_cells, result))
    both = [seed for seed in seeds if all((ranks, seed) in found for ranks in RANKS)]
    what = "energy lost per segment lost, ranks by magnitude / at random"
    findings.claim(what, lambda: median([_ratio(found, seed) for seed in both]), 0.25)
    conditions = (
        f"{HOSTS} hosts, {RATE / 1e6:.0f} Mb/s ports at 2:1 overload, gradients of the "
        f"character transformer, bound {BOUND:.0%}, seeds 1..{options.seeds}"
    )
    findings.data = {"runs": _data(found)}
    return findings.report_with("drop", conditions, HEADER).tell(output)


def _cells(result: Result) -> list[object]:
    """Cells of a row. Raises: NotMeasured."""
    return [f"{_lost(result):.1%}", f"{mean(result.energy):.2%}", f"{_relative(result):.3f}"]


def _ratio(found: Mapping[tuple[str, int], Result], seed: int) -> float:
    """Relative energy by magnitude / at random, of one seed. Raises: NotMeasured."""
    by_magnitude, at_random = (_relative(found[ranks, seed]) for ranks in RANKS)
    return quotient(by_magnitude, at_random, "segments lost at random had no energy")


def _measure(ranks: str, seed: int, output: Output) -> Result:
    phase = JobPhase("overload", (Operation(SIZE, bound=BOUND),), ROUNDS, 1, "model")
    network = {**NETWORK, "drop_precedence": ranks}
    with on_fabric({**FABRIC, "seed": seed}, network) as (net, hosts):
        output.progress(f"early drops: {net.features()['early drops']}")
        result = run(net, hosts, Job((phase,)), seed=seed, output=output)["overload"][DLCPD]
    return overloaded(result)


def overloaded(result: Result) -> Result:
    """`result`. Raises: NotMeasured if too little was lost: a busy machine sends too slowly."""
    lost = _lost(result)
    if lost < LEAST:
        raise NotMeasured(
            f"{lost:.1%} of the segments were lost, and 2:1 overload loses about half: this "
            f"machine did not send at twice the rate of the ports; is it busy?"
        )
    return result


def _lost(result: Result) -> float:
    """Fraction of the segments that were waived. Raises: NotMeasured."""
    return quotient(result.counts["waived"], result.counts["sent"], "no segment was sent")


def _relative(result: Result) -> float:
    """Energy lost per segment lost; 1 = no better than chance. Raises: NotMeasured."""
    return quotient(mean(result.energy), _lost(result), "no segment was lost")


def _data(found: dict[tuple[str, int], Result]) -> Any:
    return [
        {
            "drop_precedence": ranks,
            "seed": seed,
            "lost": figure(partial(_lost, r)),
            "energy": r.energy,
            "times": r.times,
        }
        for (ranks, seed), r in found.items()
    ]
