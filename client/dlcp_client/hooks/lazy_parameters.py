"""Parameters whose averaged gradient is awaited: reading them waits for it.

Between the backward pass and their update they have the class LazyParameter. Python calls it for
`.grad`, and every torch function that gets one calls it first (`__torch_function__`). So no code
sees a gradient that is not averaged, or a weight that is not updated, and only the use of a
parameter waits for it. After the update they are ordinary parameters again.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Protocol, cast

import torch
from torch import nn
from torch._compile import _disable_dynamo

from dlcp_client.operations.work import Work
from dlcpd.contract.errors import DlcpError

COMPILED: Final = "_orig_mod"  # attribute of torch.compile(module) that holds the module
_SLOT: Final = cast(Any, torch.Tensor.grad)  # .grad of C++; DDP writes local gradients to it
# Functions that do not depend on a parameter's value. All others wait.
_HARMLESS: Final = frozenset(
    cast(Any, getter).__get__
    for getter in (
        torch.Tensor.shape,
        torch.Tensor.dtype,
        torch.Tensor.device,
        torch.Tensor.requires_grad,
        torch.Tensor.is_leaf,
        torch.Tensor.is_sparse,
        torch.Tensor.ndim,
        torch.Tensor.layout,
    )
) | {torch.Tensor.numel, torch.Tensor.size, torch.Tensor.dim}


class PendingUpdate(Protocol):
    """A requested optimizer step that is not yet applied to all of its parameters."""

    def apply(self, parameters: list[nn.Parameter]) -> None:
        """Update these parameters; their `.grad` is the averaged one."""


class AwaitedGradient:
    """One parameter's gradient in a submitted operation."""

    __slots__ = ("average", "in_slot", "parameter", "piece", "update")

    def __init__(
        self,
        parameter: nn.Parameter,
        average: torch.Tensor | None,
        piece: "AveragedPiece",
        update: PendingUpdate | None,
    ) -> None:
        self.parameter, self.average, self.piece = parameter, average, piece
        self.update = update  # the due step
        # whether `.grad` will become the average; False after zero_grad()
        self.in_slot = average is not None

    def forget_gradient(self, *, keep: torch.Tensor | None) -> None:
        """Set `.grad` to `keep`; a due update still gets the average.

        Raises: the error that ended the operation, if no update is due: no later call would raise
        it.
        """
        if self.update is None:
            self.piece.wait()
            release(self)
        self.in_slot = False
        _set_slot(self.parameter, keep)

    def slot(self) -> torch.Tensor | None:
        """`.grad` without waiting: meaningful when `in_slot` is False."""
        with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001  # no public name
            return cast(torch.Tensor | None, _SLOT.__get__(self.parameter))


class AveragedPiece:
    """An operation and the parameters whose gradients it averages."""

    def __init__(
        self, work: Work, waiting: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        """`waiting`: a context for each wait."""
        self._work, self._waiting = work, waiting
        self.members: dict[int, AwaitedGradient] = {}  # by id of the parameter
        self.reported = False  # whether the operation's failure was raised to a caller

    def wait(self) -> None:
        """Wait for the average.

        Raises: the DlcpError that ended the operation, each time.
        """
        try:
            with self._waiting():
                self._work.wait()
        except DlcpError:
            self.reported = True
            raise


class LazyParameter(nn.Parameter):
    """The class of a parameter while its gradient or update is awaited."""

    @property
    def grad(self) -> torch.Tensor | None:
        """The averaged gradient; waits for it. None after zero_grad()."""
        entry = _awaited[id(self)]
        if not entry.in_slot:
            return entry.slot()
        land(entry)
        return self.grad  # now an ordinary parameter's

    @grad.setter
    def grad(self, value: torch.Tensor | None) -> None:
        _awaited[id(self)].forget_gradient(keep=value)

    @grad.deleter
    def grad(self) -> None:
        _awaited[id(self)].forget_gradient(keep=None)

    @classmethod
    def __torch_function__(
        cls, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Land every lazy parameter among the arguments, then call `func`."""
        kwargs = kwargs or {}
        if func in _HARMLESS:
            with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001  # no public name
                return func(*args, **kwargs)
        for parameter in list(_lazy((args, kwargs))):
            land_parameter(parameter)
        return func(*args, **kwargs)

    def __deepcopy__(self, memo: dict[int, Any]) -> nn.Parameter:
        land_parameter(self)
        return self.__deepcopy__(memo)  # now an ordinary parameter's


_awaited: Final[
    dict[int, AwaitedGradient]
] = {}  # by id of the parameter, which an entry keeps alive


class AwaitingFlag:
    """Whether any parameter is awaited: one value that compiled code can specialise on."""

    any = False


def attach(
    piece: AveragedPiece,
    parameter: nn.Parameter,
    average: torch.Tensor | None,
    update: PendingUpdate | None = None,
) -> None:
    """From now on, reading `parameter` or its gradient waits for `piece`. Without an average, it
    brings new values of `parameter`, and `.grad` is not awaited; `update` has then nothing to do.
    """
    entry = AwaitedGradient(parameter, average, piece, update)
    piece.members[id(parameter)] = _awaited[id(parameter)] = entry
    AwaitingFlag.any = True
    parameter.__class__ = LazyParameter


def awaited(parameter: torch.Tensor) -> AwaitedGradient | None:
    """The entry of a parameter whose gradient or update is awaited; None: neither is."""
    return _awaited.get(id(parameter))


def land_parameter(parameter: nn.Parameter) -> None:
    """Wait for a parameter's gradient, if it is awaited, and apply a due update."""
    if (entry := _awaited.get(id(parameter))) is not None:
        land(entry)


def land(entry: AwaitedGradient) -> None:
    """Wait for an operation and apply the due update, to all of its parameters that share it.

    Without a due update the gradient becomes an ordinary one. Raises: the error that ended the
    operation; nothing has then changed, and the next access raises it again.
    """
    entry.piece.wait()
    # Tensors made here are kept, so they must not be inference tensors.
    with torch.inference_mode(mode=False):
        if entry.update is None:
            release(entry)
            _show_average(entry)
        else:
            _apply(entry.update, list(entry.piece.members.values()))


def before_forward(module: nn.Module, _: Any) -> None:
    """A module is about to use its parameters, possibly in code that Python does not see."""
    if torch.compiler.is_compiling():
        # Code compiled while no update is awaited, as OptimizedModule's, is one graph. Other
        # compiled code breaks its graph at each module, to wait in Python.
        if AwaitingFlag.any:
            _land_outside(module)
    elif COMPILED in module._modules:  # noqa: SLF001  # no public name
        _land_all(module.parameters())
    else:
        _land_all(module._parameters.values())  # noqa: SLF001  # parameters() is slow


def _land_all(parameters: Iterable[nn.Parameter | None]) -> None:
    for parameter in parameters:
        if parameter is not None:
            land_parameter(parameter)


@_disable_dynamo  # torch.compiler.disable imports the compiler, which takes seconds
def _land_outside(module: nn.Module) -> None:
    _land_all(module._parameters.values())  # noqa: SLF001  # as above


def forget(entry: AwaitedGradient, *, set_to_none: bool) -> None:
    """Prepare for zero_grad(), which then zeroes `.grad`. Raises: as `forget_gradient`."""
    entry.forget_gradient(keep=None if set_to_none else entry.slot())


def release(entry: AwaitedGradient) -> None:
    """Make it an ordinary parameter again, whatever it has got."""
    del entry.piece.members[id(entry.parameter)], _awaited[id(entry.parameter)]
    AwaitingFlag.any = bool(_awaited)
    entry.parameter.__class__ = nn.Parameter


def drop(entry: AwaitedGradient) -> None:
    """Drop a gradient whose operation failed: `.grad` becomes None, never the local one."""
    release(entry)
    entry.parameter.grad = None


def _apply(update: PendingUpdate, members: list[AwaitedGradient]) -> None:
    together = [one for one in members if one.update is update]
    hidden = []  # values of `.grad` set since: restored after the update
    for one in together:
        release(one)
        if one.in_slot:
            _show_average(one)
        else:
            hidden.append((one.parameter, one.parameter.grad))
            one.parameter.grad = one.average
    try:
        update.apply([one.parameter for one in together])
    finally:
        for parameter, gradient in hidden:
            parameter.grad = gradient


def _show_average(entry: AwaitedGradient) -> None:
    # A copy: the result is read-only, because peers may still fetch it, and clipping writes to
    # .grad. Into the existing tensor, which may be DDP's view of its bucket.
    cast(torch.Tensor, entry.parameter.grad).copy_(cast(torch.Tensor, entry.average))


def _set_slot(parameter: nn.Parameter, value: torch.Tensor | None) -> None:
    with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001  # no public name
        _SLOT.__set__(parameter, value)


def _lazy(values: Iterable[Any]) -> Iterator[nn.Parameter]:
    for value in values:
        if type(value) is LazyParameter:
            yield value
        elif isinstance(value, list | tuple):
            yield from _lazy(value)
        elif isinstance(value, dict):
            yield from _lazy(value.values())
