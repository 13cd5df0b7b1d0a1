"""Writes docs/performance.md from performance.json: one section per measured question.

`make configuration-reference` runs it. To add or replace a measurement, run its command, put its
figures into the JSON with the date, and run this.
"""

import csv
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import fill
from typing import Any, Final

PAGE: Final = Path(__file__).with_name("performance.md")
MEASURED: Final = PAGE.with_suffix(".json")
SWEPT: Final = PAGE.with_name("map.csv")  # of `dlcpctl bench sweep --csv`
UNCLEAR: Final = "unclear"  # as the sweep writes it
MANY: Final = 10.0  # a ratio from here on has no decimals
WIDTH: Final = 100
HEAD: Final = """\
# Performance

Medians of the slowest rank, p10..p90 in brackets; dlcpd and Gloo ran alternately. "Ratio" is Gloo's
time divided by dlcpd's: above 1, dlcpd is faster. † marks figures of an earlier version.
`make configuration-reference` writes this page from `performance.json`.

**Machine**, unless a section names another: virtual, 2 cores shared by all hosts of a run, Linux
6.18, Python 3.11, torch 2.13 CPU, 32 MB UDP buffers, 1,408 B segments.

**Limits.** Absolute times vary by a factor of two with the load of the machine: compare ratios, and
run the commands on your hosts. RDMA and links above 1 Gb/s were not measured; [cuda.md](cuda.md)
has a GPU. Of the sections before [checksums](#what-do-checksums-and-encryption-cost), those of
2026-11-26 and earlier ran without checksums.
"""


def page() -> str:
    """The whole page."""
    return HEAD + "".join(map(_section, json.loads(MEASURED.read_text())))


def _section(found: dict[str, Any]) -> str:
    return "".join(f"\n{part}\n" for part in _parts(found))


def _parts(found: dict[str, Any]) -> Iterator[str]:
    yield f"## {found['question']}"
    yield _filled(found["verdict"])
    if found["command"]:
        yield "\n".join(("```sh", *found["command"], "```"))
    machine = f"Machine: {found['machine']}." if "machine" in found else ""
    yield _filled(f"{found['setup']} {machine} ({found['date']})")
    if "map" in found:
        yield _swept("ratio_p50", lambda each: each["faster"] != UNCLEAR)
        yield _filled(found["against"])
        yield _swept("tcp_ratio_p50", lambda each: each["fastest"] != UNCLEAR)
    else:
        yield _table(found["columns"], found["rows"])
    yield _filled(f"Limit: {found['limit']}")


def _swept(ratio: str, beyond_chance: Callable[[dict[str, str]], bool]) -> str:
    """The table of a column of the sweep: a row per round trip, a column per loss, in each cell a
    ratio per length of bursts; bold where it is beyond chance."""
    with SWEPT.open(newline="") as file:
        found = list(csv.DictReader(file))
    cells: dict[float, dict[float, list[str]]] = {}
    for each in found:
        value = float(each[ratio])
        told = f"{value:.2f}" if value < MANY else f"{value:.0f}"
        told = f"**{told}**" if beyond_chance(each) else told
        of_row = cells.setdefault(float(each["round_trip_s"]), {})
        of_row.setdefault(float(each["loss"]), []).append(told)
    losses = next(iter(cells.values()))
    columns = ["round trip", *(f"{loss * 100:.4g} % lost" for loss in losses)]
    rows = [
        [f"{round_trip * 1e3:g} ms", *("; ".join(each) for each in row.values())]
        for round_trip, row in cells.items()
    ]
    return _table(columns, rows)


def _table(columns: list[str], rows: list[list[str]]) -> str:
    return "\n".join((_row(columns), f"|{'---|' * len(columns)}", *map(_row, rows)))


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |".replace("|  |", "| |").replace("|  |", "| |")


def _filled(text: str) -> str:
    return fill(" ".join(text.split()), WIDTH, break_long_words=False, break_on_hyphens=False)


if __name__ == "__main__":
    PAGE.write_text(page())
