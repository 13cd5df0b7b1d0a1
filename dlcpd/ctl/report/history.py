"""Section from a training's metrics by window, of `handle.report_to(json_lines(FILE))`. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any

from dlcpd.ctl.report.parts import Block, Row, Section, lines, percent, seconds, table

PREFIX = "dlcp/"  # of report_to, by default
LITTLE = 0.02  # of a step; if ranks wait for less, a faster network gains nothing


def of_windows(found: Sequence[Row]) -> Section:
    """`found`: a map of metrics per window; `step` is its last step. Raises: as of_document."""
    windows = [{key.removeprefix(PREFIX): value for key, value in row.items()} for row in found]
    columns: dict[str, list[Any]] = {n: [row.get(n) for row in windows] for n in windows[-1]}
    columns.setdefault("step", _ends(windows))
    if not columns.keys() >= {"steps", "bytes"}:
        raise KeyError("steps")
    steps = sum(columns["steps"])
    title = f"A training: {steps} steps of one rank"
    return Section(
        title, list(_said(windows, steps)), list(_blocks(columns)), {"windows": len(windows)}
    )


def _ends(windows: Sequence[Row]) -> list[int]:
    return [sum(row["steps"] for row in windows[: number + 1]) for number in range(len(windows))]


def _said(windows: Sequence[Row], steps: int) -> Iterator[str]:
    each = sum(row["bytes"] for row in windows) / max(steps, 1)
    yield f"{each / 1e6:.3g} MB of gradients a step went through dlcpd."
    bounded = [row for row in windows if row.get("bounded_bytes")]
    if bounded:
        worst = max(bounded, key=lambda row: row["loss"])
        waived, reapplied = (
            sum(row.get(key, 0) for row in windows) for key in ("waived", "reapplied")
        )
        over = worst["loss"] > worst.get("bound", 1.0) > 0
        yield (
            f"{waived} segments were waived and {reapplied} came back in later steps; the most "
            f"in one window was {percent(worst['loss'])}, "
            f"{'ABOVE' if over else 'within'} the bound of {percent(worst.get('bound', 0.0))}."
        )
    else:
        yield "No loss was allowed, and no segment was waived."
    yield from _waited(windows)
    alarms = max((row.get("paths_in_alarm", 0) for row in windows), default=0)
    if alarms:
        yield f"Up to {alarms} of {windows[-1].get('paths', '?')} paths were down or lost too much."


def _waited(windows: Sequence[Row]) -> Iterator[str]:
    known = [row for row in windows if "exposed_s" in row and "step_s" in row]
    if not known:
        return
    count = sum(row["steps"] for row in known)
    waited = sum(row["exposed_s"] * row["steps"] for row in known) / count
    whole = sum(row["step_s"] * row["steps"] for row in known) / count
    share = waited / whole if whole else 0.0
    yield (
        f"A step waited {seconds(waited)} of {seconds(whole)} for gradients, {share:.0%}: a "
        "faster exchange could save at most that."
    )
    if share < LITTLE:
        yield "So a faster network would gain nothing here."


def _blocks(columns: dict[str, list[Any]]) -> Iterator[Block]:
    x = {"step": columns["step"]}

    def some(scale: float, **names: str) -> dict[str, list[Any]]:
        found = {
            label.replace("_", " "): _scaled(columns[name], scale)
            for label, name in names.items()
            if name in columns
        }
        return x | found if found else {}

    charts = (
        (
            "Loss of bounded segments against the bound",
            " %",
            some(100, waived="loss", bound="bound"),
        ),
        (
            "A step, and its wait for gradients",
            " ms",
            some(1e3, a_step="step_s", waited="exposed_s"),
        ),
        ("Energy of gradients that was waived", " %", some(100, energy="energy_lost")),
        ("Segments retransmitted", "", some(1, sent_again="retransmitted")),
        ("Paths in alarm", "", some(1, in_alarm="paths_in_alarm")),
    )
    for title, unit, series in charts:
        if series:
            yield lines(title, unit, "step", series)
    names = ["step", *(name for name in columns if name != "step")]
    yield table("Window by window", names, zip(*(columns[name] for name in names), strict=True))


def _scaled(values: Sequence[float | None], scale: float) -> list[float | None]:
    return [None if value is None else value * scale for value in values]
