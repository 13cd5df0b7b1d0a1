"""The choice of a plan: closed form, trees, and the equal shares that remain without scipy."""

import sys
from math import inf

import pytest

from dlcpd.planning import plan
from dlcpd.planning.graph import Graph, Rates, one_switch
from dlcpd.planning.pair_loads import TooLarge
from dlcpd.planning.solver import SolverMissing
from dlcpd.planning.trees import ROOT
from tests.planning.networks import both, dgx_1v, direct, on_a_switch, racks
from tests.planning.packed_trees import check


@pytest.fixture
def without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)


def test_one_host_sends_nothing() -> None:
    made = plan.all_reduce(on_a_switch([5]))
    assert made.packing.rate == inf and made.packing.trees[0].parents == (ROOT,)
    assert made.bound is None and made.note == "one host: nothing is sent"


@pytest.mark.usefixtures("without_scipy")
@pytest.mark.parametrize("rates", [[7, 9], [100, 400, 400, 400], [400] * 5, [100, 120, 150, 400]])
def test_one_switch_has_a_closed_form(rates: list[int]) -> None:
    graph = on_a_switch(rates)
    made = plan.all_reduce(graph)
    check(graph, made.packing, both_ways=True)
    assert made.bound is not None and made.note == ""
    assert made.packing.rate == float(made.bound.rate)


@pytest.mark.usefixtures("without_scipy")
def test_without_scipy_one_rack_has_equal_shares_and_a_note() -> None:
    graph = racks(1, 3, 9, 9)
    made = plan.all_reduce(graph)
    check(graph, made.packing, both_ways=True)
    assert made.packing.rate == pytest.approx(6.75)
    assert "pip install 'dlcpd[planner]'" in made.note
    assert made.note.endswith("until then each host has an equal share")


@pytest.mark.usefixtures("without_scipy")
def test_without_scipy_racks_that_gain_nothing_have_equal_shares_and_a_note() -> None:
    made = plan.all_reduce(racks(2, 4, 100, 400))
    assert {tree.share for tree in made.packing.trees} == {1 / 8}
    assert made.note.endswith("until then each host has an equal share")


@pytest.mark.usefixtures("without_scipy")
@pytest.mark.parametrize("count", [2, 4])
def test_without_scipy_racks_have_trees_of_two_levels_and_a_note(count: int) -> None:
    graph = racks(count, 2, 400, 200)
    made = plan.all_reduce(graph)
    check(graph, made.packing, both_ways=True)
    assert made.bound is not None
    assert made.packing.rate == pytest.approx(float(made.bound.rate), rel=0.01)
    assert made.packing.rate > 1.4 * plan.direct_rate(graph)
    assert made.note.endswith("until then racks have trees of two levels")


@pytest.mark.parametrize(
    "graph", [racks(2, 4, 100, 400), racks(3, 4, 100, 300), on_a_switch([9] * 5)]
)
def test_no_plan_is_slower_than_equal_shares(graph: Graph) -> None:
    made = plan.all_reduce(graph)
    check(graph, made.packing, both_ways=True)
    assert made.packing.rate >= plan.direct_rate(graph) * (1 - 1e-9)
    assert {tree.parents.count(ROOT) for tree in made.packing.trees} == {1}
    assert all(len(set(tree.parents)) == 2 for tree in made.packing.trees)


@pytest.mark.usefixtures("without_scipy")
def test_without_scipy_hosts_that_connect_others_have_no_plan() -> None:
    with pytest.raises(SolverMissing):
        plan.all_reduce(dgx_1v())


@pytest.mark.usefixtures("without_scipy")
def test_without_scipy_links_between_all_hosts_have_equal_shares() -> None:
    ways = [(a, b, 3) for a in range(3) for b in range(3) if a != b]
    made = plan.all_reduce(direct(3, ways))
    check(direct(3, ways), made.packing, both_ways=True)
    assert made.packing.rate == pytest.approx(4.5)


def test_racks_have_trees_at_the_bound() -> None:
    pytest.importorskip("scipy", reason="scipy, which solves linear programs, is not installed")
    graph = racks(2, 2, 400, 200)
    made = plan.all_reduce(graph)
    check(graph, made.packing, both_ways=True)
    assert made.packing.rate == pytest.approx(200) and made.note == ""


def test_directions_that_differ_are_packed() -> None:
    pytest.importorskip("scipy", reason="scipy, which solves linear programs, is not installed")
    graph = one_switch({"a": Rates(100, 1), "b": Rates(1, 100), "c": both(100)})
    made = plan.all_reduce(graph)
    check(graph, made.packing, both_ways=True)
    assert made.packing.rate == pytest.approx(1)


def test_many_hosts_are_planned_by_classes() -> None:
    pytest.importorskip("scipy", reason="scipy, which solves linear programs, is not installed")
    graph = racks(6, 12, 100, 400)
    made = plan.all_reduce(graph)
    check(graph, made.packing, both_ways=True)
    assert made.bound is not None
    assert made.packing.rate >= 0.949 * made.bound.rate


def test_too_many_different_hosts_have_equal_shares_and_a_note(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("dlcpd.planning.pair_loads.MOST_LOADS", 10)
    graph = racks(2, 2, 400, 200)
    made = plan.all_reduce(graph)
    assert made.packing.rate == pytest.approx(100) and len(made.packing.trees) == 4
    assert made.note.startswith("4 hosts with 12 different links are too many to plan; give equal")
    with pytest.raises(TooLarge):
        plan.all_reduce(dgx_1v())
