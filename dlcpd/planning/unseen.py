"""Pairs of hosts that a job probes, to see links that its traffic says nothing of."""

from collections.abc import Collection, Iterator, Mapping


def ends(sender: str, receiver: str) -> tuple[str, str]:
    """The links that a flow crosses, by their names in a plan."""
    return f"{sender} out", f"{receiver} in"


def pairs_to_probe(
    due: Collection[str], plan: Mapping[str, int], flows: Mapping[tuple[str, str], int]
) -> Iterator[tuple[str, str]]:
    """Pairs whose flows, both ways, cross all links of `due`. `plan`: bit/s by link; `flows`: the
    same between hosts that had traffic.

    The partner of a host is the fastest, so that it is not the limit; of equally fast ones that to
    which the plan sends nothing, where no other traffic is in the way.
    """
    left = list(dict.fromkeys(link.rpartition(" ")[0] for link in due if link in plan))
    hosts = list(dict.fromkeys(link.rpartition(" ")[0] for link in plan))
    while left:
        host = left.pop(0)
        partners = [other for other in hosts if other != host]
        if not partners:
            return

        def rank(other: str, host: str = host) -> tuple[int, int, bool]:
            rate = min(plan[f"{other} out"], plan[f"{other} in"])
            busy = sum(pair in flows for pair in ((host, other), (other, host)))
            return rate, -busy, other in left  # which then needs no pair of its own

        partner = max(partners, key=rank)
        if partner in left:
            left.remove(partner)
        yield host, partner
