"""A network as its layers' parameter shapes and arithmetic, and the same made smaller. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final

FLOAT: Final = 4  # bytes of a float32

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Layer:
    """What runs as one module.

    `macs` are the multiply-adds of one sample's forward pass, those of matrices and convolutions
    alone: norms, biases, activations and look-ups count as nothing.
    """

    name: str
    shapes: tuple[Shape, ...]
    macs: int = 0
    lookup: bool = False  # an embedding's table
    tied_to: str = ""  # name of the layer before, whose first parameter is used once more

    @property
    def parameters(self) -> int:
        """Count, of its own."""
        return sum(prod(shape) for shape in self.shapes)


Network = tuple[Layer, ...]  # in order of the forward pass


def parameters(network: Sequence[Layer]) -> int:
    """Count; what is tied counts once."""
    return sum(layer.parameters for layer in network)


def scaled(network: Network, scale: float) -> Network:
    """Every parameter with `scale` of its elements; arithmetic, order and dimensions stay.

    A matrix becomes a column: which row an element is in does not matter to a transport, but
    how many there are does, and a row of a small matrix can be larger than its share.
    """
    if scale == 1.0:
        return network
    return tuple(
        replace(layer, shapes=tuple(_scaled(shape, scale) for shape in layer.shapes))
        for layer in network
    )


def _scaled(shape: Shape, scale: float) -> Shape:
    return (max(1, round(prod(shape) * scale)), *(1 for _ in shape[1:]))
