"""The metrics of a daemon; docs/metrics.md lists them.

Labels name a job, its local ranks, and the hosts of its peers; never a session number, an
operation or a remote rank. docs/metrics.md has the number of series.
If rows of peers exceed dlcpd.io.report.MAX_REPORT, some are left out and TRUNCATED is 1.
"""

from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from dlcpd.contract.errors import codes
from dlcpd.io import report_rows
from dlcpd.io.report_rows import COUNTER, GAUGE, ReportValue

HISTOGRAM: Final = "histogram"

# Fraction of the bound; from here on, more losses cause retransmissions.
PRESSED: Final = 0.9

_SESSION: Final = ("job_name", "rank")
_PEER: Final = ("job_name", "peer_host")
_PATH: Final = (*_PEER, "path")
_CLASS: Final = (*_PATH, "class")


class Family(NamedTuple):
    """One metric. `key`: its field in a row of the report; "" = the collector computes it."""

    name: str  # a counter's without _total
    kind: str
    text: str
    labels: tuple[str, ...]
    key: str = ""
    over: Callable[[Iterable[float]], float] | None = None  # as in Metric

    def merged(self, values: Iterable[float]) -> float:
        """The value of a series that several ranks share."""
        return (self.over or (sum if self.kind == COUNTER else max))(values)


class _Of(NamedTuple):
    """The prefix and the labels that all metrics of one kind of object share."""

    prefix: str
    labels: tuple[str, ...]

    def counter(self, name: str, text: str, key: str = "", *labels: str) -> Family:
        return Family(self.prefix + name, COUNTER, text, self.labels + labels, key)

    def gauge(self, name: str, text: str, key: str = "", *labels: str) -> Family:
        return Family(self.prefix + name, GAUGE, text, self.labels + labels, key)

    def rows(self, rows: Iterable[ReportValue[Any]]) -> tuple[Family, ...]:
        """The metrics among the values of an engine's report."""
        return tuple(
            Family(self.prefix + of.name, of.kind, of.text, self.labels, row.key, of.over)
            for row in rows
            if (of := row.metric) is not None
        )


_D: Final = _Of("dlcpd_", ())
BUILD: Final = _D.gauge(
    "build_info",
    "Build of the daemon, in labels; always 1.",
    "",
    "version",
    "commit",
    "messages",
    "peers",
    "data_path",
    "data_encryption",
)
UP: Final = _D.gauge("engine_answers", "1: all engines answered this scrape; 0: an engine did not.")
TRUNCATED: Final = _D.gauge("report_truncated", "1: the report was too long; peers are missing.")
SESSIONS: Final = _D.gauge("sessions", "Sessions of local ranks, by state.", "", "state")
CONTROL_EVENTS: Final = _D.counter(
    "control_events", "Refusals and errors of the control process, by event.", "", "event"
)
ENGINE_EVENTS: Final = _D.counter(
    "engine_events", "Refusals and errors of the engines, by event.", "", "event"
)
WORK: Final = _D.counter(
    "engine_work", "Wake-ups, system calls and datagrams of the engines, by kind.", "", "kind"
)
OPERATIONS_FAILED: Final = _D.counter(
    "operations_failed", "Operations of all jobs that ended with an error, by code.", "", "code"
)
TOTALS: Final = (  # of all jobs since the engines started
    _D.counter("segments_sent", "Segments of contributions of all jobs.", "sent"),
    _D.counter("segments_retransmitted", "Retransmitted segments of all jobs.", "retransmitted"),
    _D.counter("segments_waived", "Waived segments of all jobs.", "waived"),
    _D.counter("segments_lost", "Segments that are missing in sums of all jobs.", "lost"),
)
OPERATIONS_DONE: Final = _D.counter(
    "operations_completed", "Operations of all jobs that have a result."
)
ENGINE_PROCESS: Final = (
    Family(
        "dlcpd_engine_cpu_seconds",
        COUNTER,
        "CPU time of the engine's process.",
        ("engine",),
        "cpu_seconds",
    ),
    Family(
        "dlcpd_engine_resident_memory_bytes",
        GAUGE,
        "Memory of the engine's process, with the pages of arenas that it has touched.",
        ("engine",),
        "resident_bytes",
    ),
    Family(
        "dlcpd_engine_restarts",
        COUNTER,
        "Engines that replaced one that ended.",
        ("engine",),
        "restarts",
    ),
)
PENDING: Final = _D.gauge(
    "settings_pending", "Settings that wait for a restart since the last reload."
)
CORDONED: Final = _D.gauge("cordoned", "1: the daemon takes no new jobs until dlcpctl uncordon.")
UNREACHABLE: Final = _D.gauge(
    "unreachable", "1: other hosts may not reach the daemon's automatic addresses."
)
DAEMON: Final = (
    _D.gauge("uptime_seconds", "Time since the daemon started.", "uptime"),
    _D.gauge("start_time_seconds", "Time of the daemon's start, since the epoch.", "started"),
    _D.gauge("draining", "1: the daemon takes no new sessions and ends.", "draining"),
)

_S: Final = _Of("dlcpd_session_", _SESSION)
ALARM: Final = Family(
    "dlcpd_alarm",
    GAUGE,
    "1: the session has this alarm; 0: it does not.",
    (*_SESSION, "alarm"),
)
FAILED: Final = _S.counter(
    "operations_failed", "Operations that ended with an error, by code.", "", "code"
)
TIMES: Final = Family(
    "dlcpd_session_operation_seconds",
    HISTOGRAM,
    "Time from the start of an operation in the engine to its result.",
    _SESSION,
)
LATE: Final = _S.gauge("late_peers", "Peers for which operations have waited for more than 1 s.")
SESSION: Final = (  # values of the control process
    _S.gauge("age_seconds", "Time since all ranks of the session joined.", "age"),
    _S.gauge("start_time_seconds", "Time at which all ranks had joined.", "started"),
    _S.gauge("arena_bytes", "Size limit of the arena.", "arena_bytes"),
)
SESSION_ENGINE: Final = _S.rows(report_rows.SESSION)  # values of the engines
SESSION_TOTALS: Final = (
    _S.counter("segments_sent", "Segments of this rank's contributions.", "sent"),
    _S.counter("segments_retransmitted", "Segments that this rank retransmitted.", "retransmitted"),
    _S.counter(
        "segments_waived", "Segments of this rank's contributions that were waived.", "waived"
    ),
    _S.counter(
        "segments_allowed",
        "Segments of this rank's contributions that the bound allows to waive.",
        "allowed",
    ),
    _S.counter(
        "segments_reapplied", "Waived segments that were added to a later operation.", "reapplied"
    ),
    _S.counter(
        "segments_lost", "Segments of all peers that are missing in sums of this rank.", "lost"
    ),
    _S.counter(
        "energy_waived",
        "Waived fraction of the sum of squares, added up over operations.",
        "energy",
    ),
    _S.gauge(
        "bound_used_ratio",
        "Waived / allowed segments, smoothed over 16 operations; 0 to 1.",
        "used",
    ),
)

_P: Final = _Of("dlcpd_peer_", _PEER)
LINK: Final = _P.gauge("up", "1: the connection to the peer's control process is up.")._replace(
    over=min
)
PEER: Final = _P.rows(report_rows.PEER)

_T: Final = _Of("dlcpd_path_", _PATH)
PATH: Final = (
    *_T.rows(report_rows.PATH),
    _T.gauge("mtu_bytes", "Largest packet that passed; 0: unknown.", "mtu"),
)

_C: Final = _Of("dlcpd_class_", _CLASS)
CLASS: Final = _C.rows(report_rows.CLASS)

# Each has a series from the start: the first event would not be an increase otherwise.
KNOWN_CONTROL_EVENTS: Final = (
    *(f"{what}_{code}" for what in ("refused", "broken") for code in codes()),
    "engine_lost", "left_open", "internal", "client_older",
    "handshake_waits", "handshake_refused", "handshake_malformed",
    "line_broken", "line_talks", "line_turned_away", "peer_not_authorised", "peer_revoked",
    "peer_stream_broken", "peer_many_parts", "peer_stranger", "peer_unknown_session",
    "peer_wrong_key", "peer_stale", "peer_queue_full", "peer_abort_again", "peer_abort_flood",
    "peer_too_long", "peer_no_msgpack", "peer_no_frame", "peer_other_version",
    "peer_unknown_kind", "peer_bad_field",
)  # fmt: skip
KNOWN_ENGINE_EVENTS: Final = ("internal", "kernel_dropped", "events_dropped")

FAMILIES: Final = (
    BUILD, UP, TRUNCATED, SESSIONS, CONTROL_EVENTS, ENGINE_EVENTS, WORK, PENDING, CORDONED,
    UNREACHABLE, *DAEMON,
    OPERATIONS_DONE, OPERATIONS_FAILED, *TOTALS, *ENGINE_PROCESS,
    ALARM, FAILED, TIMES, LATE, *SESSION, *SESSION_ENGINE, *SESSION_TOTALS,
    LINK, *PEER, *PATH, *CLASS,
)  # fmt: skip
