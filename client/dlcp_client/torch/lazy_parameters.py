"""Parameters whose averaged gradient is still on its way: whoever looks at them waits for it.

Between the backward pass and their update they are of the class LazyParameter. Python asks it for
`.grad`, and every torch function that gets one asks it first (`__torch_function__`), so nobody
sees a gradient that is not averaged, or a weight that is not updated, and nothing but the use of a
parameter waits for it. After the update they are ordinary parameters again.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Final, Protocol, cast

import torch
from torch import nn

from dlcp_client.operations.work import Work
from dlcpd.contract.errors import DlcpError

_SLOT: Final = cast(Any, torch.Tensor.grad)  # .grad as C++ knows it; DDP writes local gradients
# What tells nothing of a parameter's value. Anything else waits.
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


class Update(Protocol):
    """A step of an optimizer that was asked for and not yet done for all of its parameters."""

    def apply(self, parameters: list[nn.Parameter]) -> None:
        """Do it for these; their `.grad` is the averaged one."""


class Awaited:
    """One parameter's gradient in an operation that was submitted."""

    __slots__ = ("average", "in_slot", "parameter", "piece", "update")

    def __init__(self, parameter: nn.Parameter, average: torch.Tensor, piece: "Piece") -> None:
        self.parameter, self.average, self.piece = parameter, average, piece
        self.update: Update | None = None  # the step that is due
        self.in_slot = True  # whether `.grad` shall become the average; not after zero_grad()

    def forget_gradient(self, *, keep: torch.Tensor | None) -> None:
        """As when `.grad` is set to `keep`: a due update still gets the average.

        Raises: what ended the operation, if no update is due: nobody else would see it.
        """
        if self.update is None:
            self.piece.wait()
            _release(self)
        self.in_slot = False
        _set_slot(self.parameter, keep)

    def slot(self) -> torch.Tensor | None:
        """`.grad` without waiting: meaningful when `in_slot` is False."""
        with torch._C.DisableTorchFunctionSubclass():  # noqa: SLF001  # no public name
            return cast(torch.Tensor | None, _SLOT.__get__(self.parameter))


class Piece:
    """An operation and the parameters whose gradients it averages."""

    def __init__(
        self, work: Work, waiting: Callable[[], AbstractContextManager[None]] = nullcontext
    ) -> None:
        """`waiting`: around each wait for it."""
        self._work, self._waiting = work, waiting
        self.members: dict[int, Awaited] = {}  # by id of the parameter
        self.reported = False  # whether somebody was told of the operation's failure

    def wait(self) -> None:
        """Until the average is there.

        Raises: the DlcpError that ended the operation, each time.
        """
        try:
            with self._waiting():
                self._work.wait()
        except DlcpError:
            self.reported = True
            raise


class LazyParameter(nn.Parameter):
    """The class of a parameter for as long as it is in the table of awaited ones."""

    @property
    def grad(self) -> torch.Tensor | None:
        """The averaged gradient; waits for it. None after zero_grad()."""
        entry = _awaited[id(self)]
        if not entry.in_slot:
            return entry.slot()
        land(entry)
        return self.grad  # an ordinary parameter's by now

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
        return self.__deepcopy__(memo)  # an ordinary parameter's by now


_awaited: Final[dict[int, Awaited]] = {}  # by id of the parameter, which an entry keeps alive


class Awaiting:
    """Whether any parameter is awaited: one value, on which compiled code can be specialised."""

    any = False


def attach(piece: Piece, parameter: nn.Parameter, average: torch.Tensor) -> None:
    """From now on, whoever looks at `parameter` or its gradient waits for `piece`."""
    entry = Awaited(parameter, average, piece)
    piece.members[id(parameter)] = _awaited[id(parameter)] = entry
    Awaiting.any = True
    parameter.__class__ = LazyParameter


def awaited(parameter: torch.Tensor) -> Awaited | None:
    """The entry of a parameter whose gradient, or update, is still to come."""
    return _awaited.get(id(parameter))


def land_parameter(parameter: nn.Parameter) -> None:
    """Wait for a parameter's gradient, if one is to come, and do what is due with it."""
    if (entry := _awaited.get(id(parameter))) is not None:
        land(entry)


def land(entry: Awaited) -> None:
    """Wait for an operation and apply the due update, to all of its parameters that share it.

    Without a due update the gradient becomes an ordinary one. Raises: what ended the operation;
    nothing changed then, and the next look raises it again.
    """
    entry.piece.wait()
    # What is made here lives on, so it must not become an inference tensor.
    with torch.inference_mode(mode=False):
        if entry.update is None:
            _release(entry)
            _show_average(entry)
        else:
            _apply(entry.update, list(entry.piece.members.values()))


def forget(entry: Awaited, *, set_to_none: bool) -> None:
    """Before zero_grad(), which then zeroes what `.grad` is. Raises: as `forget_gradient`."""
    entry.forget_gradient(keep=None if set_to_none else entry.slot())


def drop(entry: Awaited) -> None:
    """Give a gradient up that will not come: `.grad` is None, and never this rank's own."""
    _release(entry)
    entry.parameter.grad = None


def _apply(update: Update, members: list[Awaited]) -> None:
    together = [one for one in members if one.update is update]
    hidden = []  # what `.grad` is where it has been set since: put back after the update
    for one in together:
        _release(one)
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


def _release(entry: Awaited) -> None:
    """An ordinary parameter again."""
    del entry.piece.members[id(entry.parameter)], _awaited[id(entry.parameter)]
    Awaiting.any = bool(_awaited)
    entry.parameter.__class__ = nn.Parameter


def _show_average(entry: Awaited) -> None:
    # A copy: the result is read-only, for peers may still fetch it, and clipping writes to .grad.
    # Into the tensor that is there, which may be DDP's view of its bucket.
    cast(torch.Tensor, entry.parameter.grad).copy_(entry.average)


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
