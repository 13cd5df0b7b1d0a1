"""Explanations of settings, read from the dataclasses that define the configuration."""

import ast
import dataclasses
import difflib
import inspect
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from dlcpd.contract.errors import BadConfig
from dlcpd.daemon.config.effective import value_text
from dlcpd.daemon.config.tables import Config, rows_of

_NAMES: Final = {int: "integer", float: "number", str: "text", bool: "true or false", tuple: "list"}


@dataclass(frozen=True, slots=True)
class Setting:
    """One key of one table."""

    table: str
    key: str
    default: str  # as TOML writes it
    allowed: str
    meaning: str  # its comment
    reason: str  # for the default; "" = none

    def text(self) -> str:
        """For people: default, allowed values, meaning."""
        lines = [f"[{self.table}] {self.key} = {self.default}", f"  allowed: {self.allowed}"]
        lines += [f"  {text}" for text in (self.meaning, self.reason) if text]
        return "\n".join(lines)


def settings() -> Iterator[Setting]:
    """All settings, table by table."""
    for table in dataclasses.fields(Config):
        example: Any = getattr(Config(), table.name)
        meanings = comments(type(example))
        for field in rows_of(type(example)):
            meaning, _, reason = meanings[field.name].partition("; default: ")
            yield Setting(
                table.name,
                field.name,
                value_text(_plain(field.default)),
                _allowed(field),
                meaning,
                reason,
            )


def about(table: str) -> str:
    """What a table is for: the docstring of its dataclass, without the table's name."""
    kind = type(getattr(Config(), table))
    text = " ".join((inspect.getdoc(kind) or "").split()).partition("]: ")[2]
    return text[0].upper() + text[1:]


def _plain(value: Any) -> Any:
    """`value`, with dataclasses in a tuple as dicts."""
    if isinstance(value, tuple):
        return [
            dataclasses.asdict(row) if dataclasses.is_dataclass(row) else row  # type: ignore[arg-type]
            for row in value
        ]
    return value


def _allowed(field: "dataclasses.Field[Any]") -> str:
    rule = field.metadata
    kind = rule["type"]
    if "choices" in rule:
        return ", ".join(f'"{choice}"' for choice in rule["choices"])
    if "low" in rule:
        return f"{_NAMES[kind]} {rule['low']}..{rule['high']}"
    if kind is str and "high" in rule:
        return f"text of at most {rule['high']} characters"
    return _NAMES.get(kind, "text or integer")


def comments(kind: type) -> dict[str, str]:
    """The comments beside and above each field of a class, those of its base classes too, as one
    line per field."""
    found = dict[str, str]()
    for part in reversed(kind.__mro__):
        if part is kind or "__dataclass_fields__" in vars(part):
            found |= _own_comments(part)
    return found


def _own_comments(kind: type) -> dict[str, str]:
    source = inspect.cleandoc(inspect.getsource(kind))
    lines = source.splitlines()
    [made] = ast.parse(source).body
    assert isinstance(made, ast.ClassDef)  # noqa: S101  # of a class
    return {
        node.target.id: _comment(lines, node.lineno - 1, node.end_lineno or node.lineno)
        for node in made.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }


def _comment(lines: list[str], first: int, after: int) -> str:
    """The comment of the field on lines first..after: above it, then beside it."""
    above = list[str]()
    while first and lines[first - 1].lstrip().startswith("#"):
        first -= 1
        above.insert(0, lines[first].strip().lstrip("# "))
    beside = [line.partition("  # ")[2].strip() for line in lines[first + len(above) : after]]
    return " ".join(text for text in (*above, *beside) if text and text != "fmt: skip")


def matching(key: str) -> list[Setting]:
    """The settings that `key` names: "network.entropy", "entropy", or a whole table, "network".

    Raises: BadConfig with the nearest names.
    """
    known = list(settings())
    wanted = key.strip("[]").replace("] ", ".")
    found = [s for s in known if wanted in (s.table, s.key, f"{s.table}.{s.key}")]
    if not found:
        names = {name for s in known for name in (s.key, f"{s.table}.{s.key}", s.table)}
        near = difflib.get_close_matches(wanted, sorted(names), 3)
        guess = f"; did you mean {' or '.join(near)}?" if near else "."
        tables = ", ".join(dict.fromkeys(s.table for s in known))
        raise BadConfig(
            f"there is no setting {key!r}{guess} `dlcpctl config explain` lists all settings, "
            f"and `dlcpctl config explain TABLE` those of a table ({tables})"
        )
    return found
