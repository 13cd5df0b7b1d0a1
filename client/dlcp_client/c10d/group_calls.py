"""What the methods of a process group have in common: any form of the arguments, and the errors."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Final, cast

import torch

from dlcp_client.device.registry import kind_of
from dlcp_client.operations.layers import Layer
from dlcp_client.ranges import RANGES
from dlcpd.contract.errors import DlcpError
from dlcpd.contract.policy import LossPolicy

from . import transport
from .dispatch import count
from .errors import as_torch
from .overloads import FORMS, CallOptions
from .work import GroupWork

MESSAGES: Final = ("send", "recv", "recv_anysource")


class GroupCalls:
    """The members of the process group that the collectives use."""

    group: transport.TransportGroup
    getGroupName: Callable[[], str]  # as PyTorch calls it
    layers: Sequence[Layer] = ()  # of the reduction that begins, see `with_layers`
    other: Callable[[str], Any]  # the group that serves a device type; None: this one

    def policy(self, asked: CallOptions) -> LossPolicy:
        """The policy of an operation: exact, with the call's timeout."""
        raise NotImplementedError

    @contextmanager
    def with_layers(self, layers: Sequence[Layer]) -> Iterator[None]:
        """The reduction that begins meanwhile, on one tensor of floats, has traffic classes by
        range: `layers` as of Session.all_reduce, in bytes of the tensor."""
        self.layers = layers
        try:
            yield
        finally:
            self.layers = ()

    def begin(self) -> None:
        """Check that the group is open. Raises: the error that ended it."""
        raise NotImplementedError

    def begun(self, work: GroupWork, *, message: bool) -> None:
        """Register a work that is handed to the caller."""
        raise NotImplementedError


def operation(method: Callable[..., GroupWork]) -> Callable[..., GroupWork]:
    """Wrap a method that PyTorch calls: bind any documented form of its arguments, require an open
    group, and raise errors as PyTorch expects them."""
    name = method.__name__
    form, message = FORMS[name], name in MESSAGES

    def shown(self: GroupCalls, first: list[Any], asked: CallOptions) -> GroupWork:
        with RANGES.collective(name, self.group, self.getGroupName(), first, form.depths):
            return method(self, *first, asked)

    @wraps(method)
    def call(self: GroupCalls, /, *args: Any, **kwargs: Any) -> GroupWork:
        try:  # not torch_errors(): a context manager is six calls
            self.begin()
            first, asked = form.bind(name, args, kwargs)
            other = self.other(_device_of(first) if first else asked.device)
            if other is None:
                work = shown(self, first, asked) if RANGES.on() else method(self, *first, asked)
        except (DlcpError, TimeoutError) as exc:
            raise as_torch(exc) from exc
        if other is not None:
            return cast("GroupWork", getattr(other, name)(*args, **kwargs))
        self.begun(work, message=message)
        count(name)
        return work

    return call


def _device_of(tensors: Sequence[Any]) -> str:
    """The type of the first tensor's device, in nested lists too; "": no tensor."""
    for each in tensors:
        first = each[0] if isinstance(each, list | tuple) and each else each
        if isinstance(first, torch.Tensor):
            return kind_of(first)
        if isinstance(each, list | tuple) and (found := _device_of(each)):
            return found
    return ""
