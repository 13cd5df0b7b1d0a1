"""Calls of ATen operations, recorded from torch's own samples, each divided and compared."""

import math
import random
import warnings
from collections.abc import Iterator
from contextlib import suppress
from random import Random
from typing import Any, Final, NamedTuple
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, fx
from torch.testing._internal import common_utils
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from dlcp_client.spmd.annotations import checked
from dlcp_client.spmd.capture import Captured, Kind, Port, Value
from dlcp_client.spmd.collectives import Position
from dlcp_client.spmd.costs import Costs
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.partitioner import Partition, held_as, left_as, partition_of
from dlcp_client.spmd.propagation import plan_of
from dlcp_client.spmd.rules.call import results_of
from dlcp_client.spmd.sharding import Sharding
from dlcp_client.spmd.simulation import simulate
from tests.spmd.chains import dims_for
from tests.spmd.one_device import shards, together

MAX_ELEMENTS: Final = 2000
BAD: Final = 100  # out of range as an index
SAMPLES: Final = 12  # of an operation
MESHES: Final = [Mesh({"a": 2}), Mesh({"a": 3}), Mesh({"a": 2, "b": 2})]
NETWORKS: Final = [Costs(latency=0.0, bytes_per_s=1.0), Costs(latency=0.0, work_per_s=1.0)]


class Recorded(NamedTuple):
    """One call. `key`: equal for calls that differ by values only."""

    target: Any
    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    key: str


class Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]  # torch has no types here
    """Keeps one call of each form that reaches ATen."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]  # likewise
        self.found: dict[str, Recorded] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        leaves = pytree.tree_leaves((args, kwargs))
        tensors = [one for one in leaves if isinstance(one, Tensor)]
        plain = all(type(one) is Tensor and one.layout == torch.strided for one in tensors)
        mutable = func._schema.is_mutable  # noqa: SLF001  # of an OpOverload
        if plain and not mutable and sum(one.numel() for one in tensors) <= MAX_ELEMENTS:
            form = pytree.tree_map(_form, (args, kwargs))
            key = f"{func} {form}"
            if key not in self.found:
                kept = pytree.tree_map(_copied, (args, kwargs))
                self.found[key] = Recorded(func, kept[0], kept[1], key)
        return func(*args, **kwargs)

    def runs(self, call: Recorded) -> bool:
        """Whether the call gives the same again: not one whose defaults torch has changed."""
        with suppress(NotImplementedError, RuntimeError):
            call.target(*call.args, **call.kwargs)
            return True
        return False


def _form(x: Any) -> Any:
    return (tuple(x.shape), x.dtype) if isinstance(x, Tensor) else x


def _copied(x: Any) -> Any:
    return x.detach().clone() if isinstance(x, Tensor) else x


def _seeded(seed: int = common_utils.SEED) -> None:
    """As torch's `set_rng_seed`, which also formats this thread's stack for each kind of device."""
    random.seed(seed)
    np.random.seed(seed)
    torch.default_generator.manual_seed(seed)


# For each operation torch looks for a `unittest.TestCase` on the stack, and for the source of each
# frame in all modules: under pytest that takes longer than all checks.
WITHOUT_LOOKS: Final = patch.multiple(
    common_utils, extract_test_fn=lambda: None, set_rng_seed=_seeded
)


def recorded(names: Any = None) -> Iterator[Recorded]:
    """The calls of forward and backward passes of torch's samples."""
    for op in op_db:
        if names is not None and op.name not in names:
            continue
        recorder = Recorder()
        torch.default_generator.manual_seed(0)
        # An operation may lack in this build of torch, and samples may warn.
        with WITHOUT_LOOKS, suppress(Exception), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            sampled: Any = op.sample_inputs
            samples = sampled("cpu", torch.double, requires_grad=True)
            for _, sample in zip(range(SAMPLES), samples, strict=False):
                with suppress(Exception):
                    _run(op, sample, recorder)
        yield from filter(recorder.runs, recorder.found.values())


def _run(op: Any, sample: Any, recorder: Recorder) -> None:
    with recorder:
        made = op(sample.input, *sample.args, **sample.kwargs)
        outs = [
            one for one in pytree.tree_leaves(made) if isinstance(one, Tensor) and one.requires_grad
        ]
        torch.autograd.backward(outs, [torch.randn_like(one) for one in outs])


class OneCall(NamedTuple):
    """A call as a program, its tensors, and its results."""

    captured: Captured
    given: list[Tensor]
    made: Any


def graph_of(call: Recorded) -> OneCall:
    """For any number of checks."""
    graph = fx.Graph()
    given: list[Tensor] = []
    inputs: list[Port] = []

    def put(x: Any) -> Any:
        if not isinstance(x, Tensor):
            return x
        node = graph.placeholder(f"x{len(given)}")
        node.meta["val"] = x
        inputs.append(Port(Kind.ARGUMENT, str(len(given)), Value(node)))
        given.append(x)
        return node

    args, kwargs = pytree.tree_map(put, (call.args, call.kwargs))
    torch.default_generator.manual_seed(0)  # `torch.manual_seed` takes longer than most calls
    made = call.target(*call.args, **call.kwargs)
    node = graph.call_function(call.target, tuple(args), kwargs)
    node.meta["val"] = made
    outputs = [
        Port(Kind.RESULT, str(at), Value(node, at))
        for at, one in enumerate(results_of(node))
        if one is not None
    ]
    graph.output(tuple(node for _ in outputs))
    spec = pytree.tree_structure(())
    captured = Captured(graph, tuple(inputs), tuple(outputs), spec, spec, {}, ())
    return OneCall(captured, given, made)


def divided(call: OneCall, random: Random) -> Partition:
    mesh = random.choice(MESHES)
    said = []
    for at, x in enumerate(call.given):
        dims = dims_for(random, x.shape, mesh) if x.dim() else ()
        said.append(checked(dims, mesh, x.shape, name=str(at), source="random"))
    return partition_of(plan_of(call.captured, mesh, {}, said), random.choice(NETWORKS))


def _with_bad_padding(shard: Tensor, x: Tensor, sharding: Sharding, of: Position) -> Tensor:
    """The shard, with padding that no call may use: earlier calls may have left any values."""
    number = x.is_floating_point() or x.is_complex()
    made = torch.full_like(shard, math.nan if number else BAD)
    pairs = zip(x.shape, sharding, strict=True)
    held = tuple(slice(of.mesh.rows_held(size, splits, of.at)) for size, splits in pairs)
    made[held] = shard[held]
    return made


def check(call: OneCall, random: Random) -> Partition:
    """Raises: AssertionError if the call on shards differs; BadConfig: it has no rule."""
    partition = divided(call, random)
    plan, mesh = partition.plan, partition.plan.mesh
    held = [held_as(plan, kind, value) for kind, _, value in plan.captured.inputs if value]
    each = [
        [
            _with_bad_padding(shards(x, sharding, mesh, rank), x, sharding, Position(mesh, rank))
            for x, sharding in zip(call.given, held, strict=True)
        ]
        for rank in range(mesh.ranks)
    ]
    outputs = simulate(partition.graph, mesh, each)
    results = [call.made] if isinstance(call.made, Tensor) else list(call.made)
    for at, (kind, name, value) in enumerate(plan.captured.outputs):
        assert value is not None
        right = results[int(name)]
        found = together(
            [one[at] for one in outputs], left_as(plan, kind, name, value), mesh, right.shape
        )
        torch.testing.assert_close(found, right, rtol=1e-7, atol=1e-7, equal_nan=True)
    return partition
