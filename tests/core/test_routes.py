"""Paths whose routers answered alike share a route; who is silent is taken for different."""

import pytest

from dlcpd.core.routes import MAX_HOPS, Routes


def routes(*hops: list[str]) -> Routes:
    made = Routes(len(hops))
    for path, routers in enumerate(hops):
        for hop, router in enumerate(routers, 1):
            if router != "?":
                made.found(path, hop, router)
    return made


@pytest.mark.parametrize(
    ("hops", "groups"),
    [
        ([["a", "b"], ["a", "b"], ["a", "c"]], [0, 0, 1]),
        ([["a", "b"], ["?", "b"], ["a", "b"]], [0, 1, 0]),
        ([[], []], [0, 1]),
        ([["a"], [], ["a"]], [0, 1, 0]),
    ],
    ids=str,
)
def test_equal_routers_are_one_route(hops: list[list[str]], groups: list[int]) -> None:
    assert routes(*hops).groups() == groups


def test_a_silent_router_has_its_place() -> None:
    assert routes(["?", "b", "?", "d"]).hops(0) == ["?", "b", "?", "d"]


def test_only_news_is_news() -> None:
    made = routes(["a"])
    assert not made.found(0, 1, "a")
    assert made.found(0, 1, "b")


@pytest.mark.parametrize(("path", "hop"), [(-1, 1), (2, 1), (0, 0), (0, MAX_HOPS + 1)])
def test_an_answer_that_makes_no_sense_is_ignored(path: int, hop: int) -> None:
    made = Routes(2)
    assert not made.found(path, hop, "a")
    assert made.groups() == [0, 1]


def test_a_route_can_be_forgotten() -> None:
    made = routes(["a", "b"], ["a", "c"])
    made.forget(1)
    assert made.hops(1) == []
