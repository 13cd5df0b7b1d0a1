"""Routes of an emulated ECMP network are found, and surplus paths aimed elsewhere."""

import random
from collections.abc import Callable

import pytest

from dlcpd.core.paths.route_search import DRAWS, SWEEPS, Address, RouteSearch
from dlcpd.core.paths.routes import MAX_HOPS, Routes

PEER = [("10.0.0.2", 5000 + port) for port in range(16)]
Network = Callable[[int, Address], list[str]]


def ecmp(spines: int, seed: int) -> Network:
    """A leaf hashes the port pair to a spine."""

    def hops(path: int, to: Address) -> list[str]:
        return ["leaf", f"spine {random.Random(f'{seed} {path} {to}').randrange(spines)}", "far"]

    return hops


def search(
    network: Network, endpoints: list[Address], *, silent: Callable[[int, int], bool] | None = None
) -> tuple[Routes, RouteSearch, int]:
    """Routes, the search when it ended, and the turns that it took."""
    routes, made = Routes(len(endpoints)), RouteSearch(endpoints)
    for turn in range(1, 1000):
        for path in made.probes():
            hops = network(path, made.aims[path])
            if made.hop <= len(hops) and not (silent and silent(turn, path)):
                made.on_answer(path, made.hop, hops[made.hop - 1])
        if not made.advance(routes):
            return routes, made, turn
    raise AssertionError("the search does not end")


def test_one_sweep_is_enough_where_all_answer() -> None:
    routes, made, turns = search(lambda path, to: ["leaf", f"spine {path}"], PEER[:2])
    assert routes.hops(1) == ["leaf", "spine 1"]
    assert (turns, made.aims) == (MAX_HOPS, PEER[:2])


def test_every_spine_is_found_although_the_first_ports_missed_one() -> None:
    missed = 0
    for seed in range(200):
        network = ecmp(4, seed)
        first = {network(path, to)[1] for path, to in enumerate(PEER)}
        routes, made, _ = search(network, PEER)
        missed += len(first) < 4
        assert len(set(routes.groups())) == 4
        for path, aim in enumerate(made.aims):
            assert routes.hops(path) == network(path, aim)
    assert missed > 2  # else this shows nothing


def test_what_carries_data_is_left_alone() -> None:
    network = ecmp(2, 1)
    routes, made, _ = search(network, PEER)
    carriers = [p for p in range(16) if p not in routes.surplus()]
    assert [made.aims[p] for p in carriers] == [PEER[p] for p in carriers]


def test_a_path_stays_on_its_rail() -> None:
    rails = [("10.0.0.2", 1), ("10.0.0.2", 2), ("10.0.1.2", 3), ("10.0.1.2", 4)]
    _, made, _ = search(lambda path, to: ["leaf"], rails)
    assert [host for host, _ in made.aims] == [host for host, _ in rails]


def test_rails_with_one_port_have_nowhere_else_to_go() -> None:
    _, _, turns = search(lambda path, to: ["leaf"], [("10.0.0.2", 1), ("10.0.1.2", 1)])
    assert turns == MAX_HOPS


def test_silence_is_asked_again_and_then_borne() -> None:
    routes, _, turns = search(lambda path, to: [], PEER[:4])
    assert turns == SWEEPS * MAX_HOPS
    assert routes.groups() == [0, 1, 2, 3]


def test_a_probe_that_was_lost_is_sent_again() -> None:
    routes, _, _ = search(
        lambda path, to: ["leaf", "spine"], PEER[:2], silent=lambda turn, path: turn == 2
    )
    assert routes.groups() == [0, 0]


def test_a_new_aim_that_nobody_answers_for_is_taken_back() -> None:
    end_of_first = MAX_HOPS
    routes, made, turns = search(
        lambda path, to: ["leaf", "spine"],
        PEER[:4],
        silent=lambda turn, path: turn > end_of_first and path == 2,
    )
    assert routes.groups() == [0, 0, 0, 0]
    assert made.aims[2] == PEER[2]
    assert turns <= MAX_HOPS * (1 + SWEEPS * (DRAWS - 1))


def test_asking_anew_starts_from_the_present_aims() -> None:
    _, made, _ = search(ecmp(2, 3), PEER)
    aims = list(made.aims)
    made.restart()
    assert made.probes() == list(range(16))
    assert (made.aims, made.hop) == (aims, 1)


@pytest.mark.parametrize(("path", "hop"), [(-1, 1), (2, 1), (0, 0), (0, MAX_HOPS + 1)])
def test_an_answer_that_makes_no_sense_is_ignored(path: int, hop: int) -> None:
    routes, made = Routes(2), RouteSearch(PEER[:2])
    made.on_answer(path, hop, "a")
    while made.advance(routes):
        pass
    assert routes.groups() == [0, 1]
