"""A divided model as a module: its parameters are DTensors, if any is divided, its arguments local
shards."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any, Final

from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Placement, Replicate, Shard, distribute_tensor
from torch.utils import _pytree as pytree

from dlcpd.contract.errors import BadConfig

from .costs import Costs
from .measuring import measured_costs
from .meshes import Mesh
from .partitioner import REPLICATE_OVER
from .planning import Inputs, plan
from .program import Program
from .runtime import GroupRanks, check_equal, device_mesh
from .sharding import Sharding, axes_of, whole

MEASURED: Final = "measured"


def partition(
    model: nn.Module,
    mesh: Mesh,
    *,
    example: Sequence[Any],
    inputs: Inputs = (),
    costs: Costs | str | None = None,
    replicate_over: int = REPLICATE_OVER,
) -> "Partitioned":
    """The model on all ranks of the default group; `plan` says what the arguments are.

    Every rank calls this with the same model and example. Parameters begin with the values of
    rank 0. `model` is not changed. `costs`: as of `plan`, or "measured", which takes a second or a
    few, and is the same on all ranks.

    Raises: BadConfig naming the tensor, the line or the operation; RanksDisagree naming the first
    line of the program that differs between ranks.
    """
    devices = device_mesh(mesh, next((one.device.type for one in model.parameters()), "cpu"))
    if isinstance(costs, str):
        if costs != MEASURED:
            raise BadConfig(f'costs={costs!r:.40} is not valid: give Costs, or "{MEASURED}"')
        costs = measured_costs(mesh, devices)
    made = plan(
        model, mesh, example=example, inputs=inputs, costs=costs, replicate_over=replicate_over
    )
    check_equal(made.text)
    return Partitioned(Program(made, GroupRanks(mesh, devices)), model, devices)


@contextmanager
def measured(parallel: "Partitioned") -> Iterator[None]:
    """Passes inside are timed, from the first of them on: `explain(parallel)` then has the time
    that this rank spends in each collective, to begin it and to wait for it, and the bytes that it
    saves for the backward pass. Times of the other ranks differ."""
    with parallel._program.timed():  # noqa: SLF001  # no method: names are those of the model
        yield


class Partitioned(nn.Module):
    """This rank's part of a model. Names of parameters and buffers are those of the model.

    Call it with this rank's shards of the arguments that `inputs=` divides, and with all others as
    a whole. Results are whole on every rank. Shapes are those of the example.
    """

    def __init__(self, program: Program, model: nn.Module, devices: DeviceMesh) -> None:
        super().__init__()
        self._program = program
        self._place(model, devices)
        # Modules stay, their tensors may be replaced: by load_state_dict(assign=True), or by to().
        self._stored = [self._holder(port.name) for port in program.stored]

    def forward(self, *arguments: Any) -> Any:
        """The results of the model.

        Raises: BadConfig naming the argument that does not fit.
        """
        captured = self._program.partition.plan.captured
        leaves, nesting = pytree.tree_flatten(arguments)
        if nesting != captured.arguments:
            raise BadConfig(f"the arguments are nested as {nesting}: use {captured.arguments}")
        given = [getattr(holder, name) for holder, name in self._stored]
        for port in self._program.arguments:
            self._program.check(port, leaves[int(port.name)])
            given.append(leaves[int(port.name)])
        return pytree.tree_unflatten(self._program(given), captured.results)

    def compile(self, **given: Any) -> None:
        """Have the next step compile the calls between two collectives, each group of them as one
        function, which takes seconds. Results differ from those without by rounding. Copies of the
        module share it. `given`: as of torch.compile; without them, inductor. Where a compiler
        fails, a warning says why, and the calls run as before.

        Raises: BadConfig naming an argument of torch.compile that is fixed here.
        """
        self._program.compile(**given)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Partitioned":
        """The same program with parameters and buffers of its own, and no gradients: torch cannot
        copy a DTensor that is a part of other memory, as gradients are."""
        held = [(one, one.grad) for one in self.parameters()]
        for one, _ in held:
            one.grad = None
        try:
            made = memo[id(self)] = self.__class__.__new__(self.__class__)
            made.__dict__ = deepcopy(self.__dict__, memo)
        finally:
            for one, gradient in held:
                one.grad = gradient
        return made

    def _place(self, model: nn.Module, devices: DeviceMesh) -> None:
        """Shards of the model's tensors, in modules of the same names; tied ones stay tied. Plain
        tensors, if all are whole: an optimizer updates them with less CPU time."""
        held = {port.name: self._program.held(port) for port in self._program.stored}
        divided = any(map(any, held.values()))

        def placed(name: str, x: Tensor) -> Tensor:
            made = _distributed(x, held.get(name, whole(x.dim())), devices)
            return made if divided else made.to_local()

        saved = model.state_dict().keys()
        parameters: dict[int, nn.Parameter] = {}  # by id of the model's: the first name is planned
        for name, x in model.named_parameters(remove_duplicate=False):
            if id(x) not in parameters:
                shard = placed(name, x)
                parameters[id(x)] = nn.Parameter(shard, requires_grad=x.requires_grad)
            holder, last = self._holder(name)
            holder.register_parameter(last, parameters[id(x)])
        for name, buffer in model.named_buffers(remove_duplicate=False):
            shard = placed(name, buffer)
            holder, last = self._holder(name)
            holder.register_buffer(last, shard, persistent=name in saved)

    def _holder(self, name: str) -> tuple[nn.Module, str]:
        """The module that holds a tensor, made if need be, and the last part of the name."""
        *parts, last = name.split(".")
        holder: nn.Module = self
        for part in parts:
            if part not in dict(holder.named_children()):
                holder.add_module(part, nn.Module())
            holder = holder.get_submodule(part)
        return holder, last


def _distributed(x: Tensor, sharding: Sharding, devices: DeviceMesh) -> DTensor:
    """The tensor of rank 0, divided."""
    placements: list[Placement] = []
    for axis in devices.mesh_dim_names or ():
        dims = [dim for dim, splits in enumerate(sharding) if axis in axes_of(splits)]
        placements.append(Shard(dims[0]) if dims else Replicate())
    return distribute_tensor(x.detach().clone(), devices, placements)  # which may keep its input
