"""Events of engines as a timeline for Perfetto and chrome://tracing.

Format: "Trace Event Format" (Google, 2016). Spans of operations and transfers overlap, so they are
nestable asynchronous events ("b", "e"); batches and arrivals are instants ("i"); reductions and
steps complete events ("X").

An event of an engine is `[microseconds, what, session, stream, peer of the stream, operation]`, and
goes on, by `what`, with:

    submitted   name, ticket, collective, bytes, client's stamp (microseconds or 0), bound
                (millionths)
    ready       rank whose READY agreed
    sent        a batch: rank, transfer, path, traffic class, segments, round (0: first pass)
    taken       rank, transfer, retransmitted segments: the rank has all that it wants
    received    rank, transfer, bytes, segments that stay missing
    agreed      rank, transfer, waived segments; repeated if an answer was lost
    reduced     microseconds when the reduction began, bytes
    due         first byte, bytes: the client may compute them
    computed    first byte, bytes: the client has
    result      nothing
    failed      code
    returned    ticket: the client has the result (stream and operation are 0)
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final, NamedTuple

from dlcpd.contract.traffic import traffic_classes
from dlcpd.inspection.report import titled

FIRST_PROCESS: Final = 1 << 30  # beyond all process ids of Linux (2^22): for merged traces
STEPS: Final = 1  # thread: a span per step
REDUCTIONS: Final = 2  # thread
PEERS: Final = 16  # thread of rank 0's data; two for each rank
Row = dict[str, Any]
Event = list[Any]


class Where(NamedTuple):
    """A session in an engine: a process of the timeline."""

    engine: int
    session: int


@dataclass(slots=True)
class OperationHistory:
    """The history of one operation. Times in microseconds; 0: not reached."""

    name: str = ""
    ticket: int = 0
    kind: str = ""
    size: int = 0
    bound: float = 0.0
    stamp: int = 0  # the client has sent it
    begun: int = 0  # the engine has begun it
    met: int = 0  # the last READY
    result: int = 0
    returned: int = 0  # the client was told
    failed: str = ""  # code
    retransmitted: int = 0  # segments
    # rank, transfer -> waived segments; agreed again, with the same key, if an ACK was lost
    agreed: dict[tuple[int, int], int] = field(default_factory=dict)
    last: int = 0  # the newest event of it
    sent: dict[tuple[int, int], int] = field(default_factory=dict)  # rank, transfer -> first batch
    due: dict[int, int] = field(default_factory=dict)  # first byte -> when it was due

    @property
    def start(self) -> int:
        """Time of submission, or of the begin if that is unknown or earlier."""
        return min(self.stamp or self.begun, self.begun)

    @property
    def end(self) -> int:
        """Time when the client got the result, or of the latest known event."""
        return self.returned or self.result or self.last


def timeline(events: dict[int, list[Event]], sessions: list[Row], steps: int) -> list[Row]:
    """Trace events of the operations that began in the first `steps` steps.

    `events`: by engine. `sessions`: of the daemon's status, for names. A step begins where the
    first name of a session repeats. Operations that began before the recording are left out.
    """
    places: dict[Where, list[Event]] = {}
    for engine, rows in events.items():
        for row in rows:
            places.setdefault(Where(engine, row[2]), []).append(row)
    names = {session["session"]: session for session in sessions}
    out: list[Row] = []
    for number, (where, rows) in enumerate(sorted(places.items())):
        process = _Process(FIRST_PROCESS + number, where, names.get(where.session, {}))
        out += process.spans(rows, steps)
    return out


def merged(ours: list[Row], epoch: int, profile: Row) -> Row:
    """A profile of torch.profiler of the same host, with `ours`, events of dlcpd, on its clock.

    `epoch`: microseconds from the events' clock to the epoch's. The profile's times are the
    epoch's, less `baseTimeNanoseconds`.
    """
    shift = epoch - profile.get("baseTimeNanoseconds", 0) / 1000
    moved = [row | {"ts": row["ts"] + shift} if "ts" in row else row for row in ours]
    return profile | {"traceEvents": [*profile["traceEvents"], *moved]}


class _Process:
    def __init__(self, number: int, where: Where, session: Row) -> None:
        self._pid, self._where = number, where
        job = titled(session) if session else "of a session that has ended"
        rank = session.get("rank", "?")
        self._title = f"dlcpd: rank {rank} of {job}"
        if where.engine:
            self._title += f", engine {where.engine}"
        self._threads: dict[int, str] = {STEPS: "steps", REDUCTIONS: "reductions"}

    def spans(self, rows: list[Event], steps: int) -> list[Row]:
        operations = _operations(rows)
        chosen, edges = _chosen(operations, steps)
        out = list(self._steps(edges))
        for key, operation in chosen.items():
            out += self._operation(key, operation)
        out += [
            made
            for row in rows
            if tuple(row[3:6]) in chosen
            for made in self._instants(row, chosen[tuple(row[3:6])])
        ]
        return [*self._metadata(), *out]

    def _metadata(self) -> Iterator[Row]:
        yield self._row("M", 0, "process_name", args={"name": self._title})
        for thread, name in sorted(self._threads.items()):
            yield self._row("M", thread, "thread_name", args={"name": name})

    def _row(self, phase: str, thread: int, name: str, **more: Any) -> Row:
        return {"ph": phase, "pid": self._pid, "tid": thread, "name": name, **more}

    def _steps(self, edges: list[int]) -> Iterator[Row]:
        for number, (start, end) in enumerate(pairwise(edges), 1):
            yield self._row("X", STEPS, f"step {number}", cat="step", ts=start, dur=end - start)

    def _operation(self, key: tuple[int, ...], op: OperationHistory) -> Iterator[Row]:
        """Spans of the whole operation, and of its phases within."""
        same = {"cat": "operation", "id": f"{self._pid}.{'.'.join(map(str, key))}"}
        told: Row = {
            "collective": op.kind,
            "bytes": op.size,
            "bound": op.bound,
            "number": key[2],
            # As in the client's profiler ranges; text, since viewers read numbers as float64.
            "session": str(self._where.session),
            "operation": op.ticket,
            "segments retransmitted": op.retransmitted,
            "segments waived": sum(op.agreed.values()),
        }
        if op.failed:
            told["failed"] = op.failed
        yield from self._span(same, op.name, op.start, op.end, told)
        met = max(op.met or op.begun, op.begun)
        edges = [
            ("queued", op.start, op.begun),
            ("waits for ranks", op.begun, met),
            ("exchange", met, op.result),
            ("returns", op.result, op.returned),
        ]
        for name, start, end in edges:
            if start and end > start:
                yield from self._span(same, name, start, end, {})

    def _span(self, same: Row, name: str, start: int, end: int, told: Row) -> Iterator[Row]:
        """`same`: category and id, which nested spans share."""
        yield self._row("b", STEPS, name, ts=start, args=told, **same)
        yield self._row("e", STEPS, name, ts=max(end, start), **same)

    def _thread(self, rank: int, name: str, odd: int) -> int:
        thread = PEERS + 2 * rank + odd
        self._threads[thread] = f"{name} rank {rank}"
        return thread

    def _instants(self, row: Event, op: OperationHistory) -> Iterator[Row]:
        at, what, more = row[0], row[1], row[6:]
        if what == "sent":
            rank, transfer, path, number, segments, round_ = more
            told = {
                "operation": op.name,
                "transfer": transfer,
                "path": path,
                "class": list(traffic_classes())[number],
                "segments": segments,
            }
            name = "retransmitted" if round_ else "sent"
            yield self._instant(self._thread(rank, "to", 0), name, at, told)
        elif what == "taken" and (more[0], more[1]) in op.sent:
            identity = f"{self._pid}.{'.'.join(map(str, row[3:6]))}.{more[0]}.{more[1]}"
            name, start = f"to rank {more[0]}: {op.name}", op.sent[more[0], more[1]]
            told = {"transfer": more[1], "segments retransmitted": more[2]}
            same = {"cat": "transfer", "id": identity}
            yield from self._span(same, name, start, at, told)
        elif what == "received":
            told = {
                "operation": op.name,
                "transfer": more[1],
                "bytes": more[2],
                "segments missing": more[3],
            }
            yield self._instant(self._thread(more[0], "from", 1), "received", at, told)
        elif what == "agreed":
            told = {"operation": op.name, "transfer": more[1], "segments": more[2]}
            yield self._instant(self._thread(more[0], "to", 0), "waived", at, told)
        elif what == "computed" and more[0] in op.due:
            identity = f"{self._pid}.{'.'.join(map(str, row[3:6]))}.computed.{more[0]}"
            same = {"cat": "computation", "id": identity}
            told = {"first byte": more[0], "bytes": more[1]}
            yield from self._span(same, f"computes: {op.name}", op.due[more[0]], at, told)
        elif what == "reduced":
            yield self._row(
                "X",
                REDUCTIONS,
                op.name,
                cat="reduction",
                ts=more[0],
                dur=max(at - more[0], 0),
                args={"bytes": more[1]},
            )

    def _instant(self, thread: int, name: str, at: int, told: Row) -> Row:
        return self._row("i", thread, name, cat="data", ts=at, s="t", args=told)


def _operations(rows: Iterable[Event]) -> dict[tuple[int, ...], OperationHistory]:
    """Operations by stream, its peer and number, in order; without those begun before the
    recording."""
    rows = list(rows)
    found, by_ticket = dict[tuple[int, ...], OperationHistory](), dict[int, OperationHistory]()
    for row in rows:
        if row[1] == "submitted":
            found[tuple(row[3:6])] = OperationHistory(begun=row[0])
    for row in rows:
        at, what, more = row[0], row[1], row[6:]
        op = by_ticket.get(more[0]) if what == "returned" else found.get(tuple(row[3:6]))
        if op is None:
            continue
        op.last = max(op.last, at)
        if what == "submitted":
            op.name, op.ticket, op.kind, op.size, op.stamp, millionths = more
            op.bound = millionths / 1e6
            by_ticket[op.ticket] = op
        else:
            _happened(op, at, what, more)
    return found


def _happened(op: OperationHistory, at: int, what: str, more: list[Any]) -> None:
    match what:
        case "ready":
            op.met = at
        case "sent":
            op.sent.setdefault((more[0], more[1]), at)
        case "taken":
            op.retransmitted += more[2]
        case "due":
            op.due[more[0]] = at
        case "agreed":
            op.agreed[more[0], more[1]] = more[2]
        case "result":
            op.result = at
            op.begun = min(op.begun, at)
        case "failed":
            op.failed = more[0]
        case "returned":
            op.returned = at


def _chosen(
    operations: dict[tuple[int, ...], OperationHistory], steps: int
) -> tuple[dict[tuple[int, ...], OperationHistory], list[int]]:
    """Operations of the first `steps` steps; begins of the steps, and the end of the last."""
    chosen, edges, first = dict[tuple[int, ...], OperationHistory](), list[int](), ""
    for key, operation in operations.items():
        first = first or operation.name
        if operation.name == first:
            edges.append(operation.start)
            if len(edges) > steps:
                return chosen, edges
        chosen[key] = operation
    edges.append(max((operation.end for operation in chosen.values()), default=0))
    return chosen, edges
