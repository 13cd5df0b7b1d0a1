"""The one communication hook of a DDP model: DDP takes one and holds it for ever, with its state.

So the state is not a registration, and only holds one. Without one the model trains by its own
process group, and can be registered again. A copy of the model gets none.
"""

import logging
from typing import Any, Final, Protocol

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from dlcp_client.session import Session
from dlcpd.contract.errors import BadConfig, DlcpError

TAKEN: Final = frozenset({torch.float32, torch.float64, torch.float16, torch.bfloat16})
_log: Final = logging.getLogger("dlcp_client")
_OTHERS: Final = (
    "the model has a communication hook already, and DDP takes only one: register on a model that "
    "has none"
)
_OURS: Final = "the model is registered already: close() that registration first"


class Averager(Protocol):
    """A registration."""

    def begin(self, bucket: GradBucket) -> Session:
        """A bucket is ready; the first one begins a step. The session that averages."""

    def average(self, bucket: GradBucket, session: Session) -> Future[torch.Tensor]:
        """What DDP asks of a hook, for a dense bucket of a dtype in TAKEN that has begun."""

    def name_of(self, parameter: torch.Tensor) -> str:
        """In the model."""


class HeldHook:
    """State of the hook that DDP holds."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        """`group`: the model's own."""
        self._group = group
        self._registration: Averager | None = None
        self._told: set[str] = set()  # parameters that go by the group

    def __reduce__(self) -> tuple[Any, ...]:
        """A copied or unpickled model has no hook in C++."""
        return _Copied, ()

    @property
    def free(self) -> bool:
        """Whether no registration holds it."""
        return self._registration is None

    def hold(self, registration: Averager) -> None:
        """Have it average from now on."""
        self._registration = registration
        self._told.clear()

    def leave(self, registration: Averager) -> None:
        """From now on the model's own group averages, if `registration` did."""
        if self._registration is registration:
            self._registration = None

    def average(self, bucket: GradBucket) -> Future[torch.Tensor]:
        """What DDP asks of a hook. Raises: DlcpError."""
        registration = self._registration
        if registration is None:
            return allreduce_hook(self._group, bucket)
        if not isinstance(bucket, GradBucket):
            raise BadConfig(
                'optimize_ddp = "python_reducer" of torch._dynamo.config hands single gradients to '
                "hooks, and dlcpd takes buckets: leave it out"
            )
        try:
            session = registration.begin(bucket)
            if _is_taken(bucket.buffer()):
                return registration.average(bucket, session)
            self._tell(registration, bucket)
            return allreduce_hook(self._group, bucket)
        except (DlcpError, MemoryError, torch.OutOfMemoryError):
            raise
        except Exception as exc:
            text = f"the gradients of {_names(registration, bucket)} cannot be averaged: "
            raise DlcpError(f"{text}{type(exc).__name__}: {exc}") from exc

    def _tell(self, registration: Averager, bucket: GradBucket) -> None:
        """Once for each parameter."""
        names = _names(registration, bucket)
        if names not in self._told:
            self._told.add(names)
            buffer = bucket.buffer()
            what = "sparse" if buffer.layout != torch.strided else str(buffer.dtype)
            backend = dist.get_backend(self._group)
            _log.warning(
                "gradients of %s are %s, which dlcpd does not average: they go by the model's own "
                "group, %s",
                names,
                what,
                backend,
            )


class _Copied:
    """What the copy of a model has in the place of a HeldHook."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _Copied, ()


def held_by(model: DistributedDataParallel) -> HeldHook | None:
    """The model's hook, if it is one of ours that is free; None: it has none.

    Raises: BadConfig for any other.
    """
    hooks: list[tuple[Any, Any]] = model._comm_hooks  # noqa: SLF001  # no public name
    hooks[:] = [pair for pair in hooks if not isinstance(pair[1], _Copied)]
    if not hooks:
        return None
    held = hooks[0][1]
    if not isinstance(held, HeldHook):
        raise BadConfig(_OTHERS)
    if not held.free:
        raise BadConfig(_OURS)
    return held


def hold(model: DistributedDataParallel, registration: Averager) -> HeldHook:
    """Let `registration` average the model's gradients, until `leave` of what this returns.

    Raises: BadConfig where the model has a hook that is not ours, or is in use; one of C++, too,
        which Python does not know of.
    """
    held = held_by(model)
    if held is None:
        held = HeldHook(model.process_group)
        try:
            model.register_comm_hook(held, _hook)
        except RuntimeError as exc:
            model._comm_hooks.clear()  # noqa: SLF001  # noted before it was refused
            raise BadConfig(_OTHERS) from exc
    held.hold(registration)
    return held


def _hook(state: HeldHook, bucket: GradBucket) -> Future[torch.Tensor]:
    return state.average(bucket)


def _is_taken(buffer: torch.Tensor) -> bool:
    return buffer.layout == torch.strided and buffer.dtype in TAKEN


def _names(registration: Averager, bucket: GradBucket) -> str:
    """Of the parameters in a bucket."""
    names = [registration.name_of(parameter) for parameter in bucket.parameters()]
    return names[0] if names[0] == names[-1] else f"{names[0]} to {names[-1]}"
