import pytest

from switchcfg.intent.classes import TrafficClass
from switchcfg.traffic.judge import CE, ECT0, LOAD, TAGS, Counts, judge, lines, points

FRONT = TrafficClass("front", 0, (34, 38), (True, False), 0.5)
BACK = TrafficClass("back", 1, (10,), (True,), 0.5)
CLASSES = (FRONT, BACK)
GOOD = {
    (TAGS, dscp << 2 | ecn, dscp << 2 | ecn): 10 for _, dscp in points(CLASSES) for ecn in (0, ECT0)
}
SENT = {34 << 2 | ECT0: 100, 38 << 2: 100, 10 << 2 | ECT0: 100}


def loaded(front: int, light: int, back: int) -> Counts:
    return GOOD | {
        (LOAD, 34 << 2 | ECT0, 34 << 2 | CE): front,
        (LOAD, 38 << 2, 38 << 2): light,
        (LOAD, 10 << 2 | ECT0, 10 << 2 | ECT0): back,
    }


def test_tags_and_marks_that_arrive_pass() -> None:
    found = judge(CLASSES, {}, GOOD, 4)
    assert found.passes
    assert [row.name for row in found.rows] == ["front, rank 0", "front, rank 1", "back"]
    assert lines(found)[-1] == "paths that source ports reach: 4"
    assert "not tested" in lines(found)[-2]


@pytest.mark.parametrize(
    ("arrived", "tag", "ecn"),
    [
        (0, "bleached", "cleared"),
        (46 << 2 | ECT0, "rewritten to 46", "survives"),
        (34 << 2 | CE, "honoured", "survives"),
        (34 << 2, "honoured", "cleared"),
    ],
)
def test_what_became_of_a_tag(arrived: int, tag: str, ecn: str) -> None:
    counts = {(TAGS, 34 << 2 | ECT0, arrived): 10}
    row = judge(CLASSES, {}, counts, 1).rows[0]
    assert (row.tag, row.ecn) == (tag, ecn)
    assert row.passes == (tag == "honoured" and ecn == "survives")


def test_what_never_arrives_is_lost() -> None:
    row = judge(CLASSES, {}, {}, 0).rows[0]
    assert (row.tag, row.ecn, row.passes) == ("lost", "lost", False)


@pytest.mark.parametrize(
    ("kept", "order"),
    [
        ((100, 100, 40), "in order"),
        ((100, 97, 4), "in order"),
        ((100, 20, 4), "in order"),
        ((50, 52, 50), "front is served first, and only 50% of it arrived"),
        ((100, 99, 98), "no packet was lost: the load is too small to judge the order of drops"),
        ((96, 100, 4), "in order"),
        ((20, 100, 4), "front is served first, and only 20% of it arrived"),
        ((100, 20, 90), "more of back arrived than of front"),
    ],
)
def test_under_load_the_order_is_that_of_classes_and_ranks(
    kept: tuple[int, int, int], order: str
) -> None:
    found = judge(CLASSES, SENT, loaded(*kept), 1)
    assert found.order == order
    assert found.passes == (order == "in order")
    assert found.rows[0].kept == kept[0] / 100
