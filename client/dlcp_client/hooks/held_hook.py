"""The single communication hook of a DDP model, which DDP holds permanently, with its state.

So the state is not a registration, but refers to one. Without one the model trains with its own
process group, and may be registered again. A copy of the model has no hook.
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
    "the model has a communication hook, and DDP supports one: register a model without a hook"
)
_REGISTERED: Final = "the model is already registered: close() that registration first"


class Averager(Protocol):
    """A registration."""

    def begin(self, bucket: GradBucket) -> Session:
        """The session for a bucket that is ready; the first bucket begins a step."""

    def average(self, bucket: GradBucket, session: Session) -> Future[torch.Tensor]:
        """Average a dense bucket of a dtype in TAKEN, after `begin`."""

    def name_of(self, parameter: torch.Tensor) -> str:
        """The parameter's name in the model."""


class HeldHook:
    """State of the hook that DDP holds."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        """`group`: the model's own."""
        self._group = group
        self._registration: Averager | None = None
        self._told: set[str] = set()  # parameters that use the group

    def __reduce__(self) -> tuple[Any, ...]:
        """A copied or unpickled model has no hook in C++."""
        return _CopiedHook, ()

    @property
    def free(self) -> bool:
        """Whether no registration holds it."""
        return self._registration is None

    def hold(self, registration: Averager) -> None:
        """Let `registration` average from now on."""
        self._registration = registration
        self._told.clear()

    def leave(self, registration: Averager) -> None:
        """If `registration` averages, let the model's own group average from now on."""
        if self._registration is registration:
            self._registration = None

    def average(self, bucket: GradBucket) -> Future[torch.Tensor]:
        """Average a bucket, as DDP's communication hook. Raises: DlcpError."""
        registration = self._registration
        if registration is None:
            return allreduce_hook(self._group, bucket)
        if not isinstance(bucket, GradBucket):
            raise BadConfig(
                'optimize_ddp = "python_reducer" of torch._dynamo.config passes single '
                "gradients to hooks, and dlcpd needs buckets: remove the setting"
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
            text = f"dlcpd cannot average the gradients of {_names(registration, bucket)}: "
            raise DlcpError(f"{text}{type(exc).__name__}: {exc}") from exc

    def _tell(self, registration: Averager, bucket: GradBucket) -> None:
        """Warn once for each set of parameters."""
        names = _names(registration, bucket)
        if names not in self._told:
            self._told.add(names)
            buffer = bucket.buffer()
            what = "sparse" if buffer.layout != torch.strided else str(buffer.dtype)
            backend = dist.get_backend(self._group)
            _log.warning(
                (
                    "gradients of %s are %s, which dlcpd does not average: the process group of "
                    "the model averages them with %s"
                ),
                names,
                what,
                backend,
            )


class _CopiedHook:
    """Replaces the HeldHook in a copy of a model."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _CopiedHook, ()


def held_by(model: DistributedDataParallel) -> HeldHook | None:
    """The model's HeldHook, if it is free; None: the model has no hook.

    Raises: BadConfig for any other hook.
    """
    hooks: list[tuple[Any, Any]] = model._comm_hooks  # noqa: SLF001  # no public name
    hooks[:] = [pair for pair in hooks if not isinstance(pair[1], _CopiedHook)]
    if not hooks:
        return None
    held = hooks[0][1]
    if not isinstance(held, HeldHook):
        raise BadConfig(_OTHERS)
    if not held.free:
        raise BadConfig(_REGISTERED)
    return held


def hold(model: DistributedDataParallel, registration: Averager) -> HeldHook:
    """Let `registration` average the model's gradients, until `leave` of the returned hook.

    Raises: BadConfig if the model has another hook, or the HeldHook is in use. That includes C++
    hooks, which Python cannot see.
    """
    held = held_by(model)
    if held is None:
        held = HeldHook(model.process_group)
        try:
            model.register_comm_hook(held, _hook)
        except RuntimeError as exc:
            model._comm_hooks.clear()  # noqa: SLF001  # DDP records it before it refuses
            raise BadConfig(_OTHERS) from exc
    held.hold(registration)
    return held


def _hook(state: HeldHook, bucket: GradBucket) -> Future[torch.Tensor]:
    return state.average(bucket)


def _is_taken(buffer: torch.Tensor) -> bool:
    return buffer.layout == torch.strided and buffer.dtype in TAKEN


def _names(registration: Averager, bucket: GradBucket) -> str:
    """Names of the parameters in a bucket."""
    names = [registration.name_of(parameter) for parameter in bucket.parameters()]
    return names[0] if names[0] == names[-1] else f"{names[0]} to {names[-1]}"
