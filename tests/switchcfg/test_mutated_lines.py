"""A line that changes keeps its meaning, is read as something else, or is refused: never skipped.

A mutation changes one line of an object that a plan touches: a word, a unit, a number, the order of
words, an unknown keyword. It is silent if the plan is made as if the line were not there.
"""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import getitem
from typing import Any, Final

import pytest

from switchcfg.errors import SwitchcfgError
from switchcfg.intent.intent import Device, Intent
from switchcfg.plan.account import UNREAD
from switchcfg.plan.plan import plan
from switchcfg.plan.state import State
from switchcfg.platforms.junos.known import ENTRY
from switchcfg.platforms.known import PLATFORMS
from tests.switchcfg import test_junos, test_openconfig
from tests.switchcfg.accounted import wanted
from tests.switchcfg.stock import sonic_roce, sonic_text
from tests.switchcfg.test_accounted_lines import EOS, REPLACES, TAKES, nxos
from tests.switchcfg.test_captured import captured
from tests.switchcfg.test_linux import INTENT, SWITCH, brought

WORDS: Final = (
    "segments", "kbytes", "shape", "percent", "ecn", "frobnicate", "7", "0", "cos", "dscp", "input",
    "output", "rx", "24-26", "3,4", "both", "default", "on", "off", "priority", "0x3", "true", "|",
)  # fmt: skip
Lines = list[str]


def _other_word(rng: random.Random, words: Lines) -> Lines:
    at = rng.randrange(len(words))
    return [*words[:at], rng.choice(WORDS), *words[at + 1 :]]


def _added_word(rng: random.Random, words: Lines) -> Lines:
    at = rng.randrange(len(words) + 1)
    return [*words[:at], rng.choice(WORDS), *words[at:]]


def _fewer_words(rng: random.Random, words: Lines) -> Lines:
    at = rng.randrange(len(words))
    return [*words[:at], *words[at + 1 :]]


def _other_order(rng: random.Random, words: Lines) -> Lines:
    if len(words) < 2:
        return words
    at = rng.randrange(len(words) - 1)
    return [*words[:at], words[at + 1], words[at], *words[at + 2 :]]


def _other_spelling(rng: random.Random, words: Lines) -> Lines:
    at = rng.randrange(len(words))
    word = words[at]
    spelled = rng.choice([word.upper(), word[:-1] or word, f"{word}s", f"{word}9", word * 2])
    return [*words[:at], spelled, *words[at + 1 :]]


MUTATIONS: Final = (_other_word, _added_word, _fewer_words, _other_order, _other_spelling)


@dataclass(frozen=True, slots=True)
class Base:
    """A device, an intent that takes it, and its text with one line changed or without it."""

    platform: str
    intents: tuple[Intent, Device]
    text: str
    lines: Callable[[str], Iterator[tuple[Lines, Callable[[Lines | None], str]]]]


def rows_of(text: str) -> Iterator[tuple[Lines, Callable[[Lines | None], str]]]:
    """(words, function of changed words to the text) of each line. A section goes with its line."""
    rows = text.splitlines()
    for at, row in enumerate(rows):
        indent = row[: len(row) - len(row.lstrip())]
        end = at + 1
        while end < len(rows) and rows[end].startswith(f"{indent} "):
            end += 1

        def changed(words: Lines | None, at: int = at, end: int = end, indent: str = indent) -> str:
            middle = rows[end:] if words is None else [indent + " ".join(words), *rows[at + 1 :]]
            return "\n".join([*rows[:at], *middle]) + "\n"

        if row.strip() and not row.startswith(("@@", "[", "#!")):
            yield row.split(), changed


def leaves_of(text: str) -> Iterator[tuple[Lines, Callable[[Lines | None], str]]]:
    """([name, value], function of changed ones to the text) of each leaf of JSON."""
    document = json.loads(text)
    for path in _paths(document, ()):

        def changed(words: Lines | None, path: tuple[Any, ...] = path) -> str:
            copy = json.loads(text)
            at = reduce(getitem, path[:-1], copy)
            value = at.pop(path[-1])
            if words is not None and words[0] in at:
                return text  # a name cannot be there twice
            if words is not None:
                new = " ".join(words[1:])
                at[words[0]] = int(new) if isinstance(value, int) and new.isdecimal() else new
            return json.dumps(copy)

        yield [str(path[-1]), *str(reduce(getitem, path, document)).split()], changed


def _paths(at: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    """The paths of leaves that a plan touches."""
    if isinstance(at, dict | list):
        items = at.items() if isinstance(at, dict) else enumerate(at)
        for key, value in items:
            yield from _paths(value, (*path, key))
        return
    far = "openconfig-qos:interfaces" in path and 0 not in path[:4]
    elsewhere = {"state", "PORT", "VERSIONS", "DEVICE_METADATA"} & {*path}
    if not (far or elsewhere or isinstance(path[-1], int)):
        yield path


BASES: Final[Mapping[str, Base]] = {
    each.platform: each
    for each in (
        Base(
            "eos",
            wanted("eos", TAKES),
            EOS.replace(
                "uc-tx-queue 3\n      LINE",
                "qos trust dscp\n   uc-tx-queue 2\n      no priority\n      bandwidth percent 40\n"
                "      random-detect ecn minimum-threshold 20 kbytes maximum-threshold 80 kbytes "
                "max-mark-probability 20 weight 0",
            )
            + "qos map dscp 24 25 to traffic-class 3\n",
            rows_of,
        ),
        Base("nxos", wanted("nxos", REPLACES), nxos(), rows_of),
        Base(
            "nvue",
            wanted("nvue", 'queues = [3]\nreplaces = ["roce-ecn"]'),
            captured("nvue.roce"),
            rows_of,
        ),
        Base("junos", test_junos.intent(test_junos.KEEP), test_junos.ROCE, rows_of),
        Base(
            "sonic",
            wanted("sonic", "queues = [3, 4]"),
            sonic_text(sonic_roce(("Ethernet0", "Ethernet4"))),
            leaves_of,
        ),
        Base(
            "openconfig",
            test_openconfig.intent(test_openconfig.KEEP),
            test_openconfig.CAPTURED,
            leaves_of,
        ),
        Base("linux", (INTENT, SWITCH), brought().says(), rows_of),
    )
}


def read(platform: str, text: str) -> State | None:
    try:
        return dict(PLATFORMS[platform].read(text))
    except SwitchcfgError:
        return None


def silent(base: Base, number: int) -> Iterator[str]:
    """Lines of mutations, of `number` tries, that the plan is made without."""
    rng = random.Random(number)  # a test, not a secret
    kind = PLATFORMS[base.platform]
    was = read(base.platform, base.text)
    assert was is not None
    plan(*base.intents, kind, was)
    rows = [
        (words, changed, without)
        for words, changed in base.lines(base.text)
        if (without := read(base.platform, changed(None))) != was
    ]
    assert len(rows) > 5
    tried = 0
    while tried < number:
        words, changed, without = rng.choice(rows)
        new = rng.choice(MUTATIONS)(rng, words)
        if new == words or not new:
            continue
        tried += 1
        there = read(base.platform, changed(new))
        if there is None or there == was or ENTRY.fullmatch(" ".join(new[1:])):
            continue  # (an entry of Junos without its line says what no line says)
        if "default-global" in words and "default-global" not in new:
            continue  # of another profile of NVUE, which no port has
        if new[0] in ("no", "default"):
            continue  # says that the line is not there
        unread = any(place.kind == UNREAD for place in there)
        if not unread and there != without:
            continue
        try:
            plan(*base.intents, kind, kind.read(changed(new)))
        except SwitchcfgError:
            continue
        yield f"{' '.join(words)} -> {' '.join(new)}"


@pytest.mark.parametrize("platform", BASES)
def test_no_line_that_changes_is_skipped(platform: str) -> None:
    assert [*silent(BASES[platform], 100)] == []


@pytest.mark.heavy
@pytest.mark.parametrize("platform", BASES)
def test_no_line_of_two_thousand_that_change_is_skipped(platform: str) -> None:
    assert [*silent(BASES[platform], 2000)] == []
