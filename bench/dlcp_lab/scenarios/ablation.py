"""`dlcpctl bench ablation`: one congested fabric, one mechanism more at each step."""

import argparse
from functools import partial
from typing import Any, Final

from dlcp_lab.emulation.traffic.background import Udp
from dlcp_lab.report.machine import tcp_congestion_control
from dlcp_lab.report.statistic import Sample, quotient
from dlcp_lab.scenarios.claims import Findings
from dlcp_lab.scenarios.job import DLCPD, GLOO, Job, JobPhase, Operation, Result, on_fabric, run
from dlcpd.cli.output import Output

# Four hosts. Four spines together have half the rate of a leaf's hosts, so that two flows on one
# spine collide. Random loss at each switch, and background bursts from host 0 to host 3. The links
# are slow, so that they are the bottleneck and not the two cores that emulate them.
PLAN: Final = {
    "hosts": 4, "leaves": 2, "spines": 4, "host_rate": "100mbit", "spine_rate": "25mbit",
    "classes": True, "ecn_bytes": 60_000, "loss": 0.003,
}  # fmt: skip
BOUND: Final = 0.05
ROUNDS: Final = 20
# An iteration: gradients of back layers are ready first, those of front layers last.
STEP: Final = (("back", 1 << 20, 0.0), ("middle", 1 << 20, 0.02), ("front", 1 << 19, 0.04))
OTHERS_RATE: Final = "15mbit"
OTHERS_SECONDS: Final = 240.0  # at most; they end with the fabric

ONE: Final = {"entropy": 1, "layer_priority": False, "drop_precedence": "none"}
LADDER: Final[tuple[tuple[str, dict[str, Any], float], ...]] = (
    ("base: exact, one path, one class", ONE, 0.0),
    ("+ spray", {**ONE, "entropy": 16}, 0.0),
    ("+ priority and drop precedences", {"entropy": 16}, 0.0),
    ("+ bounded loss", {"entropy": 16}, BOUND),
)


def ablation(options: argparse.Namespace, output: Output) -> int:
    """Measure and print."""
    found, seeds = Findings(), range(1, options.seeds + 1)
    gloo: list[float] = []
    tails: list[Sample] = []
    for number, (name, network, bound) in enumerate(LADDER):
        transports = (DLCPD, GLOO) if number == 0 else (DLCPD,)
        dlcpd: list[float] = []
        for seed in seeds:
            measure = partial(_measure, seed, network, bound, transports, output)
            if result := found.run(f"{name}, seed {seed}", measure):
                dlcpd += _iterations(result[DLCPD])
                gloo += _iterations(result[GLOO]) if GLOO in result else []
        if number == 0:
            found.times(f"Gloo over TCP {tcp_congestion_control()}", gloo)
        tails.append(found.times(name, dlcpd))
    found.claim(
        "p99 of all mechanisms over that of the base",
        lambda: quotient(tails[-1].p99, tails[0].p99),
        1.0,
    )
    text = (
        f"4 hosts at 100 Mb/s, 4 spines at 25, 0.3 % loss per switch, UDP bursts of others, "
        f"an iteration of {sum(size for _, size, _ in STEP) / (1 << 20):g} MiB in three layers, "
        f"bound {BOUND:.0%}, seeds 1..{options.seeds}"
    )
    return found.report("ablation", text).tell(output)


def _measure(
    seed: int, network: dict[str, Any], bound: float, transports: tuple[str, ...], output: Output
) -> dict[str, Result]:
    operations = tuple(Operation(size, name, bound, after) for name, size, after in STEP)
    phase = JobPhase("step", operations, ROUNDS, 3, "model")
    others = Udp(0, 3, OTHERS_RATE, seconds=OTHERS_SECONDS, on=0.2, off=0.3)
    with (
        on_fabric({**PLAN, "seed": seed}, network) as (net, hosts),
        net.background(others),
    ):
        return run(net, hosts, Job((phase,), transports=transports), seed=seed, output=output)[
            "step"
        ]


def _iterations(result: Result) -> list[float]:
    """Seconds of each round, from its begin to the end of the last layer."""
    return [
        max(time + after for time, (_, _, after) in zip(round_, STEP, strict=True))
        for round_ in result.times
    ]
