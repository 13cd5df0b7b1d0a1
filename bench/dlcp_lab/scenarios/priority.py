"""`dlcpctl bench priority`: time of a front layer while back layers are in flight."""

import argparse
from functools import partial
from typing import Final

from dlcp_lab.report.statistic import median, quotient
from dlcp_lab.scenarios.claims import Findings
from dlcp_lab.scenarios.job import DLCPD, Job, JobPhase, Operation, Result, on_fabric, run
from dlcpd.cli.output import Output

RATE: Final = "50mbit"  # four hosts on two cores: at twice this rate the cores are the bottleneck
BACK: Final = 6 << 20  # bytes of the gradients of back layers
FRONT: Final = 1 << 20  # of the front layers, which are ready last and needed first
AFTER: Final = 0.15  # seconds after the back layers
ROUNDS: Final = 7
SOLO: Final = 1.2
TOTAL: Final = 0.05
NAMES: Final = {True: "with classes", False: "one class"}
FABRIC: Final = {"hosts": 4, "host_rate": RATE, "classes": True}


def priority(options: argparse.Namespace, output: Output) -> int:
    """Measure and print."""
    found, seeds = Findings(), range(1, options.seeds + 1)
    solo: list[float] = []
    front: dict[bool, list[float]] = {True: [], False: []}  # with priority, without
    total: dict[bool, list[float]] = {True: [], False: []}
    for seed in seeds:
        for layers in (True, False):
            title = f"{NAMES[layers]}, seed {seed}"
            result = found.run(title, partial(_measure, seed, output, layers=layers))
            if result is None:
                continue
            solo += [round_[0] for round_ in result["solo"].times] if layers else []
            front[layers] += [round_[1] for round_ in result["both"].times]
            total[layers] += [max(b, f + AFTER) for b, f in result["both"].times]
    found.times("front alone", solo)
    for layers, name in NAMES.items():
        found.times(f"front under contention, {name}", front[layers])
        found.times(f"everything, {name}", total[layers])
    found.claim(
        "front under contention over alone",
        lambda: quotient(median(front[True]), median(solo)),
        SOLO,
    )
    found.claim(
        "everything, with classes over without",
        lambda: quotient(median(total[True]), median(total[False])),
        1 + TOTAL,
    )
    text = (
        f"4 hosts, {RATE} ports with a queue per class; {FRONT >> 20} MiB of front layers "
        f"{AFTER * 1e3:.0f} ms after {BACK >> 20} MiB of back layers, seeds 1..{options.seeds}"
    )
    return found.report("priority", text).tell(output)


def _measure(seed: int, output: Output, *, layers: bool) -> dict[str, Result]:
    front = Operation(FRONT, "front")
    phases = (
        JobPhase("solo", (front,), ROUNDS, 2),
        JobPhase(
            "both", (Operation(BACK, "back"), Operation(FRONT, "front", after=AFTER)), ROUNDS, 1
        ),
    )
    network = {"layer_priority": layers}
    with on_fabric({**FABRIC, "seed": seed}, network) as (net, hosts):
        result = run(net, hosts, Job(phases), seed=seed, output=output)
    return {phase.name: result[phase.name][DLCPD] for phase in phases}
