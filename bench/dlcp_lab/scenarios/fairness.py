"""`dlcpctl bench fairness`: shares of a job and a TCP flow, and of two jobs, on one link."""

import argparse
import time
from statistics import fmean, median
from typing import Any, Final

from dlcp_lab.emulation import Fabric
from dlcp_lab.emulation.traffic.background import Tcp
from dlcp_lab.scenarios.claims import Findings
from dlcp_lab.scenarios.job import OURS, Job, Operation, Phase, on_fabric, run
from dlcpd.ctl.output import Output

RATE: Final = 100e6  # bit/s of the shared link
SIZE: Final = 4 << 20  # bytes per operation
ROUNDS: Final = 12
CONTROLS: Final = ("cubic", "bbr")
SHARE: Final = 0.4  # fraction of its fair half that TCP must keep
EQUAL: Final = 0.1  # largest relative difference of two equal jobs
INTERVAL: Final = 0.25  # seconds per value of TCP goodput
TCP_SECONDS: Final = 40.0  # at most; the flow ends with the fabric
# Two leaves and one spine: all traffic shares the links over the spine. No classes, so no priority.
PLAN: Final = {"hosts": 4, "leaves": 2, "spines": 1, "host_rate": "400mbit",
               "spine_rate": f"{RATE:.0f}bit"}  # fmt: skip


def fairness(options: argparse.Namespace, output: Output) -> int:
    """Measure and print."""
    found, seeds = Findings(), range(1, options.seeds + 1)
    for control in CONTROLS:
        _beside_tcp(control, seeds, output, found)
    _two_jobs(seeds, output, found)
    text = f"one shared {RATE / 1e6:.0f} Mb/s link, no priorities, seeds 1..{options.seeds}"
    return found.report("fairness", text, "goodput (Mb/s)").tell(output)


def _beside_tcp(control: str, seeds: range, output: Output, found: Findings) -> None:
    """Ranks 0 and 1 reduce across the link; a TCP flow goes from host 2 to host 3."""
    shares: list[float] = []
    times: list[float] = []
    for seed in seeds:
        phase = Phase("shared", (Operation(SIZE),), ROUNDS, 2)
        rounds: list[float] = []
        with on_fabric({**PLAN, "seed": seed}, {}) as (net, hosts):
            flow = Tcp(2, 3, flows=1, congestion=control, seconds=TCP_SECONDS)
            began = time.monotonic()
            with net.background(flow) as others:
                result = run(
                    net,
                    _first_two(hosts),
                    Job((phase,)),
                    seed=seed,
                    output=output,
                    at=_Clock(rounds),
                )
                rates = [sum(interval) for interval in others.flows[0].goodput()]
        first, last = (int((at - began) / INTERVAL) for at in (rounds[2], rounds[-1]))
        busy = rates[first : max(last, first + 1)]
        shares.append(fmean(busy) / (RATE / 2))
        times += result["shared"][OURS].totals
    rate = SIZE * 8 / median(times)
    found.times(f"dlcpd beside TCP {control}", times, f"{rate / 1e6:.0f}")
    found.claim(f"TCP {control}: part of its fair share", min(shares), SHARE, at_most=False)
    found.data[f"TCP {control}, shares"] = shares


def _first_two(hosts: Any) -> Any:
    return type(hosts)(hosts.folder, hosts.members[:2])


def _two_jobs(seeds: range, output: Output, found: Findings) -> None:
    """Two equal jobs over the same link: ranks 0 and 1, and ranks 2 and 3."""
    apart: list[float] = []
    times: dict[int, list[float]] = {0: [], 2: []}
    for seed in seeds:
        job = Job((Phase("two", (Operation(SIZE),), ROUNDS, 2),), jobs=((0, 1), (2, 3)))
        with on_fabric({**PLAN, "seed": seed}, {}) as (net, hosts):
            result = run(net, hosts, job, seed=seed, output=output)["two"][OURS]
        medians = []
        for first in times:
            of_job = [max(round_) for round_ in result.by_rank[first]]
            times[first] += of_job
            medians.append(median(of_job))
        apart.append(max(medians) / min(medians) - 1)
    for number, samples in enumerate(times.values(), 1):
        rate = SIZE * 8 / median(samples)
        found.times(f"job {number} of two", samples, f"{rate / 1e6:.0f}")
    found.claim("two equal jobs: apart by", max(apart), EQUAL)
    found.data["two jobs, apart"] = apart


class _Clock:
    """Records the time of each barrier."""

    def __init__(self, seen: list[float]) -> None:
        self.seen = seen

    def __call__(self, where: str, net: Fabric) -> None:
        self.seen.append(time.monotonic())
