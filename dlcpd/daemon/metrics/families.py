"""Every metric of a daemon, by what it is about. docs/metrics.md says the same to people.

Labels name a job and its ranks, never a session's number or an operation, so the series of a daemon
are as many as its ranks, their peers, paths and traffic classes:
sessions x (39 + codes of failures + peers x (5 + paths x (8 + classes in use x 9))).
A host with 8 ranks of a job of 64, one path and one class has 8 x (39 + 63 x 22) = 11,400 series.
However many there are, they are read from reports of at most 191 KiB an engine (MAX_REPORT), in
which a peer takes 370 B at least: some 500; with more, there are no peers, and TRUNCATED is 1.
"""

from typing import Final, NamedTuple

COUNTER: Final = "counter"
GAUGE: Final = "gauge"
HISTOGRAM: Final = "histogram"

# part of the bound; above it, what is lost beyond is retransmitted, which takes time
PRESSED: Final = 0.9

_SESSION: Final = ("job", "rank")
_PEER: Final = (*_SESSION, "peer", "peer_host")
_PATH: Final = (*_PEER, "path")
_CLASS: Final = (*_PATH, "class")


class Family(NamedTuple):
    """One metric. `key`: where its value is in the row of a report; "" is for the collector."""

    name: str  # a counter's without _total
    kind: str
    text: str
    labels: tuple[str, ...]
    key: str = ""


class _Of(NamedTuple):
    """What is about one kind of thing begins alike and has the same labels."""

    prefix: str
    labels: tuple[str, ...]

    def counter(self, name: str, text: str, key: str = "", *labels: str) -> Family:
        return Family(self.prefix + name, COUNTER, text, self.labels + labels, key)

    def gauge(self, name: str, text: str, key: str = "", *labels: str) -> Family:
        return Family(self.prefix + name, GAUGE, text, self.labels + labels, key)


_D: Final = _Of("dlcpd_", ())
BUILD: Final = _D.gauge(
    "build_info", "Always 1; what runs.", "", "version", "data_path", "data_encryption"
)
UP: Final = _D.gauge("engine_answers", "1: the engines answered this scrape; 0: one did not.")
TRUNCATED: Final = _D.gauge(
    "report_truncated", "1: peers or sessions are missing here, since a report became too long."
)
SESSIONS: Final = _D.gauge("sessions", "Local ranks, by state.", "", "state")
CONTROL_EVENTS: Final = _D.counter(
    "control_events", "What control refused or saw go wrong.", "", "event"
)
ENGINE_EVENTS: Final = _D.counter(
    "engine_events", "What the engines refused or saw go wrong.", "", "event"
)
WORK: Final = _D.counter(
    "engine_work", "Wake-ups, system calls and datagrams of the engines.", "", "kind"
)
DAEMON: Final = (
    _D.gauge("uptime_seconds", "Since the daemon started.", "uptime"),
    _D.gauge("draining", "1: it is about to end and begins nothing new.", "draining"),
)

_S: Final = _Of("dlcpd_session_", _SESSION)
ALARM: Final = Family(
    "dlcpd_alarm",
    GAUGE,
    "1 while something is wrong with a rank's session, else 0.",
    (*_SESSION, "alarm"),
)
FAILED: Final = _S.counter("operations_failed", "Operations without a result.", "", "code")
TIMES: Final = Family(
    "dlcpd_session_operation_seconds",
    HISTOGRAM,
    "From an operation's start in the engine to its result.",
    _SESSION,
)
LATE: Final = _S.gauge("late_peers", "Peers that operations have waited for longer than 1 s.")
SESSION: Final = (  # of what control knows
    _S.gauge("age_seconds", "Since all peers were there.", "age"),
    _S.gauge("arena_bytes", "Largest memory that it may share with its client.", "arena_bytes"),
)
SESSION_ENGINE: Final = (  # of what the engine knows
    _S.counter("operations_submitted", "Operations that began.", "submitted"),
    _S.gauge("operations_open", "Operations in flight.", "open"),
    _S.gauge("residual_bytes", "Waived, and kept for the next step.", "residual_bytes"),
    _S.counter(
        "residuals_evicted", "Tensors whose residual was dropped for room.", "residual_evicted"
    ),
)
SESSION_TOTALS: Final = (
    _S.counter("segments_sent", "Segments of its own contributions.", "sent"),
    _S.counter("segments_retransmitted", "Segments sent again.", "retransmitted"),
    _S.counter("segments_waived", "Of its contributions, by agreement.", "waived"),
    _S.counter("segments_allowed", "Of its contributions, that the bound allows.", "allowed"),
    _S.counter("segments_reapplied", "Waived before, and added again.", "reapplied"),
    _S.counter("segments_lost", "Of others, that this rank went without.", "lost"),
    _S.counter("energy_waived", "Fractions of operations' sums of squares, added up.", "energy"),
    _S.gauge("bound_used_ratio", "Part of the bound that was used of late, 0 to 1.", "used"),
)

_P: Final = _Of("dlcpd_peer_", _PEER)
LINK: Final = _P.gauge("up", "1: control's link to the peer is up.")
PEER: Final = (
    _P.gauge("window_bytes", "What the peer lets us have in flight.", "window"),
    _P.gauge("queued_bytes", "What waits to be sent to it.", "queued"),
    _P.gauge("silent_seconds", "Silence of a suspected peer; 0: it is not suspected.", "silent"),
    _P.counter("segments_lost", "Of the peer's, that this rank went without.", "missing"),
)

_T: Final = _Of("dlcpd_path_", _PATH)
PATH: Final = (
    _T.gauge("up", "1: it carries data; 0: it is silent.", "up"),
    _T.gauge("gray", "1: it works and loses more than [network] alarm_loss.", "gray"),
    _T.gauge("rtt_seconds", "Smoothed, of the traffic class that is served best.", "rtt"),
    _T.gauge("datagrams_in_flight", "Sent, and not yet known to be there or lost.", "in_flight"),
    _T.counter("datagrams_received", "Datagrams with data that came on it.", "received"),
    _T.gauge("datagrams_missing", "Sent to us on it, and not here (yet).", "missing"),
    _T.counter("segments_waived", "Last sent on it, and waived.", "waived"),
    _T.gauge("mtu_bytes", "Largest packet known to pass; 0: not known.", "mtu"),
)

_C: Final = _Of("dlcpd_class_", _CLASS)
CLASS: Final = (
    _C.counter("datagrams_sent", "Datagrams with data.", "sent"),
    _C.counter("bytes_sent", "Of these, with our header; short segments count in full.", "bytes"),
    _C.counter("datagrams_resent", "With segments that had been sent before.", "again"),
    _C.counter("datagrams_lost", "Did not arrive, or not in their order.", "lost_at_most"),
    _C.counter("datagrams_marked", "Arrived marked Congestion Experienced.", "marked"),
    _C.gauge("rtt_seconds", "Smoothed.", "rtt"),
    _C.gauge("window_datagrams", "Congestion window.", "window"),
    _C.gauge("rate_datagrams_per_second", "What the path delivers; 0: not known.", "rate"),
    _C.gauge(
        "queue_delay_seconds", "Of the standing queue, in the last round trip.", "queue_delay"
    ),
)

FAMILIES: Final = (
    BUILD, UP, TRUNCATED, SESSIONS, CONTROL_EVENTS, ENGINE_EVENTS, WORK, *DAEMON,
    ALARM, FAILED, TIMES, LATE, *SESSION, *SESSION_ENGINE, *SESSION_TOTALS,
    LINK, *PEER, *PATH, *CLASS,
)  # fmt: skip
