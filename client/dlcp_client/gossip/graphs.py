"""Gossip graphs: the neighbours of each rank, and their weights. Pure: no tensor, no session.

Graphs are the same for every rank up to a rotation: in a round, rank i takes the parameters of rank
i - d with `weights[d]`, for a few d. So each round's mixing matrix is circulant, W[i][(i - d) % n].
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.contract.errors import BadConfig

Round = Mapping[int, Fraction]  # offset d -> weight of the parameters of rank i - d; 0: its own


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph of `size` ranks that repeats `rounds`: step t uses round t mod period.

    Offsets are 0..size-1. Raises: BadConfig if a round's matrix is not doubly stochastic: exchanges
    would then change the mean of the ranks' parameters, or not make them converge.
    """

    name: str
    size: int
    rounds: tuple[Round, ...]

    def __post_init__(self) -> None:
        for number, weights in enumerate(self.rounds):
            if problem := _problem(weights, self.size):
                raise BadConfig(f"round {number} of the {self.name} of {self.size} ranks {problem}")

    @property
    def period(self) -> int:
        """Number of rounds."""
        return len(self.rounds)

    def sources(self, step: int) -> dict[int, Fraction]:
        """Offset d > 0 -> weight: in a step, rank i receives from i - d and sends to i + d."""
        return {d: weight for d, weight in self.rounds[step % self.period].items() if d}

    def matrix(self, step: int) -> NDArray[np.float64]:
        """W of a step, (size, size): rank i's new parameters are the sum over j of W[i, j] x_j."""
        mixing, ranks = np.zeros((self.size, self.size)), np.arange(self.size)
        for offset, weight in self.rounds[step % self.period].items():
            mixing[ranks, (ranks - offset) % self.size] = float(weight)
        return mixing

    @property
    def spectral_gap(self) -> float:
        """1 - the factor by which a step reduces differences between ranks, as the geometric mean
        of a period: 1 - |l|^(1 / period), l the second largest eigenvalue of the product of its
        matrices.

        1: the ranks are equal after a period. Circulant matrices commute and are normal, so their
        product's eigenvalues are products of discrete Fourier transforms of the weights, and bound
        the convergence from any start.
        """
        product = np.ones(self.size, dtype=np.complex128)
        for weights in self.rounds:
            column = np.zeros(self.size)
            for offset, weight in weights.items():
                column[offset] = float(weight)
            product *= np.fft.fft(column)
        second = float(np.abs(product[1:]).max())  # product[0] is 1: the mean is preserved
        # A value that is 0 except for rounding must not become large as a root of a high order.
        return 1.0 if second < 1e-12 else 1.0 - second ** (1 / self.period)


def _problem(weights: Round, size: int) -> str:
    """Why the matrix of a round is not doubly stochastic; "" if it is. Fractions avoid rounding."""
    if any(not 0 <= offset < size for offset in weights):
        return f"has offsets outside 0..{size - 1}"
    if any(weight < 0 for weight in weights.values()):
        return "has a negative weight"
    # Row i holds each weight once, at i - d, and so does column j, at j + d: all sums are equal.
    if (total := sum(weights.values())) != 1:
        return f"has rows and columns that add up to {total}, not 1"
    return ""


def ring(size: int) -> Graph:
    """Each rank averages with its two neighbours in every step, a third each. Two ranks: halves."""
    beside = sorted({1, size - 1})
    share = Fraction(1, 1 + len(beside))
    return Graph("ring", size, (dict.fromkeys([0, *beside], share),))


def exponential(size: int) -> Graph:
    """One peer per step: send to i + 2^k, receive from i - 2^k, k = t mod ceil(log2 size).

    If `size` is a power of two, all ranks are equal after log2 size steps without other changes.
    Every hop is below `size`, so no rank sends to itself. Source: Assran et al., Stochastic
    Gradient Push, ICML 2019; Ying et al., Exponential Graph is Provably Efficient for Decentralized
    Deep Training, NeurIPS 2021.
    """
    half = Fraction(1, 2)
    hops = (1 << k for k in range(math.ceil(math.log2(size))))
    return Graph("exponential", size, tuple({0: half, hop: half} for hop in hops))


GRAPHS: Final[Mapping[str, Callable[[int], Graph]]] = {"ring": ring, "exponential": exponential}


def checked_graph(name: Any) -> str:
    """`name`, if it is that of a graph. Raises: BadConfig saying what to write instead."""
    if not isinstance(name, str) or name not in GRAPHS:
        known = " or ".join(f'"{one}"' for one in GRAPHS)
        raise BadConfig(f"graph {name!r} is not known: use {known}")
    return name


def graph_of(name: str, size: int) -> Graph:
    """The graph of that name. Raises: BadConfig for one rank."""
    if size < 2:
        raise BadConfig(
            "a world of one rank has no neighbour to average with: train without gossip.register"
        )
    return GRAPHS[name](size)
