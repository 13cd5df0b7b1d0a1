"""`dlcpctl bench rtt`: paths of a long round trip, over exact, bounded, and Gloo over each TCP."""

import argparse
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from dlcp_lab.emulation import Fabric
from dlcp_lab.emulation.namespaces import command, inside
from dlcp_lab.emulation.plan import SHALLOW_BUFFER, bits_per_second
from dlcp_lab.ranks import launch
from dlcp_lab.ranks.hosts import Hosts
from dlcp_lab.report.amounts import show_duration, show_size
from dlcp_lab.report.machine import tcp_congestion_controls
from dlcp_lab.report.measured import figure
from dlcp_lab.report.statistic import NotMeasured, median, percentile, quotient, slowest
from dlcp_lab.scenarios.claims import Findings
from dlcp_lab.scenarios.job import TIMEOUT, on_fabric, reports
from dlcpd.cli.output import Output

CONTENDERS: Final = {"exact": "", "bounded": "", "gloo, bbr": "bbr", "gloo, cubic": "cubic"}
TCP: Final = [tcp for tcp in CONTENDERS.values() if tcp]
BASE: Final = "gloo, bbr"
# A namespace may not have every congestion control as its default. This one it always has, and
# unlike BBR it leaves no pacing behind when a connection changes to another.
NEUTRAL: Final = "reno"

EXACT: Final = 1.0  # least speed of exact dlcpd against Gloo over BBR, under loss
BOUNDED: Final = 1.15
CUBIC: Final = 3.0  # and against Gloo over cubic, where the round trip is long
LONG: Final = 0.02  # seconds: a long round trip
TAIL: Final = 1.3  # most p99 over median
AGAIN: Final = 1.3  # most retransmitted segments per lost one


@dataclass(slots=True)
class Measured:
    """One contender on one path: times of all rounds, and counts of all hosts."""

    times: list[float] = field(default_factory=list)  # seconds, of the slowest rank
    segments: int = 0  # data packets that hosts sent
    again: int = 0  # with data that had been sent before
    packets: int = 0  # all that hosts sent, control and ACKs included
    lost: int = 0  # of these, by random loss and full buffers

    def add(self, other: "Measured") -> None:
        """Add the rounds of another run."""
        self.times += other.times
        self.segments += other.segments
        self.again += other.again
        self.packets += other.packets
        self.lost += other.lost

    @property
    def lost_share(self) -> float:
        """Share of all packets that were lost. Raises: NotMeasured."""
        return quotient(self.lost, self.packets, "no packet was sent")

    @property
    def again_share(self) -> float:
        """Share of data packets that carried data again. Raises: NotMeasured."""
        return quotient(self.again, self.segments, "no segment was sent")

    @property
    def again_per_lost(self) -> float:
        """Retransmitted segments per lost one. Raises: NotMeasured."""
        return quotient(self.again_share, self.lost_share, "no packet was lost")


Results = dict[str, dict[str, Measured]]  # by condition of the path and contender


@dataclass(frozen=True, slots=True)
class Path:
    """The network between the hosts."""

    rate: str
    round_trip: float  # seconds, without queues

    def name(self, loss: float) -> str:
        """A condition of this path."""
        return f"{self.rate}, {show_duration(self.round_trip)}, loss {loss:.3g}"

    def plan(self, hosts: int, seed: int) -> dict[str, Any]:
        """Fields of a fabric's Plan; its ports buffer a bandwidth-delay product."""
        product = int(bits_per_second(self.rate) / 8 * self.round_trip)
        # A packet and its answer cross the links of two hosts. With two hosts it is enough that
        # one link has a delay, and the cables take half of the CPU time.
        delay = ("h0-l0", self.round_trip / 2) if hosts == 2 else ("", self.round_trip / 4)
        return {
            "hosts": hosts,
            "host_rate": self.rate,
            "buffer_bytes": max(SHALLOW_BUFFER, product),
            "delays": (delay,),
            "seed": seed,
        }


def rtt(options: argparse.Namespace, output: Output) -> int:
    """Measure and print."""
    found = Findings()
    known = tcp_congestion_controls()
    for tcp in options.against:
        if tcp not in known:
            found.row(f"gloo, {tcp}", partial(_refuse, tcp, known))
    for path in itertools.starmap(Path, itertools.product(options.rates, options.round_trips)):
        results: Results = {}
        for seed in range(1, options.seeds + 1):
            name = f"{path.rate}, {show_duration(path.round_trip)}, seed {seed}"
            measured = found.run(name, partial(_measure, options, path, seed, output))
            for condition, each in (measured or {}).items():
                for contender, one in each.items():
                    results.setdefault(condition, {}).setdefault(contender, Measured()).add(one)
        for loss in options.losses:
            _judge(found, path, loss, results.get(path.name(loss), {}), options.against)
    text = (
        f"{options.hosts} hosts, all-reduce of {show_size(options.size)}, bound "
        f"{options.max_loss:.0%}, port buffers of the bandwidth-delay product and at least "
        f"{SHALLOW_BUFFER >> 10} KiB, seeds 1..{options.seeds}; Gloo over the named TCP"
        f"{''.join(f'; {setting}' for setting in options.set)}"
    )
    more = ("speed / bbr", "p99 / p50", "lost (%)", "retransmitted (%)", "retransmitted / lost")
    return found.report("rtt", text, *more).tell(output)


def _refuse(control: str, known: list[str]) -> list[object]:
    """Raises: NotMeasured."""
    has = ", ".join(known) or "none"
    raise NotMeasured(
        f"TCP {control} is not in this kernel, which has {has}: modprobe tcp_{control}"
    )


def _measure(options: argparse.Namespace, path: Path, seed: int, output: Output) -> Results:
    """All losses on one fabric."""
    known = tcp_congestion_controls()
    losses = {path.name(loss): loss for loss in options.losses}
    present = [tcp for tcp in options.against if tcp in known]
    contenders = {name: tcp for name, tcp in CONTENDERS.items() if not tcp or tcp in present}
    arguments = {
        "phases": list(losses),
        "contenders": contenders,
        "rounds": options.repeat,
        "warmup": options.warmup,
        "size": options.size,
        "bound": options.max_loss,
        "seed": seed,
    }
    work = launch.Work("dlcp_lab.scenarios.rtt_rank", arguments, TIMEOUT * len(losses))
    plan = path.plan(options.hosts, seed)
    with on_fabric(plan, {}, settings=options.set) as (net, hosts):
        for host in range(net.hosts):
            _set_default(net.host_namespace(host))
        counting = _Counting(net, hosts, losses)
        ranks = launch.run(
            hosts, work, progress=output.progress, at_barrier=lambda where, _: counting.at(where)
        )
    return {
        condition: {
            name: _of_ranks(
                name, counting.measured[condition, name], [rank[number] for rank in ranks]
            )
            for name in contenders
        }
        for number, condition in enumerate(losses)
    }


def _set_default(namespace: str) -> None:
    file = "/proc/sys/net/ipv4/tcp_congestion_control"
    command(*inside(namespace, "sh", "-ec", f"echo {NEUTRAL} > {file}"))


def _of_ranks(name: str, counted: Measured, ranks: list[dict[str, Any]]) -> Measured:
    """Times of the slowest rank; for TCP the segments that the ranks' connections sent."""
    counted.times = slowest([rank["times"][name] for rank in ranks])
    if name in ranks[0]["segments"]:
        sent, again = map(sum, zip(*(rank["segments"][name] for rank in ranks), strict=True))
        counted.segments, counted.again = sent, again
    return counted


@dataclass(slots=True)
class _Counting:
    """Changes the loss when a phase begins; counts packets between the barriers of a round."""

    net: Fabric
    hosts: Hosts
    losses: Mapping[str, float]  # by the name of a phase
    measured: dict[tuple[str, str], Measured] = field(default_factory=dict)
    _phase: str = ""
    _before: Measured = field(default_factory=Measured)

    def at(self, where: str) -> None:
        """At a barrier."""
        if where in self.losses:
            self._phase = where
            # On the way into the switch, so that each packet meets the loss once.
            for host in range(self.net.hosts):
                self.net.lose(self.losses[where], f"h{host}:l0")
        begins, _, name = where.partition(" ")
        if begins == "begin":
            self._before = self._counted()
        elif begins == "end" and name:
            now, before = self._counted(), self._before
            self.measured.setdefault((self._phase, name), Measured()).add(
                Measured(
                    [],
                    now.segments - before.segments,
                    now.again - before.again,
                    now.packets - before.packets,
                    now.lost - before.lost,
                )
            )

    def _counted(self) -> Measured:
        """Totals so far. `segments` and `again` are those of dlcpd."""
        classes = [
            values
            for report in reports(self.hosts)
            for session in report["sessions"].values()
            for peer in session["peers"]
            for path in peer["paths"]
            for values in path["classes"].values()
        ]
        ways = self.net.statistics()
        sent = [way for name, way in ways.items() if name.startswith("h")]
        lost = sum(way.lost_packets + way.dropped_packets for way in ways.values())
        return Measured(
            [],
            sum(values["sent"] for values in classes),
            sum(values["again"] for values in classes),
            sum(way.sent_packets + way.lost_packets for way in sent),
            lost,
        )


def _judge(
    found: Findings,
    path: Path,
    loss: float,
    results: Mapping[str, Measured],
    against: Sequence[str],
) -> None:
    """Add the rows of one path, and the claims that concern the TCPs of `against`."""
    condition = path.name(loss)
    for name, one in results.items():
        found.times(f"{condition}, {name}", one.times, *_cells(results, name))
    if not loss:
        return
    compared = (("exact", EXACT), ("bounded", BOUNDED)) if CONTENDERS[BASE] in against else ()
    for name, least in compared:
        speed = partial(_speed, results, BASE, name)
        found.claim(f"{condition}: speed of {name} / {BASE}", speed, least, at_most=False)
    if path.round_trip == LONG and "gloo, cubic" in results:
        speed = partial(_speed, results, "gloo, cubic", "bounded")
        found.claim(f"{condition}: speed of bounded / gloo, cubic", speed, CUBIC, at_most=False)
    exact = results.get("exact", Measured())
    found.claim(f"{condition}: exact p99 / p50", partial(_tail, exact), TAIL)
    found.claim(f"{condition}: exact, retransmitted / lost", lambda: exact.again_per_lost, AGAIN)


def _cells(results: Mapping[str, Measured], name: str) -> Iterator[str | None]:
    one = results[name]
    yield _shown(lambda: _speed(results, BASE, name))
    yield _shown(lambda: _tail(one))
    yield _shown(lambda: one.lost_share * 100)
    yield _shown(lambda: one.again_share * 100)
    yield _shown(lambda: one.again_per_lost)


def _shown(value: Callable[[], float]) -> str | None:
    known = figure(value)
    return None if known is None else f"{known:.2f}"


def _speed(results: Mapping[str, Measured], base: str, name: str) -> float:
    """Median of the base over that of a contender: above 1 the contender is faster.

    Raises: NotMeasured.
    """
    base_times, times = (results.get(one, Measured()).times for one in (base, name))
    return quotient(median(base_times), median(times))


def _tail(one: Measured) -> float:
    """Raises: NotMeasured."""
    return quotient(percentile(one.times, 0.99), median(one.times))
