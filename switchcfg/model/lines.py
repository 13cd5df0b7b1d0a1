"""Command lines with the sections around them, and the settings that they leave. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

Path = tuple[str, ...]


def paths(text: str) -> Iterator[Path]:
    """Each line, with the sections around it; comments are left out."""
    sections: list[tuple[int, str]] = []
    for raw in text.splitlines():
        line = " ".join(raw.split())
        if not line or line.startswith("!"):
            continue
        column = len(raw) - len(raw.lstrip())
        while sections and sections[-1][0] >= column:
            sections.pop()
        yield (*(each for _, each in sections), line)
        sections.append((column, line))


@dataclass(slots=True)
class Section:
    """The settings of a section: what is set -> how; and its inner sections."""

    values: dict[str, str] = field(default_factory=dict)
    inner: dict[str, "Section"] = field(default_factory=dict)
    unknown: dict[str, None] = field(default_factory=dict)  # lines that nothing understands

    def under(self, name: str) -> "Section":
        """An inner section, made if it is not there."""
        return self.inner.setdefault(name, Section())


@dataclass(frozen=True, slots=True)
class Command:
    """A line that sets one thing."""

    shape: re.Pattern[str]  # of the line without `no`; its groups are in the key and the value
    key: str  # what it sets, with {0} for the first group
    value: str = "{0}"  # how


def apply(section: Section, line: str, commands: Sequence[Command]) -> bool:
    """Let a line, or its `no` or `default`, change a section; False: no command is like it."""
    head, _, rest = line.partition(" ")
    undo = head in ("no", "default")
    for command in commands:
        if hit := command.shape.fullmatch(rest if undo else line):
            groups = [group or "" for group in hit.groups()]
            key = command.key.format(*groups)
            if not undo:
                section.values[key] = command.value.format(*groups)
            else:
                section.values.pop(key, None)
            return True
    return False


def said(values: Mapping[str, str], *prefixes: str) -> str:
    """The settings whose names begin so, as text."""
    found = sorted((k, v) for k, v in values.items() if k.startswith(prefixes))
    return ", ".join(f"{key} {value}".rstrip() for key, value in found)
