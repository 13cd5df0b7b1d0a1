"""The two graphs of a rank at work: shards are padded before, and gradients cut after."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from dlcpd.contract.errors import BadConfig

from .capture import Kind, Port, Value
from .coalescing import coalesced
from .collectives import padded
from .combined import combined
from .halves import halves_of
from .partitioner import Partition, held_as, left_as
from .runtime import GroupRanks
from .sharding import Sharding, text_of


class Program:
    """A divided graph on one rank.

    `stored`: the inputs that are parameters and buffers; `arguments`: the inputs of a caller.
    """

    def __init__(self, partition: Partition, ranks: GroupRanks) -> None:
        self.partition, self._ranks = partition, ranks
        captured = partition.plan.captured
        self._halves = halves_of(combined(coalesced(partition)), captured)
        self._primals = [port for port in captured.inputs if port.kind is not Kind.TANGENT]
        self._tangents = [int(port.name) for port in captured.inputs if port.kind is Kind.TANGENT]
        self._gradients = [port for port in captured.outputs if port.kind is Kind.GRADIENT]
        self._updates = [port for port in captured.outputs if port.kind is Kind.UPDATE]

    @property
    def stored(self) -> list[Port]:
        return [one for one in self._primals if one.kind in (Kind.PARAMETER, Kind.BUFFER)]

    @property
    def arguments(self) -> list[Port]:
        return [one for one in self._primals if one.kind is Kind.ARGUMENT]

    def held(self, port: Port) -> Sharding:
        """How this rank holds an input."""
        return held_as(self.partition.plan, port.kind, _value(port))

    def check(self, port: Port, x: Any) -> None:
        """Raises: BadConfig if an argument is not this rank's shard."""
        value, sharding = _value(port), self.held(port)
        shape = self._rows(value, sharding)
        if not isinstance(x, Tensor) or tuple(x.shape) != shape or x.dtype != value.tensor.dtype:
            given = f"{list(x.shape)} {x.dtype}" if isinstance(x, Tensor) else type(x).__name__
            raise BadConfig(
                f"argument {port.name} is {given}: this rank's shard of {list(value.shape)}, "
                f"divided as {text_of(sharding)}, is {list(shape)} {value.tensor.dtype}"
            )

    def __call__(self, given: Sequence[Tensor]) -> tuple[Tensor, ...]:
        """The results. `given`: shards of `stored`, then of `arguments`, without padding. Buffers
        among them change as those of the model do."""
        apply: Callable[..., tuple[Tensor, ...]] = _Pass.apply
        return apply(self, *given)

    def forward(self, given: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Results, and the tensors that the backward pass reads."""
        full = [self._padded(port, x) for port, x in zip(self._primals, given, strict=True)]
        self._ranks.seed += 1
        outputs = self._halves.forward(self._ranks, *full)
        results, end = self._halves.results, self._halves.results + self._halves.updates
        buffers = {port.name: x for port, x in zip(self._primals, given, strict=True)}
        for (kind, name, value), x in zip(self._updates, outputs[results:end], strict=True):
            if value is not None:
                sharding = left_as(self.partition.plan, kind, name, value)
                buffers[name].copy_(_cut(x, self._rows(value, sharding)))
        return outputs[:results], outputs[end:]

    def backward(self, saved: Sequence[Tensor], tangents: Sequence[Tensor]) -> list[Tensor | None]:
        """The gradients of the inputs of `forward`, without padding; None: there is none."""
        wanted = [tangents[number] for number in self._tangents]
        outputs = self._halves.backward(self._ranks, *saved, *wanted)
        found: dict[str, Tensor] = {}
        for (kind, name, value), x in zip(self._gradients, outputs, strict=True):
            if value is not None:
                sharding = left_as(self.partition.plan, kind, name, value)
                found[name] = _cut(x, self._rows(value, sharding))
        return [
            found.get(port.name) if port.kind is Kind.PARAMETER else None for port in self._primals
        ]

    def _rows(self, value: Value, sharding: Sharding) -> tuple[int, ...]:
        """The shape of this rank's shard without padding."""
        mesh = self._ranks.mesh
        return tuple(
            mesh.rows_held(size, splits, self._ranks.at)
            for size, splits in zip(value.shape, sharding, strict=True)
        )

    def _padded(self, port: Port, x: Tensor) -> Tensor:
        shape = self._ranks.mesh.local_shape(_value(port).shape, self.held(port))
        for dim, rows in enumerate(shape):
            x = padded(x, dim, rows)
        return x


def _value(port: Port) -> Value:
    if port.value is None:
        raise AssertionError(f"{port} is an input")
    return port.value


def _cut(x: Tensor, shape: Sequence[int]) -> Tensor:
    for dim, rows in enumerate(shape):
        x = x.narrow(dim, 0, rows)
    return x


class _Pass(torch.autograd.Function):
    """Both graphs as one function of autograd."""

    @staticmethod
    def forward(ctx: Any, program: Program, *given: Tensor) -> tuple[Tensor, ...]:
        results, saved = program.forward(given)
        ctx.program = program
        ctx.save_for_backward(*saved)
        ctx.mark_non_differentiable(*[one for one in results if not one.is_floating_point()])
        return results

    @staticmethod
    def backward(ctx: Any, *tangents: Tensor) -> tuple[Any, ...]:
        return None, *ctx.program.backward(ctx.saved_tensors, tangents)
