"""`dlcpctl plan`: the best trees for a topology file, the proof of their rate, and the gain.

Works on a file alone: no daemon is asked, and nothing is sent.
"""

import argparse
from typing import Any, Final

from dlcpd.cli import table
from dlcpd.cli.output import Output
from dlcpd.cli.output_file import OutputFile
from dlcpd.contract.errors import BadConfig
from dlcpd.daemon.config.topology import read_topology
from dlcpd.planning import plan as planner
from dlcpd.planning.explain import PlanReasons, certificate, in_times, link_name, reasons
from dlcpd.planning.graph import DirectedLink, Graph, neighbours
from dlcpd.planning.packing import PackedTree
from dlcpd.planning.picture import TooManyToDraw, picture
from dlcpd.planning.plan import TreePlan
from dlcpd.planning.rates import in_words
from dlcpd.planning.topology import for_job, parse
from dlcpd.planning.trees import ROOT

MOST_ROWS: Final = 64  # hosts or trees that the text lists; --json has all
MOST_LIMITS: Final = 8  # likewise
MOST_LETTERS: Final = 72  # of a tree


def plan(options: argparse.Namespace, output: Output) -> int:
    """Plan and print. Raises: BadConfig; SolverMissing; TooLarge."""
    to = OutputFile("--svg", options.svg) if options.svg else None
    if to:
        to.check()
    source = str(options.file)
    graph = parse(read_topology(options.file, source), source)
    if options.hosts:
        graph = for_job(graph, _named(options.hosts), source)
    try:
        made = planner.all_reduce(graph)
    except ValueError as exc:
        raise BadConfig(f"{source}: {exc}") from exc
    found = reasons(graph, made)
    if to:
        try:
            to.write(picture(graph, made, found))
        except TooManyToDraw as exc:
            raise BadConfig(f"--svg: {exc}") from exc
    for line in _text(graph, made, found):
        output.line(line)
    output.document(_document(graph, made, found))
    return 0


def _named(text: str) -> list[str]:
    """Raises: BadConfig."""
    names = [name.strip() for name in text.split(",")]
    for name in names:
        if not name:
            raise BadConfig("--hosts: a name is empty; write them like a,b,c")
        if names.count(name) > 1:
            raise BadConfig(f"--hosts: {name!r} is listed twice; remove one")
    return names


def _text(graph: Graph, made: TreePlan, found: PlanReasons) -> list[str]:
    rows = [
        [host, _rack(graph, number) or None, *map(in_words, _rates(graph, number))]
        for number, host in enumerate(graph.hosts[:MOST_ROWS])
    ]
    lines = [table.render(("host", "switch", "send", "receive"), rows, left=2)]
    lines += _more(len(graph.hosts), "hosts")
    uplinks = [
        [link_name(graph, link), in_words(link.rate)]
        for link in graph.links
        if min(link.source, link.target) >= len(graph.hosts)
    ]
    if uplinks:
        lines += ["", table.render(("between switches", "rate"), uplinks[:MOST_ROWS])]
        lines += _more(len(uplinks), "links")
    trees = [
        [number, f"{100 * tree.share:.2f} %", _shape(graph, tree)]
        for number, tree in enumerate(made.packing.trees[:MOST_ROWS], 1)
    ]
    lines += ["", table.render(("tree", "share", "parent(children)"), trees, left=3)]
    lines += [*_more(len(made.packing.trees), "trees"), ""]
    if made.bound is not None:
        lines += [f"bound: {certificate(graph, made.bound)}"]
        lines += [f"plan: {in_words(made.packing.rate)}, {_part(made):.0%} of the bound"]
    limits = _limits(graph, found)
    lines += [f"limit: {limit}" for limit in limits[:MOST_LIMITS]]
    lines += _more(len(limits), "limits", MOST_LIMITS)
    lines += [found.why]
    if made.note and made.bound is not None:
        lines += [f"note: {made.note}"]
    return lines


def _limits(graph: Graph, found: PlanReasons) -> list[str]:
    """The limiting links; two directions that are equal are one line."""
    crossed = {each.link: in_times(each.times) for each in found.limits}
    lines = []
    for link, times in crossed.items():
        back = DirectedLink(link.target, link.source, link.rate)
        both = crossed.get(back) == times
        if not both or link.source < link.target:
            ways = " and back" if both else ""
            name = f"{link_name(graph, link)}{ways} ({in_words(link.rate)})"
            lines.append(f"{name}, which the tensor crosses {times}{' each' * both}")
    return lines


def _more(count: int, what: str, most: int = MOST_ROWS) -> list[str]:
    return [f"and {count - most} more {what}"] if count > most else []


def _part(made: TreePlan) -> float:
    return made.packing.rate / float(made.bound.rate) if made.bound else 1.0


def _rates(graph: Graph, host: int) -> tuple[int, int]:
    """Rates of a host over all of its links: to send and to receive, bit/s."""
    send = sum(link.rate for link in graph.links if link.source == host)
    return send, sum(link.rate for link in graph.links if link.target == host)


def _rack(graph: Graph, host: int) -> str:
    """The switch of a host that has one, else ""."""
    above = {n for n in neighbours(graph)[host] if n >= len(graph.hosts)}
    return graph.name(above.pop()) if len(above) == 1 else ""


def _shape(graph: Graph, tree: PackedTree) -> str:
    """A tree as `parent(child, parent(child))`."""
    children: dict[int, list[int]] = {}
    for host, parent in enumerate(tree.parents):
        children.setdefault(parent, []).append(host)

    def shape(host: int) -> str:
        inner = ", ".join(map(shape, children.get(host, [])))
        return f"{graph.name(host)}({inner})" if inner else graph.name(host)

    text = shape(children[ROOT][0])
    return text if len(text) <= MOST_LETTERS else f"{text[: MOST_LETTERS - 3]}..."


def _document(graph: Graph, made: TreePlan, found: PlanReasons) -> dict[str, Any]:
    """All that the text has, in bit/s and by name."""
    bound = made.bound and {
        "rate_bps": float(made.bound.rate),
        "times": float(made.bound.times),
        "sides": [[graph.name(node) for node in sorted(side)] for side in made.bound.sides],
        "proof": certificate(graph, made.bound),
    }
    return {
        "command": "plan",
        "hosts": list(graph.hosts),
        "switches": list(graph.switches),
        "links": [
            {"from": graph.name(link[0]), "to": graph.name(link[1]), "rate_bps": link.rate}
            for link in graph.links
        ],
        "bound": bound,
        "rate_bps": None if bound is None else made.packing.rate,
        "direct_rate_bps": found.direct_rate or None,
        "gain": found.gain,
        "why": found.why,
        "note": made.note,
        "limits": [
            {"link": link_name(graph, each.link), "times": each.times} for each in found.limits
        ],
        "trees": [
            {
                "share": tree.share,
                "parents": {
                    graph.name(host): None if parent == ROOT else graph.name(parent)
                    for host, parent in enumerate(tree.parents)
                },
            }
            for tree in made.packing.trees
        ],
    }
