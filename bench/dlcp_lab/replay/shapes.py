"""A network as parameter shapes and arithmetic per layer, and its scaled copy. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final

FLOAT: Final = 4  # bytes of a float32

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layer:
    """A part of a network that runs as one module.

    `macs` are the multiply-adds of one sample's forward pass in matrices and convolutions; norms,
    biases, activations and look-ups count as 0.
    """

    name: str
    shapes: tuple[Shape, ...]
    macs: int = 0
    lookup: bool = False  # an embedding's table
    tied_to: str = ""  # name of an earlier layer whose first parameter this one uses

    @property
    def parameters(self) -> int:
        """Number of its own parameters; a tied one does not count."""
        return sum(prod(shape) for shape in self.shapes)


Network = tuple[Layer, ...]  # in order of the forward pass


def parameters(network: Sequence[Layer]) -> int:
    """Number of parameters; tied ones count once."""
    return sum(layer.parameters for layer in network)


def scaled(network: Network, scale: float) -> Network:
    """Every parameter with `scale` of its elements; arithmetic, order and dimensions stay.

    A matrix becomes a column: the number of elements matters to a transport, their rows do not, and
    a row of a small matrix can have more elements than the scaled matrix.
    """
    if scale == 1.0:
        return network
    return tuple(
        replace(layer, shapes=tuple(_scaled(shape, scale) for shape in layer.shapes))
        for layer in network
    )


def _scaled(shape: Shape, scale: float) -> Shape:
    return (max(1, round(prod(shape) * scale)), *(1 for _ in shape[1:]))
