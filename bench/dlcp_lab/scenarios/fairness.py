"""`dlcpctl bench fairness`: shares of a job and a TCP flow, and of two jobs, on one link."""

import argparse
import time
from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from dlcp_lab.emulation import Fabric
from dlcp_lab.emulation.traffic.background import Tcp
from dlcp_lab.report.measured import figure
from dlcp_lab.report.statistic import NotMeasured, least, mean, median, most, quotient, some
from dlcp_lab.scenarios.claims import Findings
from dlcp_lab.scenarios.job import DLCPD, Job, JobPhase, Operation, on_fabric, run
from dlcpd.cli.output import Output

RATE: Final = 100e6  # bit/s of the shared link
SIZE: Final = 4 << 20  # bytes per operation
ROUNDS: Final = 12
CONTROLS: Final = ("cubic", "bbr")
SHARE: Final = 0.4  # fraction of its fair half that TCP must keep
EQUAL: Final = 0.1  # largest relative difference of two equal jobs
INTERVAL: Final = 0.25  # seconds per value of TCP goodput
BUSY: Final = 0.6  # fraction of the shared link's rate; below it no flow competes for the link
TCP_SECONDS: Final = 40.0  # at most; the flow ends with the fabric
# Two leaves and one spine: all traffic shares the links over the spine. No classes, so no priority.
PLAN: Final = {"hosts": 4, "leaves": 2, "spines": 1, "host_rate": "400mbit",
               "spine_rate": f"{RATE:.0f}bit"}  # fmt: skip
LINK: Final = "l0:s0"  # from hosts 0 and 2 to hosts 1 and 3


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
        title = f"dlcpd beside TCP {control}, seed {seed}"
        if measured := found.run(title, partial(_shared, control, seed, output)):
            shares.append(measured[0])
            times += measured[1]
    found.times(f"dlcpd beside TCP {control}", times, lambda: _goodput(times))
    claim = f"TCP {control}: part of its fair share"
    found.claim(claim, lambda: least(shares), SHARE, at_most=False)
    found.data[f"TCP {control}, shares"] = shares


def _shared(control: str, seed: int, output: Output) -> tuple[float, list[float]]:
    """TCP's part of its fair share, and the seconds of dlcpd's rounds. Raises: NotMeasured."""
    phase = JobPhase("shared", (Operation(SIZE),), ROUNDS, 2)
    clock = _Clock()
    with on_fabric({**PLAN, "seed": seed}, {}) as (net, hosts):
        flow = Tcp(2, 3, flows=1, congestion=control, seconds=TCP_SECONDS)
        began = time.monotonic()
        with net.background(flow) as others:
            job = Job((phase,))
            result = run(net, _first_two(hosts), job, seed=seed, output=output, at=clock)
            rates = [sum(interval) for interval in others.flows[0].goodput()]
    check_competition(clock.seen, clock.sent)
    return tcp_share(rates, [at - began for at in clock.seen]), result["shared"][DLCPD].totals


def check_competition(rounds: Sequence[float], sent: Sequence[int]) -> None:
    """Raises: NotMeasured if the link had room: a share of it then says nothing.

    `rounds`: seconds; `sent`: bytes that the link had carried by then. The first two warm up.
    """
    seconds = rounds[-1] - some(rounds[2:], "round after the warm-up")[0]
    used = quotient((sent[-1] - sent[2]) * 8, seconds) / RATE
    if used < BUSY:
        raise NotMeasured(
            f"the shared link carried {used:.0%} of its rate: this machine did not send faster; "
            f"is it busy?"
        )


def tcp_share(rates: Sequence[float], rounds: Sequence[float]) -> float:
    """TCP's mean rate while dlcpd sent, as a part of its fair half of the link.

    `rates`: bit/s of each INTERVAL; `rounds`: seconds at which rounds began, on the same clock. The
    first two rounds warm up. Raises: NotMeasured if no interval lies in the others.
    """
    counted = some(rounds[2:], "round after the warm-up")
    first, last = (int(at / INTERVAL) for at in (counted[0], counted[-1]))
    busy = some(rates[first : max(last, first + 1)], "interval of the TCP flow in the rounds")
    return mean(busy) / (RATE / 2)


def _goodput(times: Sequence[float]) -> str:
    """Mb/s of an operation of median time. Raises: NotMeasured."""
    return f"{quotient(SIZE * 8, median(times)) / 1e6:.0f}"


def _first_two(hosts: Any) -> Any:
    return type(hosts)(hosts.folder, hosts.members[:2])


def _two_jobs(seeds: range, output: Output, found: Findings) -> None:
    """Two equal jobs over the same link: ranks 0 and 1, and ranks 2 and 3."""
    apart: list[float] = []
    times: dict[int, list[float]] = {0: [], 2: []}
    for seed in seeds:
        title = f"two jobs, seed {seed}"
        by_job = found.run(title, partial(_of_two_jobs, seed, output)) or {}
        for first, samples in by_job.items():
            times[first] += samples
        medians = [figure(partial(median, samples)) for samples in by_job.values()]
        if all(medians) and medians:
            known = [one for one in medians if one]
            apart.append(max(known) / min(known) - 1)
    for number, samples in enumerate(times.values(), 1):
        found.times(f"job {number} of two", samples, partial(_goodput, samples))
    found.claim("two equal jobs: apart by", lambda: most(apart), EQUAL)
    found.data["two jobs, apart"] = apart


def _of_two_jobs(seed: int, output: Output) -> dict[int, list[float]]:
    """Seconds of each round, by the first rank of the job."""
    job = Job((JobPhase("two", (Operation(SIZE),), ROUNDS, 2),), jobs=((0, 1), (2, 3)))
    with on_fabric({**PLAN, "seed": seed}, {}) as (net, hosts):
        result = run(net, hosts, job, seed=seed, output=output)["two"][DLCPD]
    return {first: [max(round_) for round_ in result.by_rank[first]] for first in (0, 2)}


class _Clock:
    """Records the time of each barrier, and the bytes that the shared link has carried."""

    def __init__(self) -> None:
        self.seen: list[float] = []
        self.sent: list[int] = []

    def __call__(self, where: str, net: Fabric) -> None:
        self.sent.append(net.statistics()[LINK].sent_bytes)
        self.seen.append(time.monotonic())
