"""How long each layer computes, and what an order of gradients could be worth at best. Pure."""

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
    line: float  # its gradients alone on the line, at its full rate


def on_the_line(network: Sequence[Layer], *, bits_per_second: float, hosts: int) -> float:
    """Seconds that every host's line is busy with a step's gradients, at the least: 2(n-1)/n."""
    passes = 2 * (hosts - 1) / hosts
    return parameters(network) * FLOAT * 8 * passes / bits_per_second


def paces(network: Sequence[Layer], line: float, ratio: float) -> list[Pace]:
    """Computation of `line / ratio` in all, shared out by multiply-adds."""
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
    """A step that waits for all gradients, sent one after the other as they become ready.

    What is tied becomes ready with the layer that uses it first, which is last.
    """
    now, free = 0.0, 0.0
    for pace in reversed(found):
        now += pace.backward
        free = max(free, now) + pace.line
    return max(now, free) + sum(pace.forward for pace in found)


def crossing_at_best(found: Sequence[Pace]) -> float:
    """No step can be shorter when each layer of the forward pass waits for its own gradients.

    The gradients of the first layers, up to any one, become ready not before that one's backward
    pass and are needed by its forward pass: between these lies what the layers before it compute.
    """
    best = whole = compute(found)
    between, line = 0.0, 0.0
    for pace in found:
        line += pace.line
        best = max(best, whole - between + line)
        between += pace.forward + pace.backward
    return best
