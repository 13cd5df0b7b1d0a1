"""Draws a plan as SVG: hosts, switches, links with their rates, and trees with their shares.

The links that limit the plan are red. Each tree is drawn below the hosts, which stand in the same
order: its root is filled, and arcs join parents and children.
"""

from collections.abc import Iterator, Sequence
from typing import Final
from xml.sax.saxutils import escape

from dlcpd.planning.explain import PlanReasons
from dlcpd.planning.graph import DirectedLink, Graph, neighbours
from dlcpd.planning.packing import PackedTree
from dlcpd.planning.plan import TreePlan
from dlcpd.planning.rates import in_words
from dlcpd.planning.trees import ROOT, edges_of

MOST_DRAWN: Final = 64  # hosts: 7,000 units wide
MOST_TREES: Final = 12  # those with the largest shares
STEP: Final = 110  # units of the picture between two hosts
LEVEL: Final = 90  # between two levels of switches
TOP: Final = 136  # of the highest node
SIDE: Final = 80  # free on both sides
LEAST_WIDTH: Final = 760
PANEL: Final = 112  # height of a tree
LABEL: Final = 0.36  # of a link from its lower end: where its rate stands
HIGHER: Final = 0.3  # the same, in addition, below every other upper switch: links there cross
LINE: Final = 100  # letters of a line of text
RED, GREY, BLUE, INK = "#c62828", "#8795a1", "#1f6fb2", "#1b2733"
COLOURS: Final = (BLUE, "#2e8b57", "#9a5b00", "#6a4c9c")  # of trees, in turn
_HEAD: Final = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" \
aria-labelledby="t d" font-family="sans-serif" font-size="12" fill="#1b2733">
<title id="t">{title}</title>
<desc id="d">{why}</desc>
<rect width="{width}" height="{height}" rx="10" fill="#f6f8fa" stroke="#c6d0d9"/>
<text x="16" y="24" font-size="14" font-weight="bold">{title}</text>
"""


class TooManyToDraw(ValueError):
    """A network has more hosts than a picture shows."""


def picture(graph: Graph, plan: TreePlan, found: PlanReasons) -> str:
    """The SVG. Raises: TooManyToDraw."""
    if len(graph.hosts) > MOST_DRAWN:
        raise TooManyToDraw(
            f"{len(graph.hosts)} hosts are too many to draw: at most {MOST_DRAWN}; name some with "
            "--hosts"
        )
    at = _places(graph)
    shown = plan.packing.trees[:MOST_TREES]
    more = len(plan.packing.trees) - len(shown)
    floor = max(y for _, y in at) + 60
    width = max(LEAST_WIDTH, max(x for x, _ in at) + SIDE)
    left = (width - SIDE - max(x for x, _ in at)) // 2  # a narrow network stands in the middle
    at = [(x + left, y) for x, y in at]
    height = floor + PANEL * len(shown) + (30 if more else 10)
    drawn = [*_lines(found.why), *_network(graph, at, found)]
    for number, tree in enumerate(shown):
        drawn += _tree(graph, tree, number, at, floor + PANEL * number)
    if more:
        drawn.append(_text(16, height - 12, f"and {more} more trees, with smaller shares"))
    head = _HEAD.format(
        width=width, height=height, title=_title(graph, plan), why=escape(found.why)
    )
    return head + "\n".join(drawn) + "\n</svg>\n"


def _title(graph: Graph, plan: TreePlan) -> str:
    trees = len(plan.packing.trees)
    rate = "" if plan.bound is None else f", {in_words(plan.packing.rate)}"
    return f"All-reduce of {len(graph.hosts)} hosts: {trees} tree{'s' * (trees > 1)}{rate}"


def _lines(text: str) -> Iterator[str]:
    """Up to three lines below the title."""
    words, line, lines = text.split(), "", list[str]()
    for word in words:
        if len(line) + len(word) > LINE:
            lines.append(line)
            line = ""
        line += f"{word} "
    for number, each in enumerate([*lines, line][:3]):
        yield _text(16, 44 + 16 * number, each.rstrip())


def _places(graph: Graph) -> list[tuple[int, int]]:
    """Places of all nodes: hosts in a row, by switch; switches above the nodes next to them."""
    near, count = neighbours(graph), len(graph.hosts)
    order = sorted(range(count), key=lambda host: (max(near[host], default=0), host))
    x = {host: SIDE + STEP * place for place, host in enumerate(order)}
    level = dict.fromkeys(range(count), 0)
    number, rest = 1, set(range(count, graph.nodes))
    while rest:
        found = {node for node in rest if level.keys() & set(near[node])} or set(rest)
        means = []
        for node in found:
            below = [x[other] for other in near[node] if other in level] or [SIDE]
            means.append((sum(below) // len(below), node))
        free = 0
        for mean, node in sorted(means):
            x[node] = max(mean, free)
            free = x[node] + STEP  # switches over the same hosts stand side by side
        level |= dict.fromkeys(found, number)
        number, rest = number + 1, rest - found
    return [(x[n], TOP + LEVEL * (number - 1 - level[n])) for n in range(graph.nodes)]


def _network(graph: Graph, at: Sequence[tuple[int, int]], found: PlanReasons) -> Iterator[str]:
    limits = {each.link for each in found.limits}
    rates = {link[:2]: link for link in graph.links}
    for link in graph.links:
        back = rates.get((link.target, link.source))
        if back is None or link.source < link.target:
            yield from _link(graph, link, back, at, limits)
    for node, (x, y) in enumerate(at):
        host = node < len(graph.hosts)
        half, fill = (44, "#ffffff") if host else (50, "#dbe2e8")
        yield (
            f'<rect x="{x - half}" y="{y - 13}" width="{2 * half}" height="26" rx="5" '
            f'fill="{fill}" stroke="{INK}"/>'
        )
        yield _text(x, y + 4, _short(graph.name(node)), anchor="middle")


def _link(
    graph: Graph,
    link: DirectedLink,
    back: DirectedLink | None,
    at: Sequence[tuple[int, int]],
    limits: set[DirectedLink],
) -> Iterator[str]:
    """A line with its rate; both, if directions differ."""
    (x, y), (to_x, to_y) = at[link.source], at[link.target]
    red = link in limits or back in limits
    colour, width = (RED, 5) if red else (GREY, 2)
    bend = 60 if max(link.source, link.target) < len(graph.hosts) else 0  # between two hosts
    middle = (x + to_x) // 2, (y + to_y) // 2 - bend
    yield (
        f'<path d="M{x} {y}Q{middle[0]} {middle[1]} {to_x} {to_y}" fill="none" '
        f'stroke="{colour}" stroke-width="{width}"/>'
    )
    rate = in_words(link.rate)
    if back is None:
        rate += " one way"
    elif back.rate != link.rate:
        rate += f" / {in_words(back.rate)}"
    switches = min(link.source, link.target) >= len(graph.hosts)
    upper = min(link.source, link.target, key=lambda node: at[node][1]) if switches else 0
    low, high = sorted(((x, y), (to_x, to_y)), key=lambda place: -place[1])
    place = (
        _towards(low, high, LABEL + HIGHER * (upper % 2))
        if not bend
        else (middle[0], middle[1] + bend // 2 - 4)
    )
    half = 4 * len(rate)
    yield (
        f'<rect x="{place[0] - half}" y="{place[1] - 12}" width="{2 * half}" height="16" '
        f'fill="#f6f8fa"/>'
    )
    yield _text(*place, rate, colour=RED if red else INK, bold=red, anchor="middle")


def _towards(start: tuple[int, int], end: tuple[int, int], part: float) -> tuple[int, int]:
    (x, y), (to_x, to_y) = start, end
    return round(x + (to_x - x) * part), round(y + (to_y - y) * part)


def _tree(
    graph: Graph, tree: PackedTree, number: int, at: Sequence[tuple[int, int]], top: int
) -> Iterator[str]:
    colour, y = COLOURS[number % len(COLOURS)], top + PANEL - 24
    root = graph.name(tree.parents.index(ROOT))
    yield _text(
        16, top + 14, f"{100 * tree.share:.3g} % through {_short(root)}", colour=colour, bold=True
    )
    for parent, child in edges_of(tree.parents):
        x, to = at[parent][0], at[child][0]
        high = y - 14 - min(50, abs(to - x) // 5 + 14)
        yield (
            f'<path d="M{x} {y - 9}Q{(x + to) // 2} {high} {to} {y - 9}" fill="none" '
            f'stroke="{colour}" stroke-width="2"/>'
        )
    for host, parent in enumerate(tree.parents):
        fill = colour if parent == ROOT else "#ffffff"
        yield f'<circle cx="{at[host][0]}" cy="{y}" r="7" fill="{fill}" stroke="{colour}"/>'


def _short(name: str) -> str:
    return name if len(name) <= 12 else f"{name[:11]}~"


def _text(
    x: int, y: int, text: str, *, colour: str = INK, bold: bool = False, anchor: str = "start"
) -> str:
    weight = ' font-weight="bold"' if bold else ""
    return (
        f'<text x="{x}" y="{y}" fill="{colour}" text-anchor="{anchor}"{weight}>'
        f"{escape(text)}</text>"
    )
