"""Optimizers on flat float32 arrays, in place: the arithmetic of torch's, without torch.

Pure: results depend on the arguments alone, so replaying a log of gradients gives the same bits.
Sources: torch.optim for SGD, Adam and AdamW; LAMB is algorithm 2 of You et al., Large Batch
Optimization for Deep Learning, ICLR 2020, with phi(z) = z.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlcp_client.ps.layout import ShardLayout
from dlcp_client.ps.specs import Settings

Array = NDArray[np.float32]
# Arguments: parameters, gradient, slots, number of the step from 1, settings of the group. Changes
# the parameters and slots; may change the gradient.
Update = Callable[[Array, Array, Sequence[Array], int, Settings], None]

BLOCK: Final = 64 << 10  # elements per call: with gradient, slots and temporaries 1.5 MiB of cache


@dataclass(frozen=True, slots=True)
class OptimizerKind:
    """`slots`: number of state arrays; `by_tensor`: whether it needs whole tensors."""

    update: Update
    slots: int
    by_tensor: bool = False


def _sgd(w: Array, g: Array, slots: Sequence[Array], step: int, settings: Settings) -> None:
    lr, momentum, dampening, weight_decay, nesterov = settings
    if weight_decay:
        g += weight_decay * w
    if momentum:
        [velocity] = slots
        if step == 1:
            velocity[:] = g  # torch applies no dampening in the first step
        else:
            velocity *= momentum
            velocity += (1 - dampening) * g
        g = g + momentum * velocity if nesterov else velocity
    w -= lr * g


def _moments(g: Array, slots: Sequence[Array], step: int, settings: Settings) -> Array:
    """Update both moments with `g`. Returns the direction of Adam, their corrected ratio."""
    _, beta1, beta2, eps, _ = settings
    first, second = slots
    first += (1 - beta1) * (g - first)
    second *= beta2
    second += (1 - beta2) * g * g
    scale: Array = np.sqrt(second)
    scale /= float((1 - beta2**step) ** 0.5)
    scale += eps
    direction: Array = first / scale
    direction /= 1 - beta1**step
    return direction


def _adam(w: Array, g: Array, slots: Sequence[Array], step: int, settings: Settings) -> None:
    lr, _, _, _, weight_decay = settings
    if weight_decay:
        g += weight_decay * w
    w -= lr * _moments(g, slots, step, settings)


def _adamw(w: Array, g: Array, slots: Sequence[Array], step: int, settings: Settings) -> None:
    lr, _, _, _, weight_decay = settings
    w *= 1 - lr * weight_decay
    w -= lr * _moments(g, slots, step, settings)


def _lamb(w: Array, g: Array, slots: Sequence[Array], step: int, settings: Settings) -> None:
    lr, _, _, _, weight_decay = settings
    direction = _moments(g, slots, step, settings)
    direction += weight_decay * w
    length, moved = _norm(w), _norm(direction)
    trust = length / moved if length and moved else 1.0
    w -= (lr * trust) * direction


def _norm(array: Array) -> float:
    return float(np.sqrt(np.sum(np.square(array, dtype=np.float64))))


KINDS: Final = {
    "sgd": OptimizerKind(_sgd, slots=1),
    "adam": OptimizerKind(_adam, slots=2),
    "adamw": OptimizerKind(_adamw, slots=2),
    "lamb": OptimizerKind(_lamb, slots=2, by_tensor=True),
}


class Optimizer:
    """One kind over the tensors of a shard. `slots` and `steps` are its whole state."""

    def __init__(self, kind: str, layout: ShardLayout) -> None:
        self._kind, self._layout = KINDS[kind], layout
        self.slots = [np.zeros(layout.size, np.float32) for _ in range(self._kind.slots)]
        self.steps = 0

    def step(self, w: Array, gradient: Array, groups: Sequence[Settings]) -> None:
        """Update `w` by `gradient`, which is overwritten, with the settings of each group.

        Overflow and NaN follow IEEE 754, without warnings.
        """
        self.steps += 1
        with np.errstate(all="ignore"):
            for (low, high), group in self._parts():
                slots = [slot[low:high] for slot in self.slots]
                settings = groups[group]
                self._kind.update(w[low:high], gradient[low:high], slots, self.steps, settings)

    def _parts(self) -> list[tuple[tuple[int, int], int]]:
        """The ranges of single updates, each with its group."""
        layout = self._layout
        if self._kind.by_tensor:
            groups = [tensor.group for tensor in layout.tensors]
            return [part for part in zip(layout.ranges, groups, strict=True) if part[0][1]]
        return [
            ((at, min(at + BLOCK, high)), group)
            for (low, high), group in layout.runs
            for at in range(low, high, BLOCK)
        ]
