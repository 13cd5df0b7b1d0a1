"""What queues get that are served in turn with lossless classes."""

from dataclasses import replace

import pytest

from switchcfg.intent.intent import Intent, parse
from switchcfg.plan.queues import Abilities, Layout, lay_out
from switchcfg.platforms.weighted import LEAST, below, in_words, percents
from tests.switchcfg.intents import EXAMPLES

ABLE = Abilities(curves=3, own_mark=True, spray=("keep",), lossless=7)


def layout(*rows: tuple[int, int]) -> Layout:
    """Of dlcpd's five classes beside lossless ones: (priority, share) of each."""
    wanted: Intent = parse(EXAMPLES["roce"], "x")
    one = wanted.lossless[0]
    found = tuple(replace(one, name=f"l{p}", priority=p, share=share) for p, share in rows)
    wanted = replace(wanted, lossless=found)
    return lay_out(wanted, wanted.devices[0].groups[0], ABLE)


@pytest.mark.parametrize(
    ("rows", "ours", "expected"),
    [
        (((0, 50),), [], {0: 50}),
        (((3, 50),), [2], {3: 50, 2: 50}),
        (((3, 30), (4, 31)), [2, 1], {3: 30, 4: 31, 2: 19, 1: 20}),  # the last has the rest
        (((3, 60), (4, 40)), [2, 1], {3: 48, 4: 32, 2: 10, 1: 10}),
        (((3, 95),), [2], {3: 90, 2: 10}),
        (((7, 1), (6, 99)), [5, 4, 3, 2, 1], {7: 1, 6: 49, 5: 10, 4: 10, 3: 10, 2: 10, 1: 10}),
    ],
)
def test_lossless_classes_have_their_shares_and_ours_below_them_the_rest(
    rows: tuple[tuple[int, int], ...], ours: list[int], expected: dict[int, int]
) -> None:
    found = layout(*rows)
    low = below(found)
    assert [queue.index for queue in low] == ours
    got = percents(found, low)
    assert got == expected
    assert sum(got.values()) <= 100
    assert all(got[index] >= LEAST for index in ours)


def test_nothing_is_in_turn_without_lossless_classes() -> None:
    found = layout()
    assert below(found) == []
    assert percents(found, found.queues) == {}
    assert not [*in_words(found, found.queues, "")]


def test_what_is_not_as_asked_is_said() -> None:
    found = layout((3, 95))
    assert [*in_words(found, below(found), "so it is")] == [
        "bulk: not strict: weighted with the lossless classes, 10%: so it is",
        "l3: a share of 90% and not 95%, to leave a part for classes that are not strict",
    ]
