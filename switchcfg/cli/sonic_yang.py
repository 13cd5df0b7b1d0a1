"""Checks a planned CONFIG_DB against SONiC's YANG models. Needs pyang and yanglint.

The user supplies the models: a switch has those of its own release in /usr/local/yang-models. pyang
reads from them the lists and keys of tables. yanglint validates; it is part of libyang, which SONiC
itself uses.
"""

import re
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final
from xml.sax.saxutils import escape

from dlcpd.ipc.scratch import Scratch
from switchcfg.errors import CannotExpress

TIMEOUT: Final = 120  # seconds; a hundred models take a few
MAX_MODELS: Final = 1 << 26  # characters of all files together
Tables = Mapping[str, Mapping[str, Mapping[str, Any]]]


def check(tables: Tables, models: Path) -> list[str]:
    """Violations of the models by these tables of CONFIG_DB, and tables without a model.

    Raises: CannotExpress if the tools or the models are missing, or the files cannot be read.
    """
    lint = shutil.which("yanglint")
    if lint is None:
        raise CannotExpress(
            "--yang: the command yanglint is missing: install it, with Debian's libyang2-tools "
            "for example"
        )
    found = _containers(models, tables)
    problems = [f"{table}: no model has this table" for table in tables if table not in found]
    text = ""
    for name, container in found.items():
        lines, wrong = _table(container, tables[name])
        problems += wrong
        module = container.i_module
        space = escape(module.search_one("namespace").arg, {'"': "&quot;"})
        text += f'<{module.arg} xmlns="{space}">\n{lines}</{module.arg}>\n'
    files = sorted({str(each.i_module.pos.ref) for each in found.values()})
    return problems + (_linted(lint, models, files, text) if files else [])


def _containers(models: Path, tables: Tables) -> dict[str, Any]:
    """Table -> its container, with all groupings expanded."""
    try:
        from pyang import context, repository  # noqa: PLC0415  # an extra
    except ImportError as exc:
        raise CannotExpress(f"--yang: {exc}; `pip install 'dlcpd[yang]'`") from exc
    every = _read(models)
    world = context.Context(repository.FileRepository(str(models), use_env=False))
    modules = [
        world.add_module(name, text)
        for name, text in every.items()
        if any(re.search(rf"\bcontainer\s+{re.escape(table)}\s*\{{", text) for table in tables)
    ]
    world.validate()
    found: dict[str, Any] = {}
    for module in filter(None, modules):
        top = module.search_one("container", module.arg)
        for child in getattr(top, "i_children", ()):
            if child.keyword == "container" and child.arg in tables:
                found[child.arg] = child
    return found


def _read(models: Path) -> dict[str, str]:
    try:
        every = {str(file): file.read_text("utf-8") for file in sorted(models.glob("*.yang"))}
    except (OSError, UnicodeDecodeError) as exc:
        raise CannotExpress(f"--yang {models}: cannot be read: {exc}") from exc
    size = sum(map(len, every.values()))
    if not 0 < size <= MAX_MODELS:
        raise CannotExpress(
            f"--yang {models}: has {len(every)} files *.yang with {size} characters in all: name "
            "a folder of YANG models"
        )
    return every


def _table(container: Any, rows: Mapping[str, Mapping[str, Any]]) -> tuple[str, list[str]]:
    """(a table as XML, problems of keys and fields that the model lacks)."""
    out, problems = "", []
    for key, fields in rows.items():
        where = _place(container, key)
        if where is None:
            problems.append(f"{container.arg}|{key}: the model has no such key")
            continue
        node, keys = where
        try:
            inner = [*keys, *(line for item in fields.items() for line in _field(node, *item))]
        except KeyError as exc:
            problems.append(f"{container.arg}|{key}: the model has no field {exc}")
            continue
        out += f"<{node.arg}>{''.join(inner)}</{node.arg}>\n"
    return f"<{container.arg}>\n{out}</{container.arg}>\n", problems


def _place(container: Any, key: str) -> tuple[Any, list[str]] | None:
    """(container or list of a key of CONFIG_DB, its key leaves); None: the model has none."""
    parts = key.split("|")
    for child in container.i_children:
        if child.keyword == "container" and child.arg == key:
            return child, []
        if child.keyword == "list" and len(child.i_key) == len(parts):
            leaves = zip(child.i_key, parts, strict=True)
            return child, [_leaf(leaf.arg, part) for leaf, part in leaves]
    return None


def _field(node: Any, name: str, value: Any) -> Iterator[str]:
    """A field as leaves. Raises: KeyError."""
    for child in node.i_children:
        if child.arg == name and child.keyword in {"leaf", "leaf-list"}:
            listed = child.keyword == "leaf-list"
            values = value if isinstance(value, list) else value.split(",") if listed else [value]
            yield from (_leaf(name, each) for each in values)
            return
    # In maps, fields are entries of a list: DSCP_TO_TC_MAP|name has a field for each code point.
    for child in node.i_children:
        if child.keyword == "list" and len(child.i_key) == 1:
            [key] = child.i_key
            [other] = [leaf for leaf in child.i_children if leaf is not key]
            yield f"<{child.arg}>{_leaf(key.arg, name)}{_leaf(other.arg, value)}</{child.arg}>"
            return
    raise KeyError(name)


def _leaf(name: str, value: str) -> str:
    return f"<{name}>{escape(str(value))}</{name}>"


def _linted(lint: str, models: Path, files: Sequence[str], text: str) -> list[str]:
    with Scratch("switchcfg-") as folder:
        data = Path(folder, "config.xml")
        data.write_text(text, encoding="utf-8")
        # -i twice: implement imported models, too, because models refer to each other's data.
        argv = (lint, "-i", "-i", "-t", "config", "-p", str(models), *files, str(data))
        try:
            done = subprocess.run(
                argv, capture_output=True, text=True, timeout=TIMEOUT, check=False
            )
        except subprocess.TimeoutExpired as exc:
            raise CannotExpress(f"--yang: yanglint did not finish within {TIMEOUT} s") from exc
    if done.returncode == 0:
        return []
    errors = _messages(done.stderr + done.stdout)
    return errors or [f"yanglint: exit code {done.returncode}"]


def _messages(said: str) -> list[str]:
    """The errors of yanglint, each with all of its lines as one."""
    found: list[str] = []
    for line in said.splitlines():
        if re.match(r"libyang(\[\d\])?\W|YANGLINT\W", line) or not found:
            found.append(line)
        else:
            found[-1] += f" {line.strip()}"
    heads = [re.sub(r"^libyang err *: *", "", each) for each in found if "err" in each.lower()]
    return [*dict.fromkeys(heads)]
