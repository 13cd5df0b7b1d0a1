"""Each promise: a clean record holds, and every way to break it is seen and named."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from dlcp_lab.report.checks import BROKEN, HELD, OPEN, broken, report
from dlcp_lab.verify.judge import ENOUGH, judge

SEGMENT = 1408
CHUNK = 745  # segments
Seen = list[dict[str, Any]]


def row(operation: int, sender: int, owner: int, segments: int, name: str = "verify/units") -> Any:
    return {
        "operation": operation,
        "name": name,
        "sender": sender,
        "owner": owner,
        "transfer": 0,
        "segments": segments,
        "out_of": CHUNK,
        "paths": {},
    }


def clean() -> Seen:
    """Two ranks, two chunks, seven steps; each loses five segments of the other in each step."""
    steps = 7
    ledger = [row(step + 1, sender, 1 - sender, 5) for step in range(steps) for sender in (0, 1)]
    positions = [
        [(97 * step + 31 * k + sender) % CHUNK for k in range(5)]
        for step in range(steps)
        for sender in (0, 1)
    ]
    losses = [
        [[sender, 1 - sender, positions[2 * step + sender], 0] for sender in (0, 1)]
        for step in range(steps)
    ]
    return [
        {
            "sweep": [["sum of 3 float32", 0, "aa"], ["max of 64 int32", 0, "bb"]],
            "steps": {
                "losses": losses if rank == 0 else [],
                "damaged": 0,
                "digests": {"verify/units": ["c0", "c1"], "verify/random": ["d0", "d1"]},
                "unbalanced": {"verify/units": 0, "verify/random": 0},
                "flushed": 35,
                "chunks": [[0, 0, CHUNK * 352], [1, CHUNK * 352, CHUNK * 352]],
            },
            "books": {
                "ledger": ledger,
                "residual_bytes": 0,
                "injected": 9,
                "waived": 35,
                "lost": 35,
                "reapplied": 35,
                "operations": 18,
            },
        }
        for rank in (0, 1)
    ]


def verdicts(seen: Seen, max_loss: float = 0.01) -> list[tuple[str, str]]:
    return [(c.promise, c.verdict) for c in judge(seen, max_loss=max_loss, segment_size=SEGMENT)]


def test_a_clean_record_holds() -> None:
    checks = judge(clean(), max_loss=0.01, segment_size=SEGMENT)
    assert {check.verdict for check in checks} == {HELD}
    assert {check.promise for check in checks} == {"P1", "P2", "P3", "P4", "P5"}
    assert broken(checks) == []
    assert list(report(checks))[-1] == "all promises held"


def wrong_element(seen: Seen) -> None:
    seen[1]["sweep"][0][1] = 1


def other_result(seen: Seen) -> None:
    seen[1]["sweep"][1][2] = "b0"


def other_bounded_result(seen: Seen) -> None:
    seen[1]["steps"]["digests"]["verify/random"][1] = "d9"


def beyond_the_bound_in_the_result(seen: Seen) -> None:
    seen[0]["steps"]["losses"][3][0][2] = list(range(8))  # 8 of 745 is above 1 %


def beyond_the_bound_in_the_ledger(seen: Seen) -> None:
    for one in seen:
        one["books"]["ledger"].append(row(99, 1, 0, 8, "verify/random"))


def exempt_element_late(seen: Seen) -> None:
    seen[0]["steps"]["damaged"] = 1


def half_a_segment(seen: Seen) -> None:
    seen[0]["steps"]["losses"][0][0][3] = 1


def one_sided_ledger(seen: Seen) -> None:
    del seen[1]["books"]["ledger"][0]


def unbooked_loss(seen: Seen) -> None:
    seen[0]["steps"]["losses"][0][0][2].append(700)


def totals_disagree(seen: Seen) -> None:
    seen[0]["books"]["lost"] += 1


def not_conserved(seen: Seen) -> None:
    seen[0]["steps"]["unbalanced"]["verify/random"] = 352


def never_returned(seen: Seen) -> None:
    seen[1]["books"]["reapplied"] -= 1


def still_held(seen: Seen) -> None:
    seen[1]["books"]["residual_bytes"] = SEGMENT


def always_the_tail(seen: Seen) -> None:
    for step in seen[0]["steps"]["losses"]:
        for loss in step:
            loss[2] = [position % 70 + 675 for position in loss[2]]


def always_the_same(seen: Seen) -> None:
    for step in seen[0]["steps"]["losses"]:
        step[0][2][0] = 11


@pytest.mark.parametrize(
    ("harm", "promise"),
    [
        (wrong_element, "P1"),
        (other_result, "P2"),
        (other_bounded_result, "P2"),
        (beyond_the_bound_in_the_result, "P3"),
        (beyond_the_bound_in_the_ledger, "P3"),
        (exempt_element_late, "P3"),
        (half_a_segment, "P3"),
        (one_sided_ledger, "P3"),
        (unbooked_loss, "P3"),
        (totals_disagree, "P3"),
        (not_conserved, "P4"),
        (never_returned, "P4"),
        (still_held, "P4"),
        (always_the_tail, "P5"),
        (always_the_same, "P5"),
    ],
    ids=lambda value: getattr(value, "__name__", value),
)
def test_each_harm_breaks_its_promise_and_no_other(
    harm: Callable[[Seen], None], promise: str
) -> None:
    seen = copy.deepcopy(clean())
    harm(seen)
    checks = judge(seen, max_loss=0.01, segment_size=SEGMENT)
    assert broken(checks) == [promise]
    assert list(report(checks))[-1] == f"BROKEN: {promise}"


def test_too_few_losses_are_not_judged() -> None:
    seen = clean()
    seen[0]["steps"]["losses"] = seen[0]["steps"]["losses"][: (ENOUGH - 1) // 10]
    [last] = [c for c in judge(seen, max_loss=0.01, segment_size=SEGMENT) if c.promise == "P5"]
    assert last.verdict == OPEN
    assert "not enough losses to judge" in last.detail


def exact_record() -> Seen:
    seen = clean()
    for one in seen:
        one["steps"] = None
        one["books"] |= {"ledger": [], "waived": 0, "lost": 0, "reapplied": 0}
    return seen


def test_exact_mode_judges_what_it_can() -> None:
    assert verdicts(exact_record(), 0.0) == [("P1", HELD), ("P2", HELD), ("P3", HELD)]


@pytest.mark.parametrize("book", ["waived", "lost"])
def test_exact_mode_may_lose_nothing(book: str) -> None:
    seen = exact_record()
    seen[1]["books"][book] = 1
    assert ("P3", BROKEN) in verdicts(seen, 0.0)


def test_exact_mode_has_an_empty_ledger() -> None:
    seen = exact_record()
    seen[0]["books"]["ledger"] = [row(1, 1, 0, 1)]
    assert ("P3", BROKEN) in verdicts(seen, 0.0)


def test_many_offenders_are_counted_not_listed() -> None:
    seen = clean()
    for one in seen:
        one["sweep"] = [[f"case {n}", 1, "aa"] for n in range(10)]
    first = judge(seen, max_loss=0.01, segment_size=SEGMENT)[0]
    assert first.detail.endswith("and 17 more")
