"""Who averages with whom: every matrix doubly stochastic, every period brings ranks together."""

from fractions import Fraction

import numpy as np
import pytest

from dlcp_client.gossip.graphs import GRAPHS, Graph, checked_graph, graph_of
from dlcpd.contract.errors import BadConfig

SIZES = range(2, 18)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", GRAPHS)
def test_every_matrix_and_their_product_are_doubly_stochastic(name: str, size: int) -> None:
    graph = graph_of(name, size)
    product = np.eye(size)
    for step in range(2 * graph.period):
        mixing = graph.matrix(step)
        product = mixing @ product
        for one in (mixing, product):
            assert (one >= 0).all()
            assert np.allclose(one.sum(0), 1) and np.allclose(one.sum(1), 1)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", GRAPHS)
def test_the_spectral_gap_is_that_of_the_product(name: str, size: int) -> None:
    graph = graph_of(name, size)
    product = (
        np.linalg.multi_dot([*map(graph.matrix, range(graph.period)), np.eye(size)])
        if graph.period > 1
        else graph.matrix(0)
    )
    second = np.linalg.svd(product, compute_uv=False)[1]
    assert graph.spectral_gap > 0.04
    assert (1 - graph.spectral_gap) ** graph.period == pytest.approx(second, abs=1e-12)


@pytest.mark.parametrize("size", [2, 4, 8, 16])
def test_a_power_of_two_is_in_consensus_after_a_period(size: int) -> None:
    graph = graph_of("exponential", size)
    product = np.eye(size)
    for step in range(graph.period):
        product = graph.matrix(step) @ product
    assert np.allclose(product, 1 / size) and graph.spectral_gap == 1


@pytest.mark.parametrize("size", SIZES)
def test_neighbours_are_those_of_the_definition(size: int) -> None:
    ring, hops = graph_of("ring", size), graph_of("exponential", size)
    share = Fraction(1, 2) if size == 2 else Fraction(1, 3)
    assert ring.sources(5) == {1: share, size - 1: share}
    assert hops.period == (size - 1).bit_length()
    for step in range(2 * hops.period):
        assert hops.sources(step) == {2 ** (step % hops.period): Fraction(1, 2)}


@pytest.mark.parametrize(
    ("weights", "text"),
    [
        ({0: Fraction(1, 2), 1: Fraction(1, 3)}, "add up to 5/6"),
        ({0: Fraction(3, 2), 1: Fraction(-1, 2)}, "negative"),
        ({0: Fraction(1, 2), 4: Fraction(1, 2)}, "outside 0..3"),
    ],
)
def test_a_matrix_that_is_not_doubly_stochastic_is_refused(
    weights: dict[int, Fraction], text: str
) -> None:
    with pytest.raises(BadConfig, match=text):
        Graph("ring", 4, (weights,))


@pytest.mark.parametrize("name", ["star", "", None, ["ring"]])
def test_an_unknown_graph_is_refused(name: object) -> None:
    with pytest.raises(BadConfig, match='use "ring" or "exponential"'):
        checked_graph(name)


def test_one_rank_has_nobody_to_average_with() -> None:
    with pytest.raises(BadConfig, match="world of one rank"):
        graph_of("ring", 1)
