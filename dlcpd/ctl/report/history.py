"""Section from a training's metrics by window, of `handle.report_to(json_lines(FILE))`. Pure."""

from collections.abc import Iterator, Sequence
from typing import Any, Final

from dlcpd.ctl.report.parts import Block, Row, Section, lines, percent, seconds, table
from dlcpd.inspection.run_identity import RUN, run_identity, sentence

PREFIX: Final = "dlcp/"  # of report_to, by default
LITTLE: Final = 0.02  # of a step; if ranks wait for less, a faster network gains nothing
COLUMNS: Final = {  # names of metrics in the table, and factors to the units of the charts
    "bytes": ("gradients (MB)", 1e-6),
    "bounded_bytes": ("bounded gradients (MB)", 1e-6),
    "waived": ("segments waived", 1),
    "retransmitted": ("segments retransmitted", 1),
    "reapplied": ("segments reapplied", 1),
    "segments": ("segments sent", 1),
    "loss": ("loss (%)", 100),
    "bound": ("bound (%)", 100),
    "energy_lost": ("energy waived (%)", 100),
    "exchange_saved": ("exchange time saved (%)", 100),
    "exposed_s": ("waited a step (ms)", 1e3),
    "step_s": ("a step (ms)", 1e3),
}


def of_windows(found: Sequence[Row]) -> Section:
    """`found`: a map of metrics per window; `step` is its last step. RUN, in the first window of a
    launch: what its daemon reported. Raises: as of_document."""
    runs = [row[RUN] for row in found if RUN in row]
    found = [{key: value for key, value in row.items() if key != RUN} for row in found]
    windows = [{key.removeprefix(PREFIX): value for key, value in row.items()} for row in found]
    columns: dict[str, list[Any]] = {n: [row.get(n) for row in windows] for n in windows[-1]}
    columns.setdefault("step", _ends(windows))
    if not columns.keys() >= {"steps", "bytes"}:
        raise KeyError("steps")
    steps = sum(columns["steps"])
    title = f"A training: {steps} steps of one rank"
    made: dict[str, Any] = {"windows": len(windows)}
    said = list(_said(windows, steps))
    if runs:
        made |= {"launches": len(runs), **run_identity(runs[-1])}
        said.insert(0, sentence(made))
    return Section(title, said, list(_blocks(columns)), made)


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
    shown = [COLUMNS.get(name, (name.replace("_", " "), 1)) for name in names]
    values = [_scaled(columns[n], scale) for n, (_, scale) in zip(names, shown, strict=True)]
    header = [title for title, _ in shown]
    yield table("Window by window", header, zip(*values, strict=True))


def _scaled(values: Sequence[float | None], scale: float) -> list[float | None]:
    return [None if value is None else value * scale for value in values]
