"""A daemon's report (docs/ipc.md, "Status") as families of samples."""

from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, Final

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from dlcpd.contract.errors import ReplicaDivergence, codes
from dlcpd.core.session.totals import BUCKETS
from dlcpd.daemon.metrics import families
from dlcpd.daemon.metrics.families import (
    FAMILIES,
    HISTOGRAM,
    KNOWN_CONTROL_EVENTS,
    KNOWN_ENGINE_EVENTS,
    LINK,
    PRESSED,
    Family,
)
from dlcpd.io.report_rows import COUNTER

MAX_LABEL: Final = 128  # characters: the longest name of a job
_ENDS: Final = [*(f"{seconds:g}" for seconds in BUCKETS), "+Inf"]
_ZERO_CONTROL: Final = dict.fromkeys(KNOWN_CONTROL_EVENTS, 0)
_ZERO_ENGINE: Final = dict.fromkeys(KNOWN_ENGINE_EVENTS, 0)
_ZERO_CODES: Final = dict.fromkeys(codes(), 0)
Labels = tuple[str, ...]
Row = dict[str, Any]


class Samples:
    """Every family, with the samples that were added to it."""

    def __init__(self) -> None:
        self._made: dict[str, Any] = {family.name: _empty(family) for family in FAMILIES}
        self._shared: dict[tuple[Family, Labels], list[float]] = {}  # values of several ranks

    def __iter__(self) -> Iterator[Metric]:
        """Call it once, after the last sample."""
        for (family, labels), found in self._shared.items():
            self.add(family, labels, family.merged(found))
        return iter(self._made.values())

    def share(self, some: Sequence[Family], labels: Labels, row: Row) -> None:
        """As `add_all`, for series that several ranks of this host, or of the peer's, share."""
        for family in some:
            if (value := row.get(family.key)) is not None:
                self._shared.setdefault((family, labels), []).append(float(value))

    def add(self, family: Family, labels: Labels, value: float) -> None:
        """Add a series to a family."""
        self._made[family.name].add_metric(labels, value)

    def add_all(self, some: Sequence[Family], labels: Labels, row: Row) -> None:
        """Add the values of `row` that families are read from; a missing value has no sample."""
        for family in some:
            if (value := row.get(family.key)) is not None:
                self._made[family.name].add_metric(labels, float(value))

    def add_each(self, family: Family, labels: Labels, counts: dict[str, int]) -> None:
        """Add a series for each name, which becomes the last label."""
        for name, count in counts.items():
            self.add(family, (*labels, name), count)

    def add_times(self, family: Family, labels: Labels, took: list[int], seconds: float) -> None:
        """Add a histogram: `took`, operations by bucket; `seconds`, the sum of their times."""
        buckets = list(zip(_ENDS, accumulate(took), strict=True))
        self._made[family.name].add_metric(labels, buckets, seconds)


def _empty(family: Family) -> Metric:
    kind: Any = {COUNTER: CounterMetricFamily, HISTOGRAM: HistogramMetricFamily}.get(
        family.kind, GaugeMetricFamily
    )
    made: Metric = kind(family.name, family.text, labels=family.labels)
    return made


def samples(report: Row) -> Samples:
    """All metrics of a daemon; none of an engine that did not answer."""
    out, engine = Samples(), report["engine"]
    _daemon(out, report, engine)
    known = engine.get("sessions", {})
    newest = {}  # a rank that is in the next epoch already, and still delivers in the former one
    for session in report["sessions"]:
        labels = session["title"][:MAX_LABEL], str(session["rank"])
        row = known.get(str(session["session"]), {})
        newest[labels] = session, row
        _peers(out, labels[0], session, row)
    for labels, (session, row) in newest.items():
        _session(out, labels, session, row)
    return out


def _daemon(out: Samples, report: Row, engine: Row) -> None:
    features = report["features"]
    newest = (str(report[name][0]) for name in ("messages", "peers"))
    build = [str(features.get(name, "")) for name in ("data_path", "data_encryption")]
    out.add(families.BUILD, (report["version"], report["commit"], *newest, *build), 1)
    out.add(families.UP, (), "error" not in engine)
    out.add(families.TRUNCATED, (), "truncated" in engine)
    states = [session["state"] for session in report["sessions"]]
    for state in ("joining", "open", "broken"):
        out.add(families.SESSIONS, (state,), states.count(state))
    out.add_each(families.CONTROL_EVENTS, (), _ZERO_CONTROL | report["counters"])
    out.add_each(families.ENGINE_EVENTS, (), _ZERO_ENGINE | engine.get("counters", {}))
    totals = engine.get("totals", {})
    out.add_each(families.OPERATIONS_FAILED, (), _ZERO_CODES | totals.get("failed", {}))
    out.add(families.OPERATIONS_DONE, (), sum(totals.get("took", ())))
    out.add_all(families.TOTALS, (), totals)
    for number, process in enumerate(report.get("engines", [])):
        out.add_all(families.ENGINE_PROCESS, (str(number),), process)
    out.add_each(families.WORK, (), engine.get("effort", {}))
    out.add(families.PENDING, (), len(report["pending"]))
    out.add(families.CORDONED, (), bool(report["cordoned"]))
    out.add(families.UNREACHABLE, (), bool(report["unreachable"]))
    out.add_all(families.DAEMON, (), report)


def _session(out: Samples, labels: Labels, session: Row, known: Row) -> None:
    out.add_all(families.SESSION, labels, session)
    for name, on in _alarms(session, known).items():
        out.add(families.ALARM, (*labels, name), on)
    if known:
        out.add(families.LATE, labels, len(known["late"]))
        out.add_all(families.SESSION_ENGINE, labels, known)
        totals = known["totals"]
        out.add_all(families.SESSION_TOTALS, labels, totals)
        out.add_times(families.TIMES, labels, totals["took"], totals["seconds"])
        out.add_each(families.FAILED, labels, totals["failed"])


def _alarms(session: Row, known: Row) -> dict[str, bool]:
    counts = known.get("alarms", {})
    return {
        "gray_failure": bool(counts.get("paths_gray")),
        "bound_pressure": known.get("totals", {}).get("used", 0.0) >= PRESSED,
        "divergence": session["broken_code"] == ReplicaDivergence.code,
        "stall": bool(known.get("late")),
        "silent_peer": bool(counts.get("silent_peers")),
    }


def _peers(out: Samples, job: str, session: Row, known: Row) -> None:
    peers = {peer["rank"]: peer for peer in known.get("peers", [])}
    for link in session["peers"]:
        _peer(out, job, link, peers.get(link["rank"], {}))


def _peer(out: Samples, job: str, link: Row, known: Row) -> None:
    labels = (job, link["host"][:MAX_LABEL])
    out.share((LINK,), labels, {LINK.key: link["state"] == "up"})
    out.share(families.PEER, labels, known)
    for number, path in enumerate(known.get("paths", [])):
        place = (*labels, str(number))
        out.share(families.PATH, place, path)
        for name, space in path["classes"].items():
            out.share(families.CLASS, (*place, name), space)
