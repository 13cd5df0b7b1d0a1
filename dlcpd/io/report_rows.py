"""The values of an engine's report that are numbers of a session, peer, path or traffic class.

A value is one row: the engine reads it for its report, control merges the reports of several
engines by it, and a row with a metric is served to Prometheus. docs/metrics.md lists the metrics.
This module needs neither numpy nor the engine: control imports it.
"""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from dlcpd.collectives.loss.accounts import Accounts
    from dlcpd.core.paths.path import PathReceiver, PathSender
    from dlcpd.core.paths.space import SpaceSender
    from dlcpd.core.session.flow import Flow
    from dlcpd.core.session.session import Session

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
T = TypeVar("T")


class Metric(NamedTuple):
    """A value's name and help for Prometheus."""

    kind: str  # COUNTER or GAUGE
    name: str  # without the prefix of its object; a counter's without _total
    text: str
    # The value of several ranks of a host; None: the sum of counters, the largest of gauges.
    over: Callable[[Iterable[float]], float] | None = None


class ReportValue(NamedTuple, Generic[T]):
    """One value: `read` takes it from its object, `merge` makes one of those of several engines.
    Without `merge` the first engine's value holds; without `metric` only status has it."""

    key: str
    read: Callable[[T], Any]
    metric: Metric | None = None
    merge: Callable[[Iterable[Any]], Any] | None = None


class SessionOrigin(NamedTuple):
    """The parts of a session whose values its row of the report has."""

    session: "Session"
    accounts: "Accounts"


class PeerSource(NamedTuple):
    """The same of a peer."""

    flow: "Flow"
    accounts: "Accounts"
    silent: float  # seconds of silence of a suspected peer; 0: not suspected


class PathSource(NamedTuple):
    """The same of a path to a peer."""

    sender: "PathSender"
    receiver: "PathReceiver"
    number: int
    flow: "Flow"
    accounts: "Accounts"


def values(rows: Iterable[ReportValue[T]], source: T) -> dict[str, Any]:
    """The values of an object, by key."""
    return {key: read(source) for key, read, _metric, _merge in rows}


def merged(rows: Iterable[ReportValue[Any]], parts: list[dict[str, Any]]) -> dict[str, Any]:
    """The values that are merged, of the reports of one object by several engines."""
    return {
        row.key: row.merge([part[row.key] for part in parts])
        for row in rows
        if row.merge is not None and row.key in parts[0]
    }


SESSION: Final[tuple[ReportValue[SessionOrigin], ...]] = (
    ReportValue(
        "submitted",
        lambda of: of.session.begun,
        Metric(COUNTER, "operations_submitted", "Operations that began."),
        sum,
    ),
    ReportValue(
        "open",
        lambda of: len(of.session.operations),
        Metric(GAUGE, "operations_open", "Operations in flight."),
        sum,
    ),
    ReportValue(
        "residual_bytes",
        lambda of: of.accounts.residuals.size,
        Metric(GAUGE, "residual_bytes", "Memory of residuals, which later operations reapply."),
        sum,
    ),
    ReportValue("held_bytes", lambda of: of.accounts.holdings.held, merge=sum),
    ReportValue(
        "residual_evicted",
        lambda of: of.accounts.residuals.evicted,
        Metric(
            COUNTER,
            "residuals_evicted",
            "Tensors whose residual was discarded for lack of memory.",
        ),
        sum,
    ),
)

PEER: Final[tuple[ReportValue[PeerSource], ...]] = (
    ReportValue(
        "window",
        lambda of: of.flow.window,
        Metric(GAUGE, "window_bytes", "Bytes that the peer allows in flight.", min),
    ),
    ReportValue("segment_size", lambda of: of.flow.segment_size),
    ReportValue("routes", lambda of: of.flow.paths.distinct),
    ReportValue(
        "queued",
        lambda of: of.flow.outgoing.queued,
        Metric(GAUGE, "queued_bytes", "Bytes that wait to be sent to the peer.", sum),
        sum,
    ),
    ReportValue(
        "missing",
        lambda of: of.accounts.lost[of.flow.rank],
        Metric(
            COUNTER,
            "segments_lost",
            "Segments of the peer that are missing in sums of this rank.",
        ),
        sum,
    ),
    ReportValue(
        "silent",
        lambda of: of.silent,
        Metric(GAUGE, "silent_seconds", "Silence of a suspected peer; 0: not suspected."),
        max,
    ),
)

PATH: Final[tuple[ReportValue[PathSource], ...]] = (
    ReportValue(
        "up",
        lambda of: of.sender.up,
        Metric(GAUGE, "up", "1: the path carries data; 0: it is silent.", min),
    ),
    ReportValue(
        "gray",
        lambda of: of.flow.paths.health[of.number].gray,
        Metric(GAUGE, "gray", "1: the path loses more than [network] alarm_loss."),
    ),
    ReportValue("hops", lambda of: of.flow.paths.routes.hops(of.number)),
    ReportValue("sent", lambda of: of.sender.sent),
    ReportValue("lost", lambda of: of.sender.lost),
    ReportValue(
        "rtt",
        lambda of: of.sender.smoothed_rtt,
        Metric(GAUGE, "rtt_seconds", "Smoothed round-trip time of the fastest traffic class."),
    ),
    ReportValue(
        "in_flight",
        lambda of: of.sender.in_flight,
        Metric(
            GAUGE,
            "datagrams_in_flight",
            "Datagrams sent that neither arrived nor were lost so far.",
            sum,
        ),
    ),
    ReportValue(
        "congestion_window",
        lambda of: sum(int(space.congestion.window) for space in of.sender.spaces.values()),
    ),
    ReportValue(
        "queue_delay",
        lambda of: max(
            (space.congestion.queue_delay for space in of.sender.spaces.values()), default=0.0
        ),
    ),
    ReportValue(
        "received",
        lambda of: sum(space.received for space in of.receiver.spaces.values()),
        Metric(COUNTER, "datagrams_received", "Data datagrams received."),
    ),
    ReportValue(
        "missing",
        lambda of: sum(space.largest - space.received for space in of.receiver.spaces.values()),
        Metric(
            GAUGE,
            "datagrams_missing",
            "Data datagrams of the peer that have not arrived so far.",
            sum,
        ),
    ),
    ReportValue(
        "waived",
        lambda of: of.accounts.waived[of.flow.rank, of.number],
        Metric(
            COUNTER,
            "segments_waived",
            "Waived segments whose last transmission used this path.",
        ),
    ),
)

CLASS: Final[tuple[ReportValue["SpaceSender"], ...]] = (
    ReportValue(
        "sent",
        lambda of: of.sent,
        Metric(
            COUNTER, "datagrams_sent", "DATA datagrams sent; data that READY carries do not count."
        ),
    ),
    ReportValue(
        "bytes",
        lambda of: of.bytes,
        Metric(
            COUNTER,
            "bytes_sent",
            "Bytes of data datagrams sent, with DLCP headers.",
        ),
    ),
    ReportValue(
        "again",
        lambda of: of.again,
        Metric(COUNTER, "datagrams_resent", "Data datagrams with retransmitted segments."),
    ),
    ReportValue("lost", lambda of: of.lost),
    ReportValue(
        "lost_at_most",
        lambda of: of.lost_at_most,
        Metric(COUNTER, "datagrams_lost", "Datagrams counted as lost, late ones included."),
    ),
    ReportValue(
        "marked",
        lambda of: of.marked,
        Metric(
            COUNTER,
            "datagrams_marked",
            "Datagrams that arrived with the mark Congestion Experienced.",
        ),
    ),
    ReportValue(
        "rtt",
        lambda of: of.rtt.smoothed,
        Metric(GAUGE, "rtt_seconds", "Smoothed round-trip time."),
    ),
    ReportValue(
        "window",
        lambda of: int(of.congestion.window),
        Metric(GAUGE, "window_datagrams", "Congestion window."),
    ),
    ReportValue(
        "rate",
        lambda of: int(of.congestion.rate),
        Metric(GAUGE, "rate_datagrams_per_second", "Delivery rate; 0: unknown.", sum),
    ),
    ReportValue(
        "queue_delay",
        lambda of: of.congestion.queue_delay,
        Metric(GAUGE, "queue_delay_seconds", "Delay of the standing queue in the last round trip."),
    ),
)
