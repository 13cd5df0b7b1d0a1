"""`dlcpctl sessions` and `dlcpctl paths`: a daemon's report as rows, for people and programs."""

import argparse
from collections.abc import Iterator, Sequence
from typing import Any, Final

from dlcpd.cli import table
from dlcpd.cli.colour import by_alarm
from dlcpd.cli.output import Output
from dlcpd.ctl.columns import chosen
from dlcpd.inspection.report import condition, query, titled

SESSION_HEADER: Final = (
    "job", "rank", "world", "state", "age(s)", "operations", "open", "waived", "of bound(%)",
    "residual(B)", "waits for", "broken",
)  # fmt: skip
PATH_HEADER: Final = (
    "job", "rank", "host", "path", "class", "sent", "lost", "loss(%)", "marked", "rtt(us)",
    "queue(us)", "window", "is",
)  # fmt: skip


def sessions(options: argparse.Namespace, output: Output) -> int:
    """Print a daemon's sessions. Exit code 1 if one is broken."""
    rows = list(session_rows(query(options.socket, 0)))
    _show(SESSION_HEADER, rows, output, left=1)
    broken = SESSION_HEADER.index("broken")
    return 1 if any(row[broken] for row in rows) else 0


def paths(options: argparse.Namespace, output: Output) -> int:
    """Print the counts of each traffic class on each path to each peer."""
    header, rows = chosen(PATH_HEADER, path_rows(query(options.socket, 0)), options)
    _show(header, rows, output, left=3)
    return 0


def _show(
    header: Sequence[str], rows: Sequence[Sequence[Any]], output: Output, *, left: int
) -> None:
    text = table.render(header, rows, left=left) if rows else "no rows: no session has any"
    output.line(text, by_alarm)
    output.document([dict(zip(header, row, strict=True)) for row in rows])


def session_rows(report: dict[str, Any]) -> Iterator[list[Any]]:
    """A row per session; None for values of an engine that does not know it yet or answer."""
    known = report["engine"].get("sessions", {})
    for session in report["sessions"]:
        engine = known.get(str(session["session"]), {})
        late = ",".join(f"{row['rank']}:{row['host']}" for row in engine.get("late", []))
        yield [
            titled(session),
            session["rank"],
            session["world_size"],
            session["state"],
            round(session["age"]),
            engine.get("submitted"),
            engine.get("open"),
            engine.get("totals", {}).get("waived"),
            bound_used(engine),
            engine.get("residual_bytes"),
            late or None,
            session["broken"] or None,
        ]


def bound_used(engine: dict[str, Any]) -> float | None:
    """Waived / allowed segments of the latest bounded operations, smoothed, in percent."""
    totals = engine.get("totals", {})
    return 100.0 * totals["used"] if totals.get("allowed") else None


def path_rows(report: dict[str, Any]) -> Iterator[list[Any]]:
    """A row per peer, path and class that was used; one per path without any."""
    known = report["engine"].get("sessions", {})
    for session in report["sessions"]:
        for peer in known.get(str(session["session"]), {}).get("peers", []):
            for number, path in enumerate(peer["paths"]):
                begin = [titled(session), peer["rank"], peer["host"], number]
                for name, space in path["classes"].items() or [(None, path)]:
                    yield [*begin, name, *_numbers(space), condition(path)]


def _numbers(space: dict[str, Any]) -> list[Any]:
    window = space.get("window", space.get("congestion_window"))
    return [
        space["sent"],
        space["lost"],
        loss(space["sent"], space["lost"]),
        space.get("marked"),
        microseconds(space["rtt"]),
        microseconds(space["queue_delay"]),
        window,
    ]


def loss(sent: int, lost: int) -> float | None:
    """Lost datagrams in percent; None if none were sent."""
    return 100.0 * lost / sent if sent else None


def microseconds(seconds: float | None) -> int | None:
    """Seconds as microseconds; None for None and for 0: not measured."""
    return round(seconds * 1e6) if seconds else None
