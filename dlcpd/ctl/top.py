"""`dlcpctl top`: sessions, paths, rates and late ranks, redrawn periodically."""

import argparse
import shutil
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, TextIO

from dlcpd.cli import table
from dlcpd.cli.output import Output
from dlcpd.contract.errors import BadConfig, DaemonUnavailable
from dlcpd.contract.printable import one_line
from dlcpd.ctl.sessions import bound_used, loss, microseconds
from dlcpd.ctl.status import serving
from dlcpd.inspection.report import alarms, condition, query

SESSION_HEADER: Final = (
    "job", "rank", "state", "op/s", "open", "waived/s", "of bound(%)", "residual(B)",
)  # fmt: skip
PATH_HEADER: Final = (
    "job", "rank", "host", "path", "is", "packets/s", "Mbit/s", "loss(%)", "rtt(us)", "queue(us)",
    "window", "queued",
)  # fmt: skip
# Alternate screen without cursor; home; clear to the end of the line, of the screen (ECMA-48).
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _END, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


@dataclass(frozen=True, slots=True)
class Sample:
    """A report, and its time in seconds of a monotonic clock."""

    report: dict[str, Any]
    at: float


def top(options: argparse.Namespace, output: Output) -> int:
    """Draw until Ctrl-C; `--once`: one frame of rates over one interval.

    Raises: BadConfig, DaemonUnavailable, or the daemon's refusal.
    """
    before = _sample(options.socket)
    if options.once:
        time.sleep(options.interval)
        after = _sample(options.socket)
        for line in frame(after, before):
            output.line(line)
        output.document(document(after, before))
        return 0
    if options.json is not None:
        raise BadConfig("top: --json needs --once")
    with suppress(KeyboardInterrupt):  # the way to leave
        _draw_on(options, before, sys.stdout)
    return 0


def _sample(socket: str | None) -> Sample:
    return Sample(query(socket, 0), time.monotonic())


def _draw_on(options: argparse.Namespace, before: Sample, out: TextIO) -> None:
    terminal = out.isatty()
    if terminal:
        out.write(_ENTER)
    try:
        while True:
            time.sleep(options.interval)
            try:
                after = _sample(options.socket)
                lines = list(frame(after, before))
            except DaemonUnavailable as exc:  # it may come back
                lines = [one_line(str(exc))]
            else:
                before = after
            out.write(screen(lines) if terminal else "\n".join([*lines, "", ""]))
            out.flush()
    finally:
        if terminal:
            out.write(_LEAVE)
            out.flush()


def screen(lines: Sequence[str], size: tuple[int, int] | None = None) -> str:
    """The text that draws `lines` over the screen, cut to `size`: columns and rows."""
    width, height = size or shutil.get_terminal_size()
    shown = [line[:width] for line in lines[:height]]
    if len(lines) > height:
        shown[-1] = f"... and {len(lines) - height + 1} lines more"[:width]
    return _HOME + f"{_END}\n".join(shown) + _END + _BELOW


def frame(now: Sample, before: Sample) -> Iterator[str]:
    """The lines of one frame; rates since `before`."""
    report = now.report
    yield one_line(
        f"{report['host']}: dlcpd {report['version']}, {serving(report)} "
        f"for {report['uptime']:.0f} s, {len(report['sessions'])} sessions; "
        f"the last {now.at - before.at:.1f} s"
    )
    yield from map(one_line, alarms(report))
    sessions = list(session_rows(now, before))
    if sessions:
        yield ""
        yield from table.render(SESSION_HEADER, sessions).splitlines()
    paths = list(path_rows(now, before))
    if paths:
        yield ""
        yield from table.render(PATH_HEADER, paths, left=3).splitlines()


def document(now: Sample, before: Sample) -> dict[str, Any]:
    """The frame for programs."""
    return {
        "seconds": now.at - before.at,
        "alarms": list(alarms(now.report)),
        "sessions": [dict(zip(SESSION_HEADER, r, strict=True)) for r in session_rows(now, before)],
        "paths": [dict(zip(PATH_HEADER, row, strict=True)) for row in path_rows(now, before)],
    }


def session_rows(now: Sample, before: Sample) -> Iterator[list[Any]]:
    """A row per session of the newer report."""
    older = before.report["engine"].get("sessions", {})
    for session in now.report["sessions"]:
        number = str(session["session"])
        engine = now.report["engine"].get("sessions", {}).get(number, {})
        then, span = older.get(number, {}), now.at - before.at
        yield [
            session["job"],
            session["rank"],
            session["state"],
            _rate(engine.get("submitted"), then.get("submitted"), span),
            engine.get("open"),
            _rate(_waived(engine), _waived(then), span),
            bound_used(engine),
            engine.get("residual_bytes"),
        ]


def _waived(engine: dict[str, Any]) -> int | None:
    count: int | None = engine.get("totals", {}).get("waived")
    return count


def path_rows(now: Sample, before: Sample) -> Iterator[list[Any]]:
    """A row per peer and path that the engine knows."""
    older = _paths(before.report)
    for key, (job, host, peer, path) in _paths(now.report).items():
        _, rank, number = key
        then = older[key][3] if key in older else {}
        span = now.at - before.at
        packets = _rate(path["sent"], then.get("sent"), span)
        bits = _rate(_bytes(path), _bytes(then), span)
        yield [
            job,
            rank,
            host,
            number,
            condition(path),
            packets,
            None if bits is None else bits * 8 / 1e6,
            loss(path["sent"] - then.get("sent", 0), path["lost"] - then.get("lost", 0)),
            microseconds(path["rtt"]),
            microseconds(path["queue_delay"]),
            path["congestion_window"],
            peer.get("queued"),
        ]


def _paths(report: dict[str, Any]) -> dict[tuple[int, int, int], tuple[str, str, Any, Any]]:
    """Job, host, peer and path by session, rank and number."""
    known = report["engine"].get("sessions", {})
    return {
        (session["session"], peer["rank"], number): (session["job"], peer["host"], peer, path)
        for session in report["sessions"]
        for peer in known.get(str(session["session"]), {}).get("peers", [])
        for number, path in enumerate(peer["paths"])
    }


def _bytes(path: dict[str, Any]) -> int | None:
    """Bytes sent on all classes; None if the engine does not report them."""
    spaces = path.get("classes", {}).values()
    counts = [space["bytes"] for space in spaces if "bytes" in space]
    return sum(counts) if counts else None


def _rate(new: int | None, old: int | None, span: float) -> float | None:
    """Per second; None if a count is unknown, or fell: then it restarted."""
    if new is None or old is None or span <= 0 or new < old:
        return None
    return (new - old) / span
