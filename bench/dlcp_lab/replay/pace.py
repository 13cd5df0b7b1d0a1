"""Computation time per layer, and the least step time with and without cross-step. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from dlcp_lab.replay.shapes import FLOAT, Layer, parameters

FORWARD: Final = 1 / 3  # of a step's computation; a backward pass has two products for each one


@dataclass(frozen=True, slots=True)
class Pace:
    """A layer's times, in seconds."""

    forward: float
    backward: float
    line: float  # its gradients alone on the line, at full rate


def on_the_line(network: Sequence[Layer], *, bits_per_second: float, hosts: int) -> float:
    """Least seconds that a step's gradients keep each host's line busy: 2(n-1)/n of their size."""
    passes = 2 * (hosts - 1) / hosts
    return parameters(network) * FLOAT * 8 * passes / bits_per_second


def paces(network: Sequence[Layer], line: float, ratio: float) -> list[Pace]:
    """Computation of `line / ratio` seconds in all, divided in proportion to multiply-adds."""
    macs = sum(layer.macs for layer in network)
    count, compute = parameters(network), line / ratio
    return [
        Pace(
            compute * FORWARD * layer.macs / macs,
            compute * (1 - FORWARD) * layer.macs / macs,
            line * layer.parameters / count,
        )
        for layer in network
    ]


def compute(found: Sequence[Pace]) -> float:
    """Seconds of computation per step."""
    return sum(pace.forward + pace.backward for pace in found)


def waiting_at_best(found: Sequence[Pace]) -> float:
    """Least seconds of a step that waits for all gradients, sent in the order they become ready.

    A tied gradient becomes ready with the layer that uses it first, which is last.
    """
    now, free = 0.0, 0.0
    for pace in reversed(found):
        now += pace.backward
        free = max(free, now) + pace.line
    return max(now, free) + sum(pace.forward for pace in found)


def crossing_at_best(found: Sequence[Pace]) -> float:
    """Least seconds of a step in which each layer's forward pass waits for its own gradients only.

    The gradients of layers 0..k are ready after the backward pass of layer k at the earliest, and
    its next forward pass needs them. Only layers 0..k-1 compute in between.
    """
    best = whole = compute(found)
    between, line = 0.0, 0.0
    for pace in found:
        line += pace.line
        best = max(best, whole - between + line)
        between += pace.forward + pace.backward
    return best
