"""Pairs of hosts that are probed, as their traffic says nothing of some links."""

from hypothesis import given
from hypothesis import strategies as st

from dlcpd.planning.unseen import ends, pairs_to_probe

PLAN = {
    f"{host} {way}": rate
    for host, rate in zip("abcd", (20, 20, 100, 100), strict=True)
    for way in ("out", "in")
}


def test_the_partner_is_the_fastest_host() -> None:
    assert list(pairs_to_probe(["a out"], PLAN)) == [("a", "c")]


def test_one_pair_shows_both_hosts() -> None:
    assert list(pairs_to_probe(["c in", "d out"], PLAN)) == [("c", "d")]


def test_hosts_that_are_not_in_the_plan_are_not_probed() -> None:
    assert list(pairs_to_probe(["x out"], PLAN)) == []
    assert list(pairs_to_probe(["a out"], {"a out": 1, "a in": 1})) == []


@given(due=st.sets(st.sampled_from(sorted(PLAN))))
def test_the_pairs_cross_all_links_that_are_due(due: set[str]) -> None:
    pairs = list(pairs_to_probe(sorted(due), PLAN))
    crossed = {link for a, b in pairs for way in ((a, b), (b, a)) for link in ends(*way)}
    assert due <= crossed and len(pairs) <= len({link[0] for link in due})
