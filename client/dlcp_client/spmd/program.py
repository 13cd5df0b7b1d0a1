"""The two graphs of a rank at work: shards are padded before, and gradients cut after."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, fx
from torch.distributed.tensor import DTensor

from dlcpd.contract.errors import BadConfig

from .capture import Kind, Port, Value
from .coalescing import coalesced
from .collectives import padded
from .combined import combined
from .compiled import compiled
from .halves import halves_of
from .overlapped import overlapped
from .partitioner import Partition, held_as, left_as
from .private_torch import gradient_of
from .runtime import GroupRanks
from .sharding import Sharding, text_of
from .timing import Times


class Program:
    """A divided graph on one rank.

    `stored`: the inputs that are parameters and buffers; `arguments`: the inputs of a caller.
    """

    def __init__(self, partition: Partition, ranks: GroupRanks) -> None:
        self.partition, self._ranks = partition, ranks
        captured = partition.plan.captured
        made = overlapped(coalesced(partition), partition.costs)
        self._one_by_one = halves_of(combined(made), captured)
        self._halves = self._one_by_one  # or compiled
        self.times = Times(self._halves)
        self._timed = False
        self._primals = [port for port in captured.inputs if port.kind is not Kind.TANGENT]
        self._tangents = [int(port.name) for port in captured.inputs if port.kind is Kind.TANGENT]
        self._gradients = [port for port in captured.outputs if port.kind is Kind.GRADIENT]
        self._updates = [port for port in captured.outputs if port.kind is Kind.UPDATE]
        # Once: a step has a hundred of them. With padding, and without.
        mesh = ranks.mesh
        self._full = [mesh.local_shape(_value(one).shape, self.held(one)) for one in self._primals]
        self._left = {
            port: self._rows(port.value, left_as(partition.plan, port.kind, port.name, port.value))
            for port in (*self._gradients, *self._updates)
            if port.value is not None
        }

    def __deepcopy__(self, memo: Any) -> "Program":
        """Copies of a module share it: only `compile` and the seed of its next mask change it."""
        return self

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
        """The results. `given`: `stored` as DTensors, then this rank's shards of `arguments`,
        without padding. Buffers among them change as those of the model do."""
        apply: Callable[..., tuple[Tensor, ...]] = _Pass.apply
        return apply(self, *given)

    def without_gradient(self, results: Sequence[Tensor]) -> list[Tensor]:
        """The results that the backward pass does not begin at."""
        return [one for at, one in enumerate(results) if at not in self._tangents]

    def compile(self, **given: Any) -> None:
        """As `Partitioned.compile`."""
        self._halves = compiled(self._one_by_one, given)
        self.times = Times(self._halves)

    def forward(self, given: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Results, and the tensors that the backward pass reads. `given`: all as shards."""
        full = [_padded(x, shape) for x, shape in zip(given, self._full, strict=True)]
        self._ranks.seed += 1
        outputs = self._run(self._halves.forward, *full)
        results, end = self._halves.results, self._halves.results + self._halves.updates
        buffers = {port.name: x for port, x in zip(self._primals, given, strict=True)}
        for port, x in zip(self._updates, outputs[results:end], strict=True):
            if port in self._left:
                buffers[port.name].copy_(_cut(x, self._left[port]))
        if self._timed:
            self.times.save(outputs[end:], given)
        return outputs[:results], outputs[end:]

    def backward(self, saved: Sequence[Tensor], tangents: Sequence[Tensor]) -> list[Tensor | None]:
        """The gradients of the inputs of `forward`, without padding; None: there is none."""
        wanted = [tangents[number] for number in self._tangents]
        outputs = self._run(self._halves.backward, *saved, *wanted)
        found: dict[str, Tensor] = {}
        for port, x in zip(self._gradients, outputs, strict=True):
            if port in self._left:
                found[port.name] = _cut(x, self._left[port])
        return [
            found.get(port.name) if port.kind is Kind.PARAMETER else None for port in self._primals
        ]

    @contextmanager
    def timed(self) -> Iterator[None]:
        """Passes inside add to `times`, which begin anew."""
        self.times, self._timed = Times(self._halves), True
        try:
            yield
        finally:
            self._timed = False

    def _run(self, half: fx.GraphModule, *given: Tensor) -> Any:
        return (
            self.times.run(half, self._ranks, *given) if self._timed else half(self._ranks, *given)
        )

    def _rows(self, value: Value, sharding: Sharding) -> tuple[int, ...]:
        """The shape of this rank's shard without padding."""
        mesh = self._ranks.mesh
        return tuple(
            mesh.rows_held(size, splits, self._ranks.at)
            for size, splits in zip(value.shape, sharding, strict=True)
        )


def _value(port: Port) -> Value:
    if port.value is None:
        raise AssertionError(f"{port} is an input")
    return port.value


def _shard(x: Tensor) -> Tensor:
    """This rank's, if it is divided."""
    return x.to_local() if isinstance(x, DTensor) else x


def _padded(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    for dim, rows in enumerate(shape if x.shape != shape else ()):
        x = padded(x, dim, rows)
    return x


def _cut(x: Tensor, shape: tuple[int, ...]) -> Tensor:
    if x.shape == shape:
        return x
    for dim, rows in enumerate(shape):
        x = x.narrow(dim, 0, rows)
    return x


class _Pass(torch.autograd.Function):
    """Both graphs as one function of autograd, of DTensors and of this rank's arguments."""

    @staticmethod
    def forward(ctx: Any, program: Program, *given: Tensor) -> tuple[Tensor, ...]:
        ctx.program, ctx.stored = program, given[: len(program.stored)]
        results, saved = program.forward([_shard(x) for x in given])
        ctx.save_for_backward(*saved)
        ctx.mark_non_differentiable(*program.without_gradient(results))
        return results

    @staticmethod
    def backward(ctx: Any, *tangents: Tensor) -> tuple[Any, ...]:
        if torch.is_grad_enabled():  # the gradients would be constants to autograd
            raise BadConfig("spmd has no gradients of gradients: leave out create_graph=True")
        gradients = ctx.program.backward(ctx.saved_tensors, tangents)
        divided = [
            gradient_of(x, shard) if shard is not None and isinstance(x, DTensor) else shard
            for x, shard in zip(ctx.stored, gradients, strict=False)
        ]
        return None, *divided, *gradients[len(divided) :]
