from dataclasses import replace

import pytest

from switchcfg.intent.intent import parse
from switchcfg.plan.queues import MIN_QUEUE, Abilities, Layout, lay_out
from tests.switchcfg.intents import EXAMPLES, NAME, whole

COLOURS = Abilities(curves=3, own_mark=True, spray=("hash",))
PLAIN = Abilities(curves=1, own_mark=False, spray=("hash",))
NO_ECN = ("ecn = true\nmark = [0.2, 0.5]", "ecn = false")


def of(example: str, able: Abilities) -> Layout:
    intent = parse(EXAMPLES[example], NAME)
    return lay_out(intent, intent.devices[0].groups[0], able)


def test_classes_take_the_highest_queues_in_their_order() -> None:
    layout = of("minimal", COLOURS)
    assert [(q.index, q.name) for q in layout.queues] == [
        (7, "control"),
        (6, "front"),
        (5, "middle"),
        (4, "back"),
        (3, "bulk"),
    ]
    assert layout.rest == 3
    assert not layout.degraded


def test_every_code_point_has_a_queue() -> None:
    intent = parse(EXAMPLES["brownfield"], NAME)
    found = lay_out(intent, intent.devices[0].groups[0], COLOURS).queue_of(intent)
    assert sorted(found) == list(range(64))
    assert (found[24], found[46]) == (3, 5)  # as they were
    assert found[48] == 7
    assert found[0] == found[14] == 0


def test_no_class_comes_into_a_kept_queue() -> None:
    layout = of("brownfield", COLOURS)
    assert [q.index for q in layout.queues] == [7, 6, 2, 1, 0]


def test_fractions_become_bytes_of_the_class_s_share() -> None:
    layout = of("two_drop_precedences", COLOURS)
    front = layout.queues[1]
    assert front.limit == int((256 << 10) * 0.4)
    assert [(b.rank, b.dscps) for b in front.bands] == [(0, (34,)), (1, (38,))]
    assert front.bands[0].begin == front.bands[0].certain == front.limit
    assert front.bands[1].begin == int(front.limit * 0.1)
    assert front.mark == (int(front.limit * 0.1), int(front.limit * 0.4))


def test_one_curve_and_ecn_tell_the_last_rank_apart_and_say_what_they_do_not() -> None:
    layout = of("minimal", PLAIN)
    assert len(layout.queues) == 5  # nothing is split
    assert all(len(q.bands) == 1 for q in layout.queues)
    assert layout.queues[1].dscps == (34, 36, 38)
    assert [d for d in layout.degraded if d.startswith("front")] == [
        "front: drop precedences 0 and 1 are treated alike: one curve per queue"
    ]


def test_a_curve_for_both_marks_and_drops_is_that_of_the_marks_and_says_so() -> None:
    intent = whole("mark = [0.2, 0.5]", "mark = [0.1, 0.4]")
    layout = lay_out(intent, intent.devices[0].groups[0], PLAIN)
    assert (
        "front: drop precedence 1 is dropped at the thresholds of ECN, 0.1 to "
        "0.4, not at 0.2 to 0.5" in layout.degraded
    )


def test_with_two_ranks_one_curve_and_ecn_lose_nothing() -> None:
    assert not of("two_drop_precedences", PLAIN).degraded


def test_without_ecn_the_last_rank_gets_a_shallow_queue_below_its_class() -> None:
    intent = whole(*NO_ECN)
    layout = lay_out(intent, intent.devices[0].groups[0], PLAIN)
    assert [(q.index, q.name, q.dscps) for q in layout.queues] == [
        (7, "control", (48,)),
        (6, "front", (34,)),
        (5, "front-low", (38,)),
        (2, "back", (10,)),
        (1, "back-low", (14,)),
    ]
    assert layout.queues[2].limit == int(layout.queues[1].limit * 0.5)
    assert not layout.degraded
    assert all(q.mark is None for q in layout.queues)
    assert layout.rest == 2


def test_where_queues_run_out_ranks_collapse_and_the_layout_says_so() -> None:
    layout = of("no_ecn", PLAIN)
    assert len(layout.queues) == 8
    assert layout.degraded[-1] == (
        "bulk: drop precedences 0 and 1 and 2 are treated alike: "
        "one curve per queue, and no free queue"
    )


def test_more_classes_than_queues_share_the_last_one_by_name() -> None:
    intent = parse(EXAMPLES["eight_classes"], NAME)
    kept = replace(intent, keep=replace(intent.keep, queues=(3, 4)))
    layout = lay_out(kept, kept.devices[0].groups[0], COLOURS)
    assert layout.queues[-1].name == "c5+c6+c7"
    assert layout.queues[-1].dscps == (16, 8, 0)
    assert layout.rest == layout.queues[-1].index == 0
    assert layout.degraded == ("8 classes and 6 free queues: c5, c6, c7 share the last queue",)


def test_no_queue_is_too_shallow_for_a_burst_of_packets() -> None:
    intent = whole('buffer = "512KiB"', 'buffer = "16KiB"')
    layout = lay_out(intent, intent.devices[0].groups[0], COLOURS)
    assert min(q.limit for q in layout.queues) == MIN_QUEUE


def test_spraying_that_is_not_to_be_had_is_said() -> None:
    intent = whole('spray = "hash"', 'spray = "packet"')
    layout = lay_out(intent, intent.devices[0].groups[0], COLOURS)
    assert any('spray = "packet"' in text for text in layout.degraded)


@pytest.mark.parametrize("able", [COLOURS, PLAIN])
@pytest.mark.parametrize("name", EXAMPLES)
def test_shares_of_all_queues_fit_the_buffer(name: str, able: Abilities) -> None:
    intent = parse(EXAMPLES[name], NAME)
    for group in intent.devices[0].groups:
        queues = [q for q in lay_out(intent, group, able).queues if not q.name.endswith("-low")]
        assert sum(q.limit for q in queues) <= group.buffer
