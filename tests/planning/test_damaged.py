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
from tests.planning.test_topology import LINKS, RACKS

pytest.importorskip("scipy", reason="scipy, which solves linear programs, is not installed")

LONGEST = 700  # characters of an error
ONE_WAY = "some hosts are connected through others only one way"  # the error of the planner then
VALUES = (
    "0", "-1", "1e400", "nan", "true", "[]", "{}", '""', '"0bit"', '"1bit"', '"1000tbit"', "[[]]",
    '["a"]', '["a", "b", "c"]', '["c", "c"]', "2020-01-01", "0x" + "f" * 5000, "9" * 5000,
    '"\\u0000"', '"\\n"', '"a\\u2028"', "{ send = 1 }", '{ send = "1bit", receive = "1tbit" }',
)  # fmt: skip


def _with_a_value(line: str, value: str) -> str:
    key, equals, _ = line.partition("=")
    return f"{key}= {value}" if equals else line


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A valid file after up to three mistakes of an editor."""
    lines = draw(st.sampled_from([RACKS, LINKS])).strip().splitlines()
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(lines) - 1))
        match draw(st.sampled_from(["value", "drop", "twice", "swap", "cut", "letters"])):
            case "value":
                lines[at] = _with_a_value(lines[at], draw(st.sampled_from(VALUES)))
            case "drop" if len(lines) > 1:
                del lines[at]
            case "twice":
                lines.insert(at, lines[draw(st.integers(0, len(lines) - 1))])
            case "swap":
                other = draw(st.integers(0, len(lines) - 1))
                lines[at], lines[other] = lines[other], lines[at]
            case "cut":
                lines[at] = lines[at][: draw(st.integers(0, len(lines[at])))]
            case _:
                place = draw(st.integers(0, len(lines[at])))
                letters = draw(st.text(max_size=3))
                lines[at] = lines[at][:place] + letters + lines[at][place:]
    return "\n".join(lines)


@settings(max_examples=200, deadline=None)
@given(damaged())
def test_a_damaged_file_is_one_error_or_a_network_with_a_plan(text: str) -> None:
    try:
        graph = parse(text, "net.toml")
    except BadConfig as exc:
        said = str(exc)
        assert said.startswith("net.toml: ") and "\n" not in said and len(said) < LONGEST
        assert "sys." not in said and "Exceeds" not in said
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
