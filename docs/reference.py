"""Writes docs/configuration.md from the definitions that programs use.

Run by `make configuration-reference`. What a setting means is read from the comment beside its
field, as `dlcpctl config explain` does.
"""

import dataclasses
import inspect
import re
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from dlcp_client.environment import Environment
from dlcp_client.server.config import ServerConfig
from dlcpd.ctl import explain
from dlcpd.ctl.explain import Setting, comments
from dlcpd.daemon.config import Config, LocalPath
from dlcpd.daemon.effective import value_text

PAGE: Final = Path(__file__).with_name("configuration.md")
# Variables that others than the client read, where no dataclass lists them.
OTHERS: Final = (
    (
        "DLCPD_LOG",
        "the least severe lines that a daemon logs, whatever its file says: debug, info, warning "
        "or error; a private one logs to the stderr of the training",
    ),
    (
        "DLCPD_DATA_PATH",
        'what `data_path = "auto"` means: "compiled", "numpy", or the path of a library '
        "([datapath.md](datapath.md))",
    ),
    (
        "DLCPD_COUNT_CALLS",
        "an engine that finds it counts its calls of functions, for "
        "`dlcpctl bench all-reduce --account`; slow",
    ),
)
HEAD: Final = """\
# Configuration

Every setting of `dlcpd --config FILE` and of `dlcpd server --config FILE`, and every variable of
the environment. Written by `make configuration-reference` from the definitions that the programs
use; `dlcpctl config explain KEY` says the same. Nothing has to be set: a daemon without a file has
these defaults, and so has the private daemon of a training. Which few are worth a thought,
[tuning.md](tuning.md) says.

The file is TOML. A key or table that is not listed here is refused, with the nearest name.
`dlcpctl config check FILE` says whether a file is valid, `dlcpctl config show FILE` what it comes
to on this host. "Equal on all hosts" means that peers with another value are refused by name.
"""
SERVER: Final = """
## `dlcpd server`: [server]

The file of a [parameter server](parameter-server.md) has this one table.
"""
VARIABLES: Final = """
## Environment

Read when a session begins, in the processes of a training; `dlcpctl` reads `DLCPD_SOCKET`, too.
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
    """What the docstring of a table's dataclass says after the table's name."""
    kind = type(getattr(Config(), table))
    text = " ".join((inspect.getdoc(kind) or "").split()).partition("]: ")[2]
    text = re.sub(r"docs/([\w-]+\.md)", r"[\1](\1)", text)
    return text[0].upper() + text[1:]


def _daemon_rows(found: Iterable[Setting]) -> Iterator[str]:
    yield "| key | default | what it means; *what is allowed* |\n|---|---|---|\n"
    for one in found:
        reason = f"; of an engine: {one.reason}" if one.reason else ""
        meaning = f"{one.meaning.rstrip('.')}{reason}; *{one.allowed}*"
        yield _row(f"`{one.key}`", f"`{one.default}`", meaning)


def _path_rows() -> Iterator[str]:
    yield "| key | default | what it means |\n|---|---|---|\n"
    yield _row(
        "`address`",
        f'`"{LocalPath().address}"`',
        'a local IP address; "auto" = that of the default route, or loopback without one',
    )
    yield _row("`port`", f"`{LocalPath().port}`", comments(LocalPath)["port"])


def _server_rows() -> Iterator[str]:
    yield "| key | default | what it means |\n|---|---|---|\n"
    meanings = comments(ServerConfig)
    for field in dataclasses.fields(ServerConfig):
        yield _row(f"`{field.name}`", _default(field), meanings[field.name])


def _default(field: "dataclasses.Field[Any]") -> str:
    if field.default is dataclasses.MISSING:
        return "must be given"
    value = field.default
    return f"`{value_text(list(value) if isinstance(value, tuple) else value)}`"


def _variable_rows() -> Iterator[str]:
    yield "| variable | what it means |\n|---|---|\n"
    told = [text.partition(": ") for text in comments(Environment).values()]
    found = [(name, meaning) for name, _, meaning in told if name.isupper()]
    ours = [row for row in found if row[0].startswith("DLCPD_")]
    for name, meaning in [*ours, *OTHERS, *(row for row in found if row not in ours)]:
        yield _row(f"`{name}`", meaning)


def _row(*cells: str) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |\n"


if __name__ == "__main__":
    PAGE.write_text(page())
