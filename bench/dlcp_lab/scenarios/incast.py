"""`dlcpctl bench incast`: 2 to 16 hosts send to every host at once."""

import argparse
from functools import partial
from typing import Final

from dlcp_lab.report.machine import tcp_congestion_control
from dlcp_lab.report.statistic import Sample, quotient
from dlcp_lab.scenarios.claims import Findings
from dlcp_lab.scenarios.job import DLCPD, GLOO, Job, JobPhase, Operation, Result, on_fabric, run
from dlcpd.cli.output import Output

RATE: Final = "100mbit"  # slow enough that two cores are not the bottleneck of 17 hosts
BUFFER: Final = 128 * 1024  # bytes: shallow, 10 ms
SENDERS: Final = (2, 4, 8, 16)
PART: Final = 64 << 10  # bytes from each sender to each receiver, and back
ROUNDS: Final = 40  # 120 with three seeds, so that p99 is not the maximum
TAIL: Final = 1.5


def incast(options: argparse.Namespace, output: Output) -> int:
    """Measure and print."""
    found = Findings()
    for senders in SENDERS:
        dlcpd: list[float] = []
        gloo: list[float] = []
        drops = 0
        for seed in range(1, options.seeds + 1):
            name = f"{senders} to 1, seed {seed}"
            if measured := found.run(name, partial(_measure, senders, seed, output)):
                result, dropped = measured
                drops += dropped
                dlcpd += result[DLCPD].totals
                gloo += result[GLOO].totals
        sample = found.times(f"{senders} to 1, dlcpd", dlcpd, drops)
        found.times(f"{senders} to 1, gloo (ring)", gloo, None)
        found.claim(f"{senders} to 1: p99 / p50", partial(_tail, sample), TAIL)
    text = (
        f"every host receives from 2..16 others at once, {PART >> 10} KiB each, {RATE} ports of "
        f"{BUFFER >> 10} KiB, seeds 1..{options.seeds}; Gloo over TCP {tcp_congestion_control()}"
    )
    return found.report("incast", text, "dropped, both").tell(output)


def _measure(senders: int, seed: int, output: Output) -> tuple[dict[str, Result], int]:
    """The result by transport, and the packets that the switch dropped."""
    plan = {"hosts": senders + 1, "host_rate": RATE, "buffer_bytes": BUFFER, "seed": seed}
    phase = JobPhase("incast", (Operation(PART * (senders + 1)),), ROUNDS, 3)
    with on_fabric(plan, {}) as (net, hosts):
        job = Job((phase,), transports=(DLCPD, GLOO))
        result = run(net, hosts, job, seed=seed, output=output)["incast"]
        return result, sum(way.dropped_packets for way in net.statistics().values())


def _tail(sample: Sample) -> float:
    """Raises: NotMeasured."""
    return quotient(sample.p99, sample.p50)
