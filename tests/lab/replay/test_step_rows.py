"""`bench step`: ratios pair by seed, honest lines, verdicts on the weights."""

from typing import Any

import pytest

from dlcp_lab.replay.architectures import NETWORKS
from dlcp_lab.replay.pace import Pace, paces
from dlcp_lab.replay.step_rows import (
    ABOUT,
    HEADER,
    SYSTEMS,
    ReplayedNetwork,
    about,
    cells,
    honesty,
    judge,
    rows,
)
from dlcp_lab.report.checks import broken
from dlcpd.cli import table

Ranks = list[dict[str, Any]]
COUNTS = {"sent": 100, "retransmitted": 1, "waived": 0}


def ranks(seconds: float, *, digests: tuple[str, str] = ("aa", "aa")) -> Ranks:
    """Two ranks; the second is the slower one."""
    return [
        {"times": [seconds * share] * 3, "counts": COUNTS, "digest": digest}
        for share, digest in zip((0.5, 1.0), digests, strict=True)
    ]


def run(gloo: float, hook: float, crossed: float) -> dict[str, Ranks]:
    return dict(zip(SYSTEMS, (ranks(gloo), ranks(hook), ranks(crossed)), strict=True))


def case() -> ReplayedNetwork:
    network = NETWORKS["vgg16"]()
    return ReplayedNetwork("vgg16", network, paces(network, 1.0, 1.5), 1.0)


def test_ratios_are_of_the_same_seed() -> None:
    found = rows("vgg16", [run(1.0, 1.0, 0.5), run(4.0, 2.0, 2.0)])
    crossed = found[SYSTEMS.index("cross-step")]
    assert crossed.over_gloo == [2.0, 2.0]
    assert crossed.over_hook == [2.0, 1.0]
    assert crossed.time.p50 == pytest.approx(1.25)
    assert crossed.counts["sent"] == 400


def test_tables_have_a_cell_for_each_column() -> None:
    found = rows("vgg16", [run(1.0, 1.0, 0.5)])
    text = table.render(HEADER, [cells(row) for row in found], left=2)
    assert "500..500" in text
    assert table.render(ABOUT, [about(case(), 1.0)]).splitlines()[1].split()[2] == "138.4"


def test_gains_need_no_excuse() -> None:
    assert not list(honesty(case(), rows("vgg16", [run(3.0, 2.0, 1.0)])))


def test_what_does_not_gain_is_said_with_its_reason() -> None:
    lines = list(honesty(case(), rows("vgg16", [run(1.0, 2.0, 2.0)])))
    assert len(lines) == 3
    assert "overheads use up the" in lines[0]
    assert "takes 0.50 of the time of hook" in lines[1]
    assert "1.0% of its segments retransmitted" in lines[2]


def test_idle_lines_are_called_unexplained() -> None:
    lines = list(honesty(case(), rows("vgg16", [run(1.3, 1.3, 1.0)])))
    assert len(lines) == 1
    assert "the network loses nothing" in lines[0]
    slow = list(honesty(case(), rows("vgg16", [run(1.3, 4.0, 1.0)])))
    assert len(slow) == 1
    assert "neither line nor computation explain" in slow[0]


def test_where_no_order_could_gain_that_is_the_reason() -> None:
    front = [Pace(0.0, 0.0, 4.0), *(Pace(1e-3, 1e-3, 0.0) for _ in range(15))]
    hopeless = ReplayedNetwork("vgg16", NETWORKS["vgg16"](), front, 4.0)
    [line] = honesty(hopeless, rows("vgg16", [run(3.0, 2.0, 2.0)]))
    assert "an ideal order gains 1.00 at most" in line


def test_equal_weights_hold() -> None:
    assert not broken(list(judge("vgg16", [run(1.0, 1.0, 1.0)], exact=True)))


def test_replicas_apart_are_a_broken_promise() -> None:
    bad = {**run(1.0, 1.0, 1.0), "hook": ranks(1.0, digests=("aa", "bb"))}
    assert broken(list(judge("vgg16", [bad], exact=False))) == ["P2"]
    assert broken(list(judge("vgg16", [bad], exact=True))) == ["P1", "P2"]


def test_systems_apart_are_broken_only_where_all_is_exact() -> None:
    other = {**run(1.0, 1.0, 1.0), "cross-step": ranks(1.0, digests=("bb", "bb"))}
    assert broken(list(judge("vgg16", [other], exact=True))) == ["P1"]
    assert broken(list(judge("vgg16", [other], exact=False))) == []
