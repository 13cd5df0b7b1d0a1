"""`dlcpctl top`: sessions, paths, rates and late ranks, redrawn periodically."""

import argparse
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, TextIO

from dlcpd.cli import table
from dlcpd.cli.colour import Style, by_alarm, wanted
from dlcpd.cli.output import Output
from dlcpd.contract.errors import BadConfig, DlcpError
from dlcpd.contract.job_name import means
from dlcpd.contract.printable import one_line
from dlcpd.ctl.columns import column
from dlcpd.ctl.keyboard import END, Keyboard
from dlcpd.ctl.sessions import bound_used, loss, microseconds
from dlcpd.ctl.status import serving
from dlcpd.inspection.report import alarms, condition, query, titled

SESSION_HEADER: Final = (
    "job", "rank", "state", "op/s", "open", "waived/s", "of bound(%)", "residual(B)",
)  # fmt: skip
PATH_HEADER: Final = (
    "job", "rank", "host", "path", "is", "packets/s", "Mbit/s", "loss(%)", "rtt(us)", "queue(us)",
    "window", "queued",
)  # fmt: skip
KEYS: Final = "q ends, j next job, s next column to sort paths by"
# Alternate screen without cursor; home; clear to the end of the line, of the screen (ECMA-48).
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _END, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"


@dataclass(frozen=True, slots=True)
class Sample:
    """A report, and its time in seconds of a monotonic clock."""

    report: dict[str, Any]
    at: float


@dataclass(frozen=True, slots=True)
class View:
    """The part of a sample that is shown: rows of `job`, "" = of all; paths by the column `sort`,
    the largest first, "" = as reported."""

    job: str = ""
    sort: str = ""

    def after(self, key: str, report: dict[str, Any]) -> "View":
        """The view after a key."""
        jobs = ["", *sorted({titled(session) for session in report["sessions"]})]
        columns = ["", *PATH_HEADER]
        if key == "j":
            return replace(self, job=_next(jobs, self.job))
        return replace(self, sort=_next(columns, self.sort)) if key == "s" else self

    def sessions(self, rows: Iterable[list[Any]]) -> list[list[Any]]:
        """Rows of SESSION_HEADER, or of PATH_HEADER before they are sorted."""
        return [row for row in rows if not self.job or means(self.job, row[0])]

    def paths(self, rows: Iterable[list[Any]]) -> list[list[Any]]:
        """Rows of PATH_HEADER."""
        found = self.sessions(rows)
        if not self.sort:
            return found
        at = PATH_HEADER.index(self.sort)
        known = [row for row in found if row[at] is not None]
        by_size = sorted(known, key=lambda row: row[at], reverse=not _is_text(known, at))
        return by_size + [row for row in found if row[at] is None]


ALL: Final = View()


def _next(values: Sequence[str], value: str) -> str:
    return values[(values.index(value) + 1) % len(values)] if value in values else values[0]


def _is_text(rows: Sequence[Sequence[Any]], at: int) -> bool:
    return any(isinstance(row[at], str) for row in rows)


def top(options: argparse.Namespace, output: Output) -> int:
    """Draw until Ctrl-C; `--once`: one frame of rates over one interval.

    Raises: BadConfig, DaemonUnavailable, or the daemon's refusal.
    """
    sort = PATH_HEADER[column(PATH_HEADER, options.sort, "--sort")] if options.sort else ""
    view = View(options.job, sort)
    before = _sample(options.socket)
    if options.once:
        time.sleep(options.interval)
        after = _sample(options.socket)
        for line in frame(after, before, view):
            output.line(line, by_alarm)
        output.document(document(after, before, view))
        return 0
    if options.json is not None:
        raise BadConfig("top: --json needs --once")
    with suppress(KeyboardInterrupt):  # the way to leave
        _draw_on(options, before, view, sys.stdout)
    return 0


def _sample(socket: str | None) -> Sample:
    return Sample(query(socket, 0), time.monotonic())


def _draw_on(options: argparse.Namespace, before: Sample, view: View, out: TextIO) -> None:
    if not out.isatty():
        while True:
            time.sleep(options.interval)
            older, (before, said) = before, _looked(options.socket, before)
            lines = [said] if said else list(frame(before, older, view))
            out.write("\n".join([*lines, "", ""]))
            out.flush()
    style = by_alarm if wanted(out) else None
    try:
        with Keyboard() as keyboard:
            out.write(_ENTER)
            out.flush()
            older, newest, said = before, before, ""
            while (key := keyboard.key(options.interval)) != END:
                view = view.after(key, newest.report)
                if not key or older is newest:  # a key alone draws the same samples again
                    older, (newest, said) = newest, _looked(options.socket, newest)
                lines = [said] if said else list(frame(newest, older, view))
                out.write(screen([*lines, "", KEYS], style=style))
                out.flush()
    finally:
        out.write(_LEAVE)
        out.flush()


def _looked(socket: str | None, before: Sample) -> tuple[Sample, str]:
    """The newest sample and ""; `before`, and why there is none, if no daemon answers."""
    try:
        return _sample(socket), ""
    except DlcpError as exc:  # it ends, starts, or is full: it may come back
        return before, one_line(str(exc))


def screen(
    lines: Sequence[str], size: tuple[int, int] | None = None, style: Style | None = None
) -> str:
    """The text that draws `lines` over the screen, cut to `size`: columns and rows; then `style`
    colours each."""
    width, height = size or shutil.get_terminal_size()
    shown = [line[:width] for line in lines[:height]]
    if len(lines) > height:
        shown[-1] = f"... and {len(lines) - height + 1} lines more"[:width]
    return _HOME + f"{_END}\n".join(map(style, shown) if style else shown) + _END + _BELOW


def frame(now: Sample, before: Sample, view: View = ALL) -> Iterator[str]:
    """The lines of one frame; rates since `before`."""
    report = now.report
    yield one_line(
        f"{report['host']}: dlcpd {report['version']}, {serving(report)} "
        f"for {report['uptime']:.0f} s, {len(report['sessions'])} sessions; "
        f"the last {now.at - before.at:.1f} s"
    )
    yield from map(one_line, alarms(report))
    sessions = view.sessions(session_rows(now, before))
    if sessions:
        yield ""
        yield from table.render(SESSION_HEADER, sessions).splitlines()
    paths = view.paths(path_rows(now, before))
    if paths:
        yield ""
        yield from table.render(PATH_HEADER, paths, left=3).splitlines()


def document(now: Sample, before: Sample, view: View = ALL) -> dict[str, Any]:
    """The frame for programs."""
    sessions = view.sessions(session_rows(now, before))
    return {
        "seconds": now.at - before.at,
        "alarms": list(alarms(now.report)),
        "sessions": [dict(zip(SESSION_HEADER, r, strict=True)) for r in sessions],
        "paths": [
            dict(zip(PATH_HEADER, row, strict=True)) for row in view.paths(path_rows(now, before))
        ],
    }


def session_rows(now: Sample, before: Sample) -> Iterator[list[Any]]:
    """A row per session of the newer report."""
    older = before.report["engine"].get("sessions", {})
    for session in now.report["sessions"]:
        number = str(session["session"])
        engine = now.report["engine"].get("sessions", {}).get(number, {})
        then, span = older.get(number, {}), now.at - before.at
        yield [
            titled(session),
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
        (session["session"], peer["rank"], number): (titled(session), peer["host"], peer, path)
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
