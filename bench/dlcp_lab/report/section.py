"""Section of a report from the JSON of `dlcpctl bench`, `demo` and `verify`. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import groupby
from typing import Any, Final

from dlcp_lab.report.amounts import show_beside
from dlcp_lab.report.measured import WORDS, Gap, attempt, figure
from dlcp_lab.report.statistic import median, quotient, ratios
from dlcpd.ctl.report.parts import (
    Block,
    Row,
    Section,
    lines,
    percent,
    ranges,
    seconds,
    size,
    spread,
    table,
)

# Keys of a row that make its label, in this order; the system that ran comes last.
_OF: Final = ("collective", "task", "network", "model", "size", "codec")
_SYSTEM: Final = ("transport", "system")
_PARTS: Final = (
    "rows",
    "checks",
    "claims",
    "data",
    "runs",
    "times",
    "costs",
    "searches",
    "header",
    "account",
)
MAX_GROUPS: Final = 6  # with a chart of times each; more are only in the table
WORTH: Final = 1.02  # a ratio below is no gain, as in the benchmarks' own verdicts
COLOURS: Final = {"gloo": "orange", "nccl": "purple"}  # others are blue


def of_document(found: Row) -> Section:
    """Raises: KeyError, TypeError, ValueError or AttributeError for any other document."""
    command = f"dlcpctl {found['command']}"
    rows = [row for row in found.get("rows", []) if isinstance(row, dict)]
    sentences = [
        *_scenario_said(found.get("claims", [])),
        *_checks_said(found.get("checks", [])),
        *_gains(rows),
        *_runs_said(found.get("runs", [])),
        *_recording_said(found),
        *_not_measured(found),
        *(
            f"WRONG: {_label(row)} has {row['wrong']} wrong elements."
            for row in rows
            if row.get("wrong")
        ),
        *_conditions(found),
    ]
    blocks = [
        *_scenario(found),
        *_times(rows),
        *_turns(found.get("times", {})),
        *_generic("All figures", rows),
        *_checks(found.get("checks", [])),
        *_generic("Runs", found.get("runs", [])),
        *_generic("Costs", found.get("costs", [])),
        *_generic("Searches", found.get("searches", [])),
    ]
    made = {key: value for key, value in found.items() if key not in _PARTS}
    return Section(command, sentences, blocks, made)


def versus(what: str, ratio: float, low: float | None = None, high: float | None = None) -> str:
    """A sentence on `ratio`, Gloo's time / dlcpd's; it also says if nothing was gained."""
    between = f" ({low:.2f} to {high:.2f} in eight of ten)" if low is not None else ""
    if ratio >= WORTH:
        return f"{what}: {ratio:.2f} times as fast as Gloo{between}."
    if ratio > 1 / WORTH:
        return f"{what}: no gain, as fast as Gloo ({ratio:.2f} times){between}."
    return f"{what}: no gain, slower than Gloo: {ratio:.2f} times as fast{between}."


def _conditions(found: Row) -> Iterator[str]:
    """The conditions of the measurement."""
    parts = [found["conditions"]] if "conditions" in found else []
    if "hosts" in found:
        parts.append(f"{found['hosts']} hosts on one machine")
    if found.get("mode") == "bounded":
        parts.append(f"bounded ({percent(found['max_loss'])})")
    elif "mode" in found:
        parts.append(found["mode"])
    if found.get("injected_loss"):
        parts.append(f"INJECTED loss {percent(found['injected_loss'])}")
    if isinstance(found.get("seeds"), int):
        parts.append(f"seeds 1..{found['seeds']}")
    yield f"Measured by dlcpd {found.get('version', '?')}: {'; '.join(parts) or 'see below'}."


def _not_measured(found: Row) -> Iterator[str]:
    """Rows and runs without a measurement, with the reason. Claims say it themselves."""
    rows = [row for row in found.get("rows", []) if isinstance(row, dict)]
    for row in rows:
        if row.get("not_measured"):
            yield f"NOT MEASURED: {_label(row)}: {row['not_measured']}"
    for one in found.get("failed", []):
        labels = " ".join(str(value) for name, value in one.items() if name != "not_measured")
        yield f"NOT MEASURED: {labels}: {one['not_measured']}"


def _label(row: Row, names: Sequence[str] = (*_OF, *_SYSTEM)) -> str:
    values = [(name, row[name]) for name in names if row.get(name) not in (None, "")]
    return " ".join(size(value) if name == "size" else str(value) for name, value in values)


def _system(row: Row) -> str:
    return str(next((row[name] for name in _SYSTEM if name in row), ""))


def _colour(row: Row) -> str:
    return COLOURS.get(_system(row), "blue")


# --- gains -------------------------------------------------------------------------------------


def _gains(rows: Iterable[Row]) -> Iterator[str]:
    """Comparisons with Gloo in the same run, from rows that have them."""
    for row in rows:
        ratio, by_seed = row.get("ratio"), row.get("over_gloo")
        if isinstance(ratio, dict):
            yield versus(_label(row), ratio["p50"], ratio["p10"], ratio["p90"])
        elif by_seed and _system(row) != "gloo":
            yield versus(_label(row), median(by_seed))


def _runs_said(runs: Sequence[Row]) -> Iterator[str]:
    """Step times of the demo's trainings over Gloo's: medians over seeds."""
    by: dict[tuple[str, str], list[float]] = {}
    for run in runs:
        if run["step_seconds"] is not None:
            by.setdefault((run["task"], run["transport"]), []).append(run["step_seconds"])
    for (task, transport), took in by.items():
        if transport not in ("gloo", "reference") and (task, "gloo") in by:
            ratio = figure(partial(_medians, by[task, "gloo"], took))
            if ratio is not None:
                yield versus(f"a step of {task}, {transport}", ratio)


def _medians(reference: Sequence[float], measured: Sequence[float]) -> float:
    """Ratio of the medians. Raises: NotMeasured."""
    return quotient(median(reference), median(measured))


def _recording_said(found: Row) -> Iterator[str]:
    if found["command"] == "bench trace":
        times = found["times"]
        spread = attempt({"": "recording"}, partial(ratios, times["on"], times["off"]))
        if isinstance(spread, Gap):
            yield f"NOT MEASURED: the cost of a recording: {spread.reason}"
        else:
            yield f"A recording took {spread.p50:.3f} times the time without one."


# --- times -------------------------------------------------------------------------------------


def _times(rows: Sequence[Row]) -> Iterator[Block]:
    compared = [
        (_label(row, _OF), row["ratio"]) for row in rows if isinstance(row.get("ratio"), dict)
    ]
    if compared:
        yield ranges(
            "Times as fast as Gloo, pair by pair: 10th percentile, median, 90th; 1 is equal",
            "",
            [(label, r["p10"], r["p50"], r["p90"], "blue") for label, r in compared],
        ) | {"line": 1.0}
    timed = [row for row in rows if isinstance(row.get("time"), dict)]
    groups = [(name, list(some)) for name, some in groupby(timed, lambda r: _label(r, _OF))]
    for name, some in groups if len(groups) <= MAX_GROUPS else []:
        yield ranges(
            f"{name}: seconds, 10th percentile, median, 90th",
            "s",
            [
                (_system(r), r["time"]["p10"], r["time"]["p50"], r["time"]["p90"], _colour(r))
                for r in some
            ],
        )
        samples = {_system(row): row["samples"] for row in some if _numbers(row.get("samples"))}
        if samples:
            most = max(map(len, samples.values()))
            yield lines(
                f"{name}: milliseconds of each operation",
                " ms",
                "operation",
                {"operation": list(range(1, most + 1))}
                | {who: _filled([t * 1e3 for t in took], most) for who, took in samples.items()},
            )


def _turns(times: Row) -> Iterator[Block]:
    if times:
        yield ranges(
            "Seconds of a block: 10th percentile, median, 90th",
            "s",
            [(name, *spread(took), "blue") for name, took in times.items() if took],
        )


def _numbers(value: Any) -> bool:
    return (
        isinstance(value, list) and bool(value) and all(isinstance(v, int | float) for v in value)
    )


def _filled(values: list[float], count: int) -> list[float | None]:
    return [*values, *[None] * (count - len(values))]


# --- scenarios and verdicts --------------------------------------------------------------------


def _scenario(found: Row) -> Iterator[Block]:
    claims, data = found.get("claims", []), found.get("data")
    if claims:
        yield table(
            "The claims of the benchmark",
            ("", "", "figure", "", "limit"),
            [
                (
                    _verdict(one),
                    one["what"],
                    one["value"],
                    "<=" if one["at_most"] else ">=",
                    one["limit"],
                )
                for one in claims
            ],
        )
    samples = {name: took for name, took in data.items() if _numbers(took)} if data else {}
    if samples:
        yield ranges(
            "Seconds: 10th percentile, median, 90th",
            "s",
            [
                (name, *spread(took), "orange" if "gloo" in name else "blue")
                for name, took in samples.items()
            ],
        )
    if found.get("header"):
        yield table("Output of the benchmark", found["header"], found["rows"])


def _verdict(claim: Row) -> str:
    if claim["value"] is None:
        return WORDS
    return "holds" if claim["holds"] else "FALLS SHORT"


def _scenario_said(claims: Sequence[Row]) -> Iterator[str]:
    short = [one for one in claims if not one["holds"]]
    if claims:
        yield f"{len(claims) - len(short)} of {len(claims)} claims hold."
    for one in short:
        if one["value"] is None:
            yield f"NOT MEASURED: {one['what']}: {one['not_measured']}"
            continue
        word = "at most" if one["at_most"] else "at least"
        should = f"{word} {one['limit']:g}"
        value = show_beside(one["value"], one["limit"])
        yield f"FALLS SHORT: {one['what']} is {value}, and should be {should}."


def _checks(checks: Sequence[Row]) -> Iterator[Block]:
    if checks:
        header = ("promise", "what", "verdict", "seen")
        yield table(
            "Verdicts",
            header,
            [(one["promise"], one["what"], one["verdict"], one["detail"]) for one in checks],
        )


def _checks_said(checks: Sequence[Row]) -> Iterator[str]:
    broken = [one for one in checks if one["verdict"] == "BROKEN"]
    undecided = sum(one["verdict"] not in ("held", "BROKEN") for one in checks)
    for one in broken:
        yield f"BROKEN: {one['what']}: {one['detail']}"
    if checks and not broken:
        yield (
            "All promises held."
            if not undecided
            else f"No promise is broken; {undecided} of {len(checks)} were not judged."
        )


# --- anything else -----------------------------------------------------------------------------


def _generic(title: str, rows: Sequence[Row]) -> Iterator[Block]:
    """Rows with any keys, as a table; without samples, which are in charts."""
    if not rows:
        return
    names = [
        name
        for name in dict.fromkeys(name for row in rows for name in row)
        if name not in ("samples", "digests", "books")
    ]
    yield table(title, names, [[_cell(name, row.get(name)) for name in names] for row in rows])


def _cell(name: str, value: Any) -> Any:
    if isinstance(value, dict) and value.keys() >= {"p10", "p50", "p90"}:
        show = seconds if name == "time" else _short
        return f"{show(value['p50'])} ({show(value['p10'])}..{show(value['p90'])})"
    if isinstance(value, dict):
        return ", ".join(f"{key} {_short(item)}" for key, item in value.items()) or None
    if isinstance(value, list):
        return ", ".join(map(_short, value)) or None
    if name == "size" and isinstance(value, int):
        return size(value)
    if name in ("loss", "injected_loss") and isinstance(value, float):
        return percent(value)
    return value


def _short(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)
