"""Pairs of hosts that a job probes, to see links that its traffic says nothing of."""

from collections.abc import Collection, Iterator, Mapping


def ends(sender: str, receiver: str) -> tuple[str, str]:
    """The links that a flow crosses, by their names in a plan."""
    return f"{sender} out", f"{receiver} in"


def pairs_to_probe(due: Collection[str], plan: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    """Pairs whose flows, both ways, cross all links of `due`. `plan`: bit/s by link.

    The partner of a host is the fastest, so that it is not the limit; of equally fast ones one that
    needs a pair, too.
    """
    left = list(dict.fromkeys(link.rpartition(" ")[0] for link in due if link in plan))
    hosts = list(dict.fromkeys(link.rpartition(" ")[0] for link in plan))
    while left:
        host = left.pop(0)
        partners = [other for other in hosts if other != host]
        if not partners:
            return
        partner = max(
            partners,
            key=lambda other: (min(plan[f"{other} out"], plan[f"{other} in"]), other in left),
        )
        if partner in left:
            left.remove(partner)
        yield host, partner
