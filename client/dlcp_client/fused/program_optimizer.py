"""Optimizers of torch whose update is a program of the language, run by a generated kernel."""

import threading
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import Any, Final, Self

import torch
from torch import Tensor
from torch.optim import Optimizer

from dlcp_client.fused.language.kernels import (
    BLOCK,
    FlatPiece,
    OperandKind,
    checked_kernel,
    kernel_for,
    region_of,
)
from dlcp_client.fused.language.layouts import shape_of
from dlcp_client.fused.language.program import FusedProgram, Number, Source
from dlcp_client.fused.language.tuning.candidates import kept
from dlcp_client.fused.saved_state import check_saved
from dlcp_client.quantities import number as checked_number
from dlcpd.contract.errors import BadConfig, BadTensor

TIME: Final = "t"  # the input that counts updates, from 1 on


class FlatUpdate:
    """The computation of a program between its reduction and its gather, on flat tensors of one
    dtype and any length."""

    def __init__(self, source: Source, dtype: torch.dtype, kernel: str, **constants: Any) -> None:
        """Compile, which takes seconds for the first time. Raises: BadConfig naming what is not
        elementwise, or an input."""
        program = _one_operation(source(shape=(BLOCK,), dtype=dtype, **constants))
        [gather] = program.named("all_gather")
        self._region = region_of(program, gather)
        self._kernel = kernel_for(program, self._region, kernel)
        self._program = program
        self._alone = threading.Lock()  # a compiled kernel has memory of its own
        self.states = [node.name for node in self._region.states]
        self.reduced = self._region.scatter.all_input_nodes[0].name
        self.weights = self._region.weights

    def run(self, given: Mapping[str, Tensor], into: Tensor) -> None:
        """Write the gathered result to `into`, which may be an operand, and new values to the
        states. `given`: all inputs by name; the reduced one has its sum."""
        values = self._numbers(given)
        operands = [
            values[node.name] if kind is OperandKind.NUMBER else given[node.name]
            for kind, node in self._region.operands
        ]
        results = [into, *(given[name] for name in self.states)]
        with self._alone, torch.no_grad():
            self._kernel.run(FlatPiece(0, operands, results, values))

    def _numbers(self, given: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The values of all nodes without dimensions."""
        found = {name: one for name, one in given.items() if not one.dim()}
        for node in self._program.graph.nodes:
            if node.op == "call_function" and not shape_of(node):
                args, kwargs = torch.fx.node.map_arg(
                    (node.args, node.kwargs), lambda one: found[one.name]
                )
                found[node.name] = node.target(*args, **kwargs)
        return found


def step_each(
    optimizer: Optimizer,
    closure: Callable[[], Any] | None,
    step: Callable[[Tensor, Tensor, Mapping[str, Any]], None],
) -> Any:
    """`Optimizer.step`: call `step` for each parameter that has a gradient, with the gradient and
    its group. Returns the loss of `closure`. Raises: BadTensor."""
    loss = None
    if closure is not None:
        with torch.enable_grad():
            loss = closure()
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            if parameter.grad is not None:
                if parameter.grad.layout != torch.strided:
                    raise BadTensor("a gradient is sparse: use sparse=False in the embedding")
                step(parameter, parameter.grad, group)
    return loss


class ProgramOptimizer(Optimizer):
    """Updates each parameter by a program: alone, or in `fused.register`."""

    def __init__(
        self,
        params: Iterable[Any],
        program: Source,
        lr: float = 1e-3,
        *,
        kernel: str = "auto",
        **settings: Any,
    ) -> None:
        """Compile the program, which takes seconds for the first time.

        Args:
            params: as of torch.optim.
            program: its all-reduce is of the gradient, and each operation behind it is elementwise;
                it updates and returns the weights, and updates its state, which begins at 0. Its
                numbers are `t`, which counts updates, and settings of groups, such as `lr`.
            kernel: "torch", "inductor", "eager", or "auto": the first of them that works.
            settings: values of its other numbers, by default of all groups; and of its keyword-only
                parameters, which are the same for all groups.

        Raises: BadConfig; BadTensor of a parameter that is not contiguous.
        """
        if not isinstance(program, Source):
            raise BadConfig(f"program={program!r:.40} is not valid: give a function of @program")
        self.program, self.kernel = program, checked_kernel(kernel)
        numbers = {name for name, kind in program.declared.items() if not _is_tensor(kind)}
        self._counts = TIME in numbers
        defaults = {name: settings.pop(name, None) for name in sorted(numbers - {TIME, "lr"})}
        if missing := [name for name, value in defaults.items() if value is None]:
            raise BadConfig(f"program {self._name} has a number {missing[0]!r}: give its value")
        program.check_constants(settings)
        self.constants = settings
        self._updates: dict[torch.dtype, FlatUpdate] = {}
        for name, value in defaults.items():
            check_setting(name, value, least=-inf)
        check_setting("lr", lr)
        super().__init__(params, {"lr": lr, **defaults})
        self._settings = [name for name in ("lr", *defaults) if name in numbers]
        for group in self.param_groups:
            for parameter in group["params"]:
                self._update_of(parameter)

    @property
    def state_names(self) -> list[str]:
        """The inputs that are state."""
        return next(iter(self._updates.values())).states

    def of_parts(self, tensors: Iterable[Tensor]) -> Self:
        """An optimizer of other tensors, by the same kernels."""
        options = {**self.defaults, **self.constants}
        return type(self)(tensors, self.program, kernel=self.kernel, **options)

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """As of torch.optim. Raises: BadConfig for the state of another optimizer or model."""
        check_saved(self, state_dict, self.state_names)
        super().load_state_dict(state_dict)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """Update every parameter that has a gradient."""
        return step_each(self, closure, self._step)

    def _step(self, parameter: Tensor, gradient: Tensor, group: Mapping[str, Any]) -> None:
        update, state = self._update_of(parameter), self.state[parameter]
        if not state:
            state["step"] = torch.tensor(0.0)
            for name in update.states:
                state[name] = torch.zeros_like(parameter)
        state["step"] += 1
        given = {name: number(group[name]) for name in self._settings}
        if self._counts:
            given[TIME] = number(state["step"])
        given |= {name: state[name].view(-1) for name in update.states}
        weights = parameter.view(-1)
        assert update.weights is not None  # noqa: S101  # `_update_of` has looked
        given |= {update.reduced: gradient.reshape(-1), update.weights.name: weights}
        update.run(given, weights)

    def _update_of(self, parameter: Tensor) -> FlatUpdate:
        """Raises: BadConfig, BadTensor."""
        if not parameter.is_contiguous():
            raise BadTensor("a program updates contiguous parameters: make this one contiguous")
        found = self._updates.get(parameter.dtype)
        if found is None:
            kernel = kernel_on(parameter.device, self.kernel)
            found = flat_update(self.program, parameter.dtype, kernel, self.constants)
            known = {found.reduced, *found.states}
            if found.weights is None:
                raise BadConfig(f"program {self._name} must update the weights that it returns")
            known.add(found.weights.name)
            tensors = {name for name, kind in self.program.declared.items() if _is_tensor(kind)}
            if strange := sorted(tensors - known):
                raise BadConfig(
                    f"input {strange[0]!r} of program {self._name} is not the gradient, the "
                    f"weights, or a state that it updates: an optimizer has no other tensors"
                )
            self._updates[parameter.dtype] = found
        return found

    @property
    def _name(self) -> str:
        return self.program.function.__name__


def check_setting(name: str, value: Any, least: float = 0, below: float = inf) -> None:
    """Raises: BadConfig unless it is a number in this range, or a tensor of one element."""
    one = isinstance(value, Tensor) and value.numel() == 1
    checked_number(name, value.item() if one else value, least, below)


_made: Final[dict[Any, FlatUpdate]] = {}  # one for each program and dtype that a training has


def flat_update(
    source: Source, dtype: torch.dtype, kernel: str, constants: Mapping[str, Any]
) -> FlatUpdate:
    """The same one each time. Raises: as FlatUpdate."""
    key = source, dtype, kernel, repr(sorted(constants.items()))
    if key not in _made:
        _made[key] = FlatUpdate(source, dtype, kernel, **constants)
    return _made[key]


def kernel_on(device: torch.device, kernel: str) -> str:
    """The kernel for tensors of a device: generated ones are for the CPU."""
    return kernel if device.type == "cpu" else "eager"


def _one_operation(program: FusedProgram) -> FusedProgram:
    """The program with a single operation of the group. Raises: BadConfig naming the node that
    prevents it."""
    reductions = program.named("all_reduce")
    if len(reductions) != 1:
        raise BadConfig(
            f"program {program.name} has {len(reductions)} all_reduce operations: an optimizer has "
            f"one, of the gradient"
        )
    scatter, gather = program.split(reductions[0])
    program.reorder(gather)
    program.as_slice(*kept(program))
    gathers = program.named("all_gather")
    if len(gathers) != 1:
        raise BadConfig(
            f"program {program.name} returns {len(gathers)} tensors that ranks compute: return the "
            f"weights alone"
        )
    program.fuse(scatter, gathers[0])
    return program


def _is_tensor(kind: Any) -> bool:
    """Whether an input is a tensor with dimensions."""
    return not isinstance(kind, Number)


def number(value: Any) -> Tensor:
    """An input without dimensions."""
    return torch.tensor(float(value), dtype=torch.float64)
