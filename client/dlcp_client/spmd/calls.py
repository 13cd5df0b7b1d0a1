"""The torch calls of an execution of a model or layer, and the proof that another one makes the
same.

A record has for each call the function, the arguments, the user's line, and the state of autograd;
tensors in it are numbered in the order in which they appear. Two executions with equal records
build the same graph: a graph has nothing else to be made from.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from dlcp_client.user_lines import user_line

from .borders import COLLECTIVE, ENTER, INDEX, LEAVE
from .marks import MARK, current
from .private_torch import dispatch_modes, function_modes, saved_tensor_hooks

CONSTANTS: Final = (
    bool, int, complex, str, torch.dtype, torch.device, torch.layout, torch.memory_format,
    type(None), type(Ellipsis),
)  # fmt: skip
KERNELS: Final[Sequence[Callable[[], bool]]] = (
    torch.backends.cuda.flash_sdp_enabled,
    torch.backends.cuda.math_sdp_enabled,
    torch.backends.cuda.mem_efficient_sdp_enabled,
)
OF_REGIONS: Final = (ENTER, LEAVE, COLLECTIVE, INDEX)


class Differs(BaseException):
    """An execution that is not like its record, or a call that no record can describe. Models that
    catch exceptions must not catch this one."""


class TorchCall(NamedTuple):
    """`told`: the function, the arguments, the line and the state; `answer`: `result`, told."""

    told: Any
    answer: Any
    result: Any


@dataclass(slots=True)
class Record:
    """`given`: the tensors that an execution begins with; `ties`: for each of the first of them
    the place of the first that is the same parameter."""

    given: Sequence[Tensor]
    ties: Sequence[int] = ()
    calls: list[TorchCall] = field(default_factory=list)
    numbers: dict[int, int] = field(default_factory=dict)  # of a tensor, by its id
    _kept: list[Tensor] = field(default_factory=list)  # which keeps their ids
    _count: int = 0
    begin: Any = None  # the state
    _base: tuple[int, int] = (0, 0)

    def __post_init__(self) -> None:
        self._base = _modes()
        self.begin = self.state()
        for at, one in zip(self.ties, self.given, strict=False):
            self.numbers.setdefault(id(one), at)
        self._count = len(self.ties)
        self.number(self.given)

    def number(self, values: Any) -> None:
        if isinstance(values, Tensor):
            if id(values) not in self.numbers:
                self.numbers[id(values)] = self._count
                self._count += 1
                self._kept.append(values)
        elif isinstance(values, list | tuple):
            for one in values:
                self.number(one)
        elif isinstance(values, dict):
            self.number(list(values.values()))

    def adopt(self, value: Any, answer: Any) -> None:
        """Give the tensors of a result the numbers that they have in another record: there a call
        may have returned an operand where this one has made another object of it."""
        match value:
            case Tensor():
                if id(value) not in self.numbers and answer[0] is Tensor:
                    self.numbers[id(value)] = answer[1]
                    self._kept.append(value)
            case list() | tuple():
                for one, its in zip(value, answer[1], strict=False):
                    self.adopt(one, its)
            case dict():
                for one, (_, its) in zip(value.values(), answer[1], strict=False):
                    self.adopt(one, its)

    def told(self, value: Any) -> Any:
        """The value in a form that can be compared.

        Raises: Differs for a tensor without a number, and for an object that may be anything.
        """
        if isinstance(value, Tensor):
            if id(value) not in self.numbers:
                raise Differs("a tensor that is neither an argument nor a result of a call")
            return Tensor, self.numbers[id(value)]
        if isinstance(value, float):
            return float, repr(value)
        if isinstance(value, CONSTANTS):
            return type(value), value
        if isinstance(value, list | tuple):
            return type(value), tuple([self.told(one) for one in value])
        if isinstance(value, slice):
            return slice, self.told((value.start, value.stop, value.step))
        if isinstance(value, dict):
            return dict, tuple([(self.told(key), self.told(one)) for key, one in value.items()])
        raise Differs(f"an argument or result of type {type(value).__name__}")

    def told_call(self, func: Any, args: Any, kwargs: Any) -> Any:
        if func in (MARK, ENTER, LEAVE):  # every call has another number
            marks = current()
            if marks is None:
                raise AssertionError("a capture is running")
            args = args[0], repr(marks.found[args[1]]), *args[2:]
        if saved_tensor_hooks(True) is not None:
            raise Differs("hooks of saved tensors")
        return func, self.told(args), self.told(kwargs), user_line(), self.state()

    def state(self) -> Any:
        """What else a call depends on: autograd, autocast, modes since the begin."""
        function, dispatch = _modes()
        return (
            torch.is_grad_enabled(),
            torch.is_inference_mode_enabled(),
            [
                (torch.is_autocast_enabled(on), torch.get_autocast_dtype(on))
                for on in ("cpu", "cuda")
            ],
            torch.get_default_dtype(),
            [enabled() for enabled in KERNELS],
            function - self._base[0],
            dispatch - self._base[1],
        )


def _modes() -> tuple[int, int]:
    return function_modes(), dispatch_modes()


class Recording:
    """Makes calls, and a record of them."""

    def __init__(self, record: Record) -> None:
        self.record = record

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        told = self.record.told_call(func, args, kwargs)
        result = func(*args, **kwargs)
        self.record.number(result)
        self.record.calls.append(TorchCall(told, self.record.told(result), result))
        return result


class Replaying:
    """Makes no calls: an execution gets the tensors of a record's for as long as it does what that
    did. It must be given `record.given`."""

    def __init__(self, record: Record) -> None:
        self.record, self._at = record, 0

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        if self._at == len(self.record.calls):
            raise Differs("more calls")
        one = self.record.calls[self._at]
        if self.record.told_call(func, args, kwargs) != one.told:
            raise Differs(f"another call than {one.told[0]}")
        self._at += 1
        return one.result

    def end(self) -> None:
        if self._at < len(self.record.calls):
            raise Differs("fewer calls")


class Checking:
    """Makes calls, and compares them with a record's. `mine`: has the tensors of this execution."""

    def __init__(self, record: Record, given: Sequence[Tensor]) -> None:
        self.record, self.mine, self._at = record, Record(given, record.ties), 0

    def call(self, func: Any, args: Any, kwargs: Any) -> Any:
        result = None

        def make() -> Any:
            nonlocal result
            result = func(*args, **kwargs)
            return result

        self.expect(self.mine.told_call(func, args, kwargs), make)
        return result

    def expect(self, told: Any, make: Callable[[], Any]) -> Any:
        """Compare one call and its result."""
        if self._at == len(self.record.calls):
            raise Differs("more calls")
        one = self.record.calls[self._at]
        if told != one.told:
            raise Differs(f"another call than {one.told[0]}")
        self._at += 1
        result = make()
        self.mine.adopt(result, one.answer)
        if self.mine.told(result) != one.answer:
            raise Differs(f"another result of {one.told[0]}")
        return result

    def end(self) -> None:
        if self._at < len(self.record.calls):
            raise Differs("fewer calls")


class Watching(TorchFunctionMode):
    """Hands the calls of torch to what `to` says; None: makes them."""

    def __init__(self) -> None:
        super().__init__()
        self._to: Recording | Replaying | Checking | None = None

    @contextmanager
    def to(self, one: Recording | Replaying | Checking | None) -> Iterator[None]:
        before, self._to = self._to, one
        try:
            yield
        finally:
            self._to = before

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self._to is None:
            return func(*args, **(kwargs or {}))
        return self._to.call(func, args, kwargs or {})
