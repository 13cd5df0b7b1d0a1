"""Writes docs/configuration.md from the definitions that the programs use.

`make configuration-reference` runs it. The meaning of a setting is the comment of its field, which
`dlcpctl config explain` reads too.
"""

import dataclasses
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from dlcp_client.environment import Environment
from dlcp_client.server.config import ServerConfig
from dlcpd.ctl import explain
from dlcpd.ctl.explain import Setting, comments
from dlcpd.daemon.config.effective import value_text
from dlcpd.daemon.config.tables import LocalPath

PAGE: Final = Path(__file__).with_name("configuration.md")
# Variables that the daemon reads; no dataclass lists them.
OTHERS: Final = (
    (
        "DLCPD_LOG",
        "lowest level that a daemon logs: debug, info, warning or error; overrides its file. A "
        "private daemon logs to the stderr of the training",
    ),
    (
        "DLCPD_DATA_PATH",
        'value of `data_path = "auto"`: "compiled", "numpy", or the path of a library '
        "([datapath.md](datapath.md))",
    ),
    (
        "DLCPD_TRANSFER",
        '"interpreted" runs the transfer layer from its source even where it was compiled '
        "([datapath.md](datapath.md))",
    ),
    (
        "DLCPD_BUILD",
        'for builds from a copy without git: "VERSION COMMIT", as `python3 dlcpd/build.py` prints',
    ),
    (
        "DLCPD_PROJECT_URL",
        "for builds that are published: the project's page at a forge, for the links of a package "
        "index and the homepage of packages",
    ),
    (
        "DLCPD_COUNT_CALLS",
        "if set, engines count their function calls for `dlcpctl bench all-reduce --account`; slow",
    ),
)
HEAD: Final = """\
# Configuration

All settings of `dlcpd --config FILE` and `dlcpd server --config FILE` (TOML), and all environment
variables; `make configuration-reference` writes this page. A daemon needs no file.
[tuning.md](tuning.md) names the few settings that are worth changing.

`dlcpctl config check FILE` tests a file, `dlcpctl config show FILE` prints the values in use, and
`dlcpctl config explain KEY` a row of this page with all allowed values.

"Equal on all hosts of a job": the daemon refuses peers with another value.
"""
SERVER: Final = """
## `dlcpd server`: [server]

The file of a [parameter server](parameter-server.md) has only this table.
"""
VARIABLES: Final = """
## Environment

The processes of a training read them when a session starts. `dlcpctl` reads `DLCPD_SOCKET` too.
"""


def page() -> str:
    """The whole file."""
    parts = [HEAD]
    for table, found in groupby(explain.settings(), lambda setting: setting.table):
        parts += [f"\n## [{table}]\n\n{_sentence(table)}\n\n", *_daemon_rows(found)]
        if table == "network":
            parts += ["\nEach of `paths` is a table:\n\n", *_path_rows()]
    parts += [SERVER, "\n", *_server_rows(), VARIABLES, "\n", *_variable_rows()]
    return "".join(parts)


def _sentence(table: str) -> str:
    """What a table is for, with links to pages."""
    return re.sub(r"docs/([\w-]+\.md)", r"[\1](\1)", explain.about(table))


def _daemon_rows(found: Iterable[Setting]) -> Iterator[str]:
    yield "| key | default | meaning; *range* |\n|---|---|---|\n"
    for one in found:
        reason = f"; default: {one.reason}" if one.reason else ""
        # A bare type says no more than the default does.
        allowed = f"; *{one.allowed}*" if re.search(r'\d\.\.|"', one.allowed) else ""
        meaning = f"{one.meaning.rstrip('.')}{reason}{allowed}"
        yield _row(f"`{one.key}`", f"`{one.default}`", meaning)


def _path_rows() -> Iterator[str]:
    yield "| key | default | meaning |\n|---|---|---|\n"
    yield _row(
        "`address`",
        f'`"{LocalPath().address}"`',
        comments(LocalPath)["address"],
    )
    yield _row("`port`", f"`{LocalPath().port}`", comments(LocalPath)["port"])


def _server_rows() -> Iterator[str]:
    yield "| key | default | meaning |\n|---|---|---|\n"
    meanings = comments(ServerConfig)
    for field in dataclasses.fields(ServerConfig):
        yield _row(f"`{field.name}`", _default(field), meanings[field.name])


def _default(field: "dataclasses.Field[Any]") -> str:
    if field.default is dataclasses.MISSING:
        return "must be given"
    value = field.default
    return f"`{value_text(list(value) if isinstance(value, tuple) else value)}`"


def _variable_rows() -> Iterator[str]:
    yield "| variable | meaning |\n|---|---|\n"
    told = [text.partition(": ") for text in comments(Environment).values()]
    found = [(name, meaning) for name, _, meaning in told if name.isupper()]
    ours = [row for row in found if row[0].startswith("DLCPD_")]
    for name, meaning in [*ours, *OTHERS, *(row for row in found if row not in ours)]:
        yield _row(f"`{name}`", meaning)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
