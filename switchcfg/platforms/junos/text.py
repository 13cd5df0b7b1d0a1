"""Normalises Junos `set` lines to one spelling per setting. Pure.

Reads `show configuration | display set`, and hand-written variants: lists in brackets, several
settings of a class in one line, names of code points.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from typing import Final

from switchcfg.errors import BadState
from switchcfg.plan.account import Reading
from switchcfg.plan.masking import masked
from switchcfg.plan.state import Place, State
from switchcfg.platforms.grammar import MAX_TEXT, Grammar
from switchcfg.platforms.junos.known import COS
from switchcfg.platforms.rule import SEPARATOR

OTHER: Final = "interface other"  # other lines of an interface: read, never written
NOT_READ: Final = "not read"  # statements that deactivate lines, and groups that are applied
DEEPEST: Final = 16  # words of the hierarchy around a line; class-of-service has 10
ASK: Final = "`show configuration | display set`"
# Other lines of such an output: statements about lines, a prompt, the routing engine's name.
_ABOUT: Final = re.compile(
    r"(deactivate|activate|protect|unprotect|annotate|edit|top) .*|[\w.-]+@[\w.-]+[>#%].*|"
    r"\{\w+:\w+\}|\[edit.*\]|#.*|/\*.*"
)
_DEACTIVATED: Final = re.compile(r"deactivate (.+)")
_APPLIED: Final = re.compile(r"set (.+ )?apply-groups (\S+)")
_GROUP: Final = re.compile(r"set groups (\S+) ((\S+) .+)")
_INTERFACE: Final = re.compile(r"set class-of-service interfaces (\S+) (.+)")
_BARE: Final = re.compile(r"unit \S+")
_LIST: Final = re.compile(r"(.*) \[ (.*) \]")
_CLASS: Final = re.compile(r"(set class-of-service forwarding-classes class \S+) (.+)")
_QUEUE: Final = re.compile(r"set class-of-service forwarding-classes queue (\d+) (\S+)(?: (.*))?")
_POINTS: Final = re.compile(
    r"(set class-of-service classifiers dscp(?:-ipv6)? .* code-points) ([\w.-]+)"
)
_ALIAS: Final = re.compile(
    r"set class-of-service code-point-aliases dscp(?:-ipv6)? (\S+) ([01]{6})"
)
_BITS: Final = re.compile(r"[01]{6}")
# Junos' built-in names of code points (RFC 2474, 2597, 3246).
NAMES: Final = {
    "be": 0, "ef": 46, "nc1": 48, "nc2": 56,
    **{f"cs{each}": 8 * each for each in range(1, 8)},
    **{f"af{each}{rank}": 8 * each + 2 * rank for each in range(1, 5) for rank in range(1, 4)},
}  # fmt: skip


def read(text: str, grammar: Grammar) -> State:
    """The values of all lines that match a rule, and the other lines of interfaces (kind OTHER).
    Deactivated lines have no value; they, and applied groups, are listed as kind NOT_READ.

    Raises: BadState for text that is not output of Junos.
    """
    if len(text) > MAX_TEXT:
        raise BadState(f"configuration of {len(text)} characters, at most {MAX_TEXT}")
    raw = [re.sub(r'"(\S+)"', r"\1", line.strip()) for line in text.splitlines()]
    inactive = {found[1] for line in raw if (found := _DEACTIVATED.fullmatch(line))}
    lines = list(_lines(raw, inactive))
    names = {name: f"{point:06b}" for name, point in NAMES.items()}
    names |= {found[1]: found[2] for line in lines if (found := _ALIAS.fullmatch(line))}
    lines = [_with_bits(line, names) for line in lines]
    read = grammar.read("".join(f"{line}\n" for line in lines))
    out = dict(read)
    for line in lines:
        found = _INTERFACE.fullmatch(line)
        if not found or any(rule.match((line,)) for rule in grammar.rules):
            continue
        if not _BARE.fullmatch(found[2]):  # an empty entry
            out[Place(OTHER, f"{found[1]}{SEPARATOR}{found[2]}", "")] = ""
    out |= {Place(NOT_READ, what, ""): "" for what in _not_read(raw, lines, inactive, grammar)}
    return Reading.of(read, out)


def _not_read(
    raw: Sequence[str], lines: Sequence[str], inactive: Collection[str], grammar: Grammar
) -> Iterator[str]:
    """The `deactivate` statements that affect class-of-service lines, and the applied groups with
    lines near QoS."""
    matter: dict[str, None] = {}
    for line in _lines(raw, ()) if inactive else ():
        if (paths := [each for each in _heads(line) if each in inactive]) and (
            _INTERFACE.fullmatch(line) or any(rule.match((line,)) for rule in grammar.rules)
        ):
            matter |= dict.fromkeys(each for each in paths if each.startswith(COS))
    yield from (f"deactivate {path}" for path in matter)
    applied = {found[2] for line in lines if (found := _APPLIED.fullmatch(line))}
    groups: dict[str, None] = {}
    for found in filter(None, map(_GROUP.fullmatch, lines)):
        # A pattern such as <*> may stand for any part of the configuration.
        near = found[3].startswith("<") or grammar.matters((f"set {found[2]}",))
        if found[1] in applied and near:
            groups[f"groups {found[1]} {found[3]}"] = None
    yield from groups


def _heads(line: str) -> Iterator[str]:
    """The hierarchy levels around a line, and the line itself, as `deactivate` names them."""
    words = line.split(" ", DEEPEST)
    return (" ".join(words[1:end]) for end in range(2, len(words) + 1))


def _lines(raw: Sequence[str], inactive: Collection[str]) -> Iterator[str]:
    for number, line in enumerate(raw, start=1):
        if line.startswith("set "):
            if not any(head in inactive for head in _heads(line)):
                yield from _settings(line)
        elif line and not _ABOUT.fullmatch(line):
            shown = masked(line)
            shown = shown if len(shown) <= 60 else f"{shown[:60]}..."
            raise BadState(f"line {number} is not a line of {ASK} on Junos: {shown!r}")


def _settings(line: str) -> Iterator[str]:
    """One line per setting."""
    if found := _LIST.fullmatch(line):
        for each in found[2].split():
            yield from _settings(f"{found[1]} {each}")
    elif found := _QUEUE.fullmatch(line):  # the older form
        rest = f" {found[3]}" if found[3] else ""
        yield from _settings(
            f"set class-of-service forwarding-classes class {found[2]} queue-num {found[1]}{rest}"
        )
    elif found := _CLASS.fullmatch(line):
        words = iter(found[2].split())
        for word in words:
            yield (
                f"{found[1]} {word}"
                if word == "no-loss"
                else f"{found[1]} {word} {next(words, '')}"
            )
    else:
        yield line


def _with_bits(line: str, names: dict[str, str]) -> str:
    found = _POINTS.fullmatch(line)
    if not found or _BITS.fullmatch(found[2]):
        return line
    return f"{found[1]} {names.get(found[2], found[2])}"
