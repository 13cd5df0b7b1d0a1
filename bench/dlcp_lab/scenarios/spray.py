"""`dlcpctl bench spray`: several paths against one, unequal paths, a path that fails."""

import argparse
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from dlcp_lab.emulation import Fabric
from dlcp_lab.report.measured import figure
from dlcp_lab.report.statistic import mean, median, most, quotient, some
from dlcp_lab.scenarios.claims import Findings
from dlcp_lab.scenarios.job import DLCPD, Job, JobPhase, Operation, Result, on_fabric, run
from dlcpd.cli.output import Output
from dlcpd.contract.traffic import traffic_classes

SIZE: Final = 4 << 20  # bytes
ROUNDS: Final = 15
PORTS: Final = 16  # source ports per host: enough to reach every spine
SETTLE: Final = 2.5  # seconds after the start of the daemons for the discovery of routes
UNEQUAL: Final = ("15mbit", "5mbit")
UNEQUAL_SIZE: Final = 8 << 20
UNEQUAL_BUFFER: Final = 64 << 10  # bytes of the queue that carries the data
CUT_AFTER: Final = 0.1  # seconds into a round
HEADERS: Final = 1408 / (1408 + 32 + 28 + 14)  # share of a frame that is payload


def spray(options: argparse.Namespace, output: Output) -> int:
    """Measure and print."""
    seeds, found = range(1, options.seeds + 1), Findings()
    for spines in (2, 4):
        _even(spines, seeds, output, found)
    _unequal(seeds, output, found)
    _cut(seeds, output, found)
    text = f"2 hosts on 2 leaves, {PORTS} source ports, ECMP seeds 1..{options.seeds}"
    return found.report("spray", text, "imbalance").tell(output)


def _even(spines: int, seeds: range, output: Output, found: Findings) -> None:
    """Equal links that are the bottleneck: one path against all."""
    plan = {
        "hosts": 2,
        "leaves": 2,
        "spines": spines,
        "host_rate": "200mbit",
        "spine_rate": f"{160 // spines}mbit",
    }
    times: dict[int, list[float]] = {1: [], PORTS: []}
    imbalances: list[float] = []
    for seed in seeds:
        for ports in (1, PORTS):
            title = f"{spines} spines, {ports} source ports, seed {seed}"
            measure = partial(_measure, {**plan, "seed": seed}, ports, seed, output)
            if measured := found.run(title, measure):
                result, before, after = measured
                times[ports] += result.totals
                found_here = figure(partial(imbalance, before, after)) if ports > 1 else None
                imbalances += [] if found_here is None else [found_here]
    one = found.times(f"{spines} spines, one path", times[1], None)
    worst = partial(most, imbalances)
    all_ = found.times(f"{spines} spines, sprayed", times[PORTS], lambda: f"{worst():.3f}")
    found.claim(f"{spines} spines: link imbalance (max / mean), worst", worst, 1.05)
    tails = f"{spines} spines: p99 over that of one path"
    found.claim(tails, lambda: quotient(all_.p99, one.p99), 0.7)
    found.data[f"{spines} spines, imbalance"] = imbalances


def _measure(
    plan: dict[str, Any], ports: int, seed: int, output: Output
) -> tuple[Result, dict[str, Any], dict[str, Any]]:
    """The result, and the fabric's counters before and after."""
    phase = JobPhase("even", (Operation(SIZE),), ROUNDS, 3)
    marks: list[dict[str, Any]] = []

    def at(where: str, net: Fabric) -> None:
        if where == "even":
            time.sleep(SETTLE)
        marks.append(net.statistics())

    with on_fabric(plan, {"entropy": ports}) as (net, hosts):
        result = run(net, hosts, Job((phase,)), seed=seed, output=output, at=at)["even"][DLCPD]
        return result, marks[1], marks[-1]


def imbalance(before: dict[str, Any], after: dict[str, Any]) -> float:
    """Bytes of the busiest uplink of a leaf / mean of its uplinks; of the worse leaf.

    Raises: NotMeasured if a leaf sent nothing.
    """
    worst = 0.0
    for leaf in ("l0", "l1"):
        sent = [
            way.sent_bytes - before[name].sent_bytes
            for name, way in after.items()
            if name.startswith(f"{leaf}:s")
        ]
        worst = max(worst, quotient(most(sent), mean(sent), f"{leaf} sent nothing to a spine"))
    return worst


def _unequal(seeds: range, output: Output, found: Findings) -> None:
    """Two paths of different rates: the throughput as a fraction of their sum."""
    total = sum(float(rate.removesuffix("mbit")) * 1e6 for rate in UNEQUAL)
    ideal = UNEQUAL_SIZE * 8 / HEADERS / total  # a host sends half its tensor and half the result
    shares: dict[bool, Callable[[], float]] = {}
    for classes in (True, False):
        times: list[float] = []
        # with classes the last of five queues carries the data, and has a fifth of the buffer
        buffer = UNEQUAL_BUFFER * (len(traffic_classes()) if classes else 1)
        queues = "class queues" if classes else "one FIFO"
        title = f"{' and '.join(UNEQUAL)}, {queues}"
        for seed in seeds:
            plan = {
                "hosts": 2,
                "leaves": 2,
                "spines": 2,
                "host_rate": "100mbit",
                "seed": seed,
                "buffer_bytes": buffer,
                "classes": classes,
            }
            times += found.run(f"{title}, seed {seed}", partial(_over_both, plan, output)) or []
        share = shares[classes] = partial(_share_of, ideal, times)
        found.times(title, times, partial(_shown_share, share))
    found.claim("unequal paths: share of their sum", shares[True], 0.95, at_most=False)


def _over_both(plan: dict[str, Any], output: Output) -> list[float]:
    """Seconds of each round over two unequal paths."""
    phase = JobPhase("unequal", (Operation(UNEQUAL_SIZE),), 4, 1)
    with on_fabric(plan, {"entropy": PORTS}) as (net, hosts):
        job = Job((phase,))
        result = run(net, hosts, job, seed=plan["seed"], output=output, at=_make_unequal)
    return result["unequal"][DLCPD].totals


def _share_of(ideal: float, times: Sequence[float]) -> float:
    """Raises: NotMeasured."""
    return quotient(ideal, median(times))


def _shown_share(share: Callable[[], float]) -> str:
    return f"{share():.3f} of both"


def _make_unequal(where: str, net: Fabric) -> None:
    if where == "unequal":
        for spine, rate in enumerate(UNEQUAL):
            for leaf in range(2):
                net.limit(f"l{leaf}-s{spine}", rate)
        time.sleep(SETTLE)


def _cut(seeds: range, output: Output, found: Findings) -> None:
    """A silent cut in the middle of every third round, restored after it."""
    plan = {"hosts": 2, "leaves": 2, "spines": 2, "host_rate": "200mbit", "spine_rate": "80mbit"}
    normal: list[float] = []
    struck: list[float] = []
    failed = 0
    for seed in seeds:
        name = f"a link cut, seed {seed}"
        measured = found.run(name, partial(_cut_once, {**plan, "seed": seed}, output))
        failed += measured is None  # a failed operation ends its run
        totals, dropped = measured or ((), ())
        struck += in_a_cut(totals, dropped)
        normal += [total for number, total in enumerate(totals) if number % 3 != 1]
    found.times("a link cut in mid-operation", struck, None)
    found.times("the rounds around it", normal, None)
    found.claim("a link cut: failed operations", failed, 0)
    what = "a link cut: seconds lost, worst"
    met = "round in which the cut dropped a packet"
    found.claim(what, lambda: most(some(struck, met)) - median(normal), 1.0)


def in_a_cut(totals: Sequence[float], dropped: Sequence[int]) -> list[float]:
    """Seconds of the rounds that a cut met. `dropped`: packets that each cut dropped: on a busy
    machine a cut may come after the operation's end."""
    return [total for total, packets in zip(totals[1::3], dropped, strict=True) if packets]


def _cut_once(plan: dict[str, Any], output: Output) -> tuple[list[float], list[int]]:
    """Seconds of each round, and packets that each cut dropped; a link is cut in every third."""
    phase, saboteur = JobPhase("cut", (Operation(SIZE),), 9, 0), _Saboteur()
    with on_fabric(plan, {"entropy": PORTS}) as (net, hosts):
        job = Job((phase,))
        result = run(net, hosts, job, seed=plan["seed"], output=output, at=saboteur.at)
        saboteur.wait()
    return result["cut"][DLCPD].totals, saboteur.dropped


class _Saboteur:
    """Cuts a link CUT_AFTER seconds into every third round, and restores it before the next."""

    def __init__(self) -> None:
        self.rounds = 0
        self.dropped: list[int] = []  # packets, by each cut
        self._threads: list[threading.Thread] = []

    def at(self, where: str, net: Fabric) -> None:
        """Called at a barrier, while all ranks wait."""
        if where == "cut":
            time.sleep(SETTLE)
            return
        if where != "round":
            return
        if self.rounds % 3 == 2:
            dropped = sum(way.cut_packets for way in net.statistics().values())
            self.dropped.append(dropped - sum(self.dropped))
            net.restore()
        if self.rounds % 3 == 1:
            thread = threading.Timer(CUT_AFTER, net.cut, ("l0-s0",), {"silent": True})
            thread.start()
            self._threads.append(thread)
        self.rounds += 1

    def wait(self) -> None:
        """Wait for all threads."""
        for thread in self._threads:
            thread.join()
