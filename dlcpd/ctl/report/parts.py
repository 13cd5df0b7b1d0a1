"""Parts of a report: plain values, which report.js draws and tests compare. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Row = Mapping[str, Any]
Block = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Section:
    """The section of one input. `sentences`: its summary."""

    title: str
    sentences: Sequence[str]
    blocks: Sequence[Block]
    made: Mapping[str, Any] = field(default_factory=dict)  # how the input was made


def table(title: str, header: Sequence[str], rows: Iterable[Sequence[Any]]) -> Block:
    """Cells are text, numbers, or None for unknown values."""
    return {"kind": "table", "title": title, "header": list(header), "rows": [*map(list, rows)]}


def ranges(title: str, unit: str, rows: Iterable[tuple[str, float, float, float, str]]) -> Block:
    """Rows of label, low, middle, high, colour; all from 0 on one scale."""
    keys = ("label", "low", "mid", "high", "colour")
    made = [dict(zip(keys, row, strict=True)) for row in rows]
    return {"kind": "ranges", "title": title, "unit": unit, "rows": made}


def lines(title: str, unit: str, x: str, series: Mapping[str, Sequence[Any]]) -> Block:
    """The first of `series` has the x values of the others."""
    names = list(series)
    return {
        "kind": "lines",
        "title": title,
        "unit": unit,
        "x": x,
        "labels": names[1:],
        "columns": [list(series[name]) for name in names],
    }


def spread(samples: Sequence[float]) -> tuple[float, float, float]:
    """10th percentile, median, 90th percentile."""
    low, middle, high = np.percentile(samples, [10, 50, 90])
    return float(low), float(middle), float(high)


def percent(share: float) -> str:
    """0.0123 -> "1.23 %"."""
    return f"{share * 100:.3g} %"


def size(count: float) -> str:
    """Bytes as text, in powers of 1024."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit:
            return f"{count / unit:.4g} {name}"
    return f"{count:.0f} B"


def seconds(value: float) -> str:
    """Seconds as text, with a fitting unit."""
    for unit, name in ((1.0, "s"), (1e-3, "ms")):
        if value >= unit:
            return f"{value / unit:.3g} {name}"
    return f"{value * 1e6:.3g} us"
