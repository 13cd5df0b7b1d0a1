"""Compares the rates of a topology file with measured ones."""

from collections.abc import Mapping
from typing import Final

from dlcpd.planning.graph import DirectedLink, Graph, Rates
from dlcpd.planning.rates import in_words

FACTOR: Final = 10  # a claim of ten times the measured rate is a mistake, not a busy network


def with_measured(graph: Graph, measured: Mapping[str, Rates], source: str) -> tuple[Graph, str]:
    """`graph` with the measured rates of hosts whose claims are FACTOR times as high, and one
    message that names the first of them, or "". Rates of 0 and hosts of others are left out.

    The links of a host keep their proportion: together they send or receive the measured rate.
    """
    links = list(graph.links)
    wrong: dict[str, str] = {}
    for host, name in enumerate(graph.hosts):
        for rate, sends in zip(measured.get(name, (0, 0)), (True, False), strict=True):
            own = [n for n, link in enumerate(links) if host == (link[0] if sends else link[1])]
            claimed = sum(links[number].rate for number in own)
            if not 0 < rate * FACTOR <= claimed:
                continue
            for number in own:
                start, end, old = links[number]
                links[number] = DirectedLink(start, end, max(old * rate // claimed, 1))
            wrong.setdefault(
                name,
                f"{name!r} {'sends' if sends else 'receives'} {in_words(rate)} as measured, and "
                f"the file says {in_words(claimed)}",
            )
    if not wrong:
        return graph, ""
    more = f" (likewise {len(wrong) - 1} others)" if len(wrong) > 1 else ""
    first = next(iter(wrong.values()))
    said = f"{source}: hosts: {first}{more}; the plan uses the measured rate: correct the file"
    return Graph(graph.hosts, graph.switches, tuple(links)), said
