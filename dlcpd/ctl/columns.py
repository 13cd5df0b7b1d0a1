"""Rows and columns of a table that the user chose: `--job`, `--host`, `--columns`."""

import argparse
from collections.abc import Iterable, Sequence
from typing import Any

from dlcpd.contract.errors import BadConfig
from dlcpd.contract.job_name import means

Rows = list[list[Any]]


def add_choice(made: argparse.ArgumentParser) -> None:
    """Their options."""
    made.add_argument("--job", default="", metavar="NAME", help="only rows of this job")
    made.add_argument("--host", default="", metavar="NAME", help="only rows of peers on this host")
    made.add_argument(
        "--columns", default="", metavar="A,B", help='only these columns, such as "rank,lost"'
    )


def chosen(
    header: Sequence[str], rows: Iterable[list[Any]], options: argparse.Namespace
) -> tuple[list[str], Rows]:
    """The chosen columns of the chosen rows. Raises: BadConfig for a column that there is not."""
    job, host = header.index("job"), header.index("host")
    kept = [
        row
        for row in rows
        if (not options.job or means(options.job, row[job])) and options.host in ("", row[host])
    ]
    if not options.columns:
        return list(header), kept
    at = [column(header, name.strip(), "--columns") for name in options.columns.split(",")]
    return [header[number] for number in at], [[row[number] for number in at] for row in kept]


def column(header: Sequence[str], name: str, option: str) -> int:
    """The place of a column; its unit may be left out. Raises: BadConfig."""
    for number, title in enumerate(header):
        if name in (title, title.partition("(")[0]):
            return number
    raise BadConfig(f"{option} {name}: the columns are {', '.join(header)}")
