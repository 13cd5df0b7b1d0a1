"""Paths whose routers answered alike share a route; who is silent is taken for different."""

import pytest

from dlcpd.core.paths.routes import Routes


def routes(*hops: list[str]) -> Routes:
    made = Routes(len(hops))
    for path, routers in enumerate(hops):
        made.learn(path, routers)
    return made


@pytest.mark.parametrize(
    ("hops", "groups", "surplus"),
    [
        ([["a", "b"], ["a", "b"], ["a", "c"]], [0, 0, 1], [1]),
        ([["a", "b"], ["?", "b"], ["a", "b"]], [0, 1, 0], [2]),
        ([[], []], [0, 1], []),
        ([["a"], [], ["a"]], [0, 1, 0], [2]),
    ],
    ids=str,
)
def test_equal_routers_are_one_route(
    hops: list[list[str]], groups: list[int], surplus: list[int]
) -> None:
    made = routes(*hops)
    assert (made.groups(), made.surplus()) == (groups, surplus)


def test_only_news_is_news() -> None:
    made = routes(["a"])
    assert not made.learn(0, ["a"])
    assert made.learn(0, ["b"])
    assert made.hops(0) == ["b"]
