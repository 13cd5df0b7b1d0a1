"""Damaged topology files give one clear error or a plan, and plans of random networks are drawn."""

from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcpd.contract.errors import BadConfig
from dlcpd.planning import plan as planner
from dlcpd.planning.explain import reasons
from dlcpd.planning.graph import Graph
from dlcpd.planning.picture import picture
from dlcpd.planning.topology import parse
from tests.damaged import check_error, damaged
from tests.planning.test_topology import LINKS, RACKS

pytest.importorskip("scipy", reason="scipy, which solves linear programs, is not installed")

LONGEST = 700  # characters of an error
ONE_WAY = "some hosts are connected through others only one way"  # the error of the planner then
VALUES = (
    '"0bit"', '"1bit"', '"1000tbit"', '["a", "b", "c"]', '["c", "c"]', "{ send = 1 }",
    '{ send = "1bit", receive = "1tbit" }',
)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(damaged([RACKS, LINKS], VALUES))
def test_a_damaged_file_is_one_error_or_a_network_with_a_plan(text: str) -> None:
    try:
        graph = parse(text, "net.toml")
    except BadConfig as exc:
        check_error(str(exc), "net.toml", LONGEST)
        return
    assert _check_drawn(graph) in ("", ONE_WAY)


@st.composite
def networks(draw: st.DrawFn) -> str:
    """A file of hosts and switches that any links connect, some of them in one direction."""
    hosts, switches = draw(st.integers(1, 6)), draw(st.integers(0, 4))
    nodes = [f"h{n}" for n in range(hosts)] + [f"s{n}" for n in range(switches)]
    names = ", ".join(f'"{node}"' for node in nodes[:hosts])
    text = f"hosts = [{names}]\n"
    if switches:
        text += "switches = [" + ", ".join(f'"{node}"' for node in nodes[hosts:]) + "]\n"
    ends = st.sampled_from(nodes)
    rates = st.sampled_from(["1bit", "3bit", "25gbit", "100gbit", "1000tbit"])
    for a, b, rate, one_way in draw(
        st.lists(st.tuples(ends, ends, rates, st.booleans()), min_size=1, max_size=14)
    ):
        link = f'[[links]]\nfrom = "{a}"\nto = "{b}"\nrate = "{rate}"\n'
        text += (link + f"one_way = {str(one_way).lower()}\n") * (a != b)
    return text if "[[links]]" in text else f"{text}links = []\n"


@settings(max_examples=100, deadline=None)
@given(networks())
def test_a_network_of_any_links_has_a_plan_and_a_picture(text: str) -> None:
    try:
        graph = parse(text, "net.toml")
    except BadConfig as exc:
        said = str(exc)
    else:
        said = _check_drawn(graph)
    assert said in ("", ONE_WAY) or "is not connected" in said


def _check_drawn(graph: Graph) -> str:
    """Check that the plan is within its bound, and its picture well-formed. Returns why there is no
    plan."""
    try:
        made = planner.all_reduce(graph)
    except ValueError as exc:
        return str(exc)
    assert made.bound is None or made.packing.rate <= float(made.bound.rate) * (1 + 1e-9)
    drawn = picture(graph, made, reasons(graph, made))
    ElementTree.fromstring(drawn)  # noqa: S314  # our own
    return ""
