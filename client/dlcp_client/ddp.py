"""Gradients of DistributedDataParallel through dlcpd: two lines in a training script.

Those are `from dlcp_client import ddp` and `ddp.register(model)`.
"""

import itertools
import logging
import warnings
from dataclasses import replace
from typing import Any, Final

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from dlcpd.contract.errors import BadConfig, BadTensor, DlcpError, SessionClosed
from dlcpd.contract.policy import LossPolicy, bounded

from . import ballot
from .critical import bucket_name, critical_parameters, gradient_ranges
from .joining import DEFAULT_TIMEOUT, connect
from .ledger import Ledger
from .rendezvous import Place
from .requests import Range
from .session import Session
from .tensors import copy
from .work import Work

DEFAULT_WARMUP: Final = 10  # steps; early gradients are large and change direction
MIN_WARMUP: Final = 2  # steps; DDP regroups its buckets after the first, so names change once
EXACT_BELOW: Final = 1 << 20  # bytes, about a chunk: too little to gain anything from loss

_log: Final = logging.getLogger("dlcp_client")
_models: Final = itertools.count()  # every rank registers its models in the same order


class Registration:
    """What `register` did. `session` is None where the framework's all-reduce is in use."""

    def __init__(
        self,
        model: DistributedDataParallel,
        session: Session | None,
        *,
        policy: LossPolicy,
        warmup_steps: int,
        owned: bool,
    ) -> None:
        self.session, self._owned = session, owned
        self.policy = policy
        self.exact = replace(policy, mode="exact", max_loss=0.0)
        self.warmup_steps = max(warmup_steps, MIN_WARMUP)
        self.step = 0  # backward passes begun
        self._prefix = f"ddp{next(_models)}"
        self._names = {id(p): name for name, p in model.module.named_parameters()}
        self._critical = critical_parameters(model.module)

    @property
    def ledger(self) -> Ledger:
        """Totals of the session: what was sent, repaired, given up, returned and lost."""
        return self.session.ledger if self.session else Ledger()

    def close(self) -> None:
        """Close the session, if `register` opened it. The model cannot train on after that."""
        if self.session and self._owned:
            self.session.close()

    def policy_now(self, size: int) -> LossPolicy:
        """The policy for a bucket of `size` bytes in this step."""
        exact = self.step <= self.warmup_steps or size < EXACT_BELOW
        return self.exact if exact else self.policy

    def submit(self, bucket: GradBucket) -> Work:
        """Begin to average a bucket. The work's tensor is a new one, in the arena.

        DDP copies a hook's result to the gradients in any case, so it copies from there.
        """
        session = self.session
        if session is None:
            raise SessionClosed("this model's gradients do not go through dlcpd")
        self.step += bucket.index() == 0
        buffer = bucket.buffer()
        result = session.empty(buffer.shape, buffer.dtype, wait=self.policy.deadline)
        copy(result, buffer)
        policy = self.policy_now(buffer.nbytes)
        name, critical = self._described(bucket) if policy.mode == "bounded" else ("", [])
        return session.all_reduce(
            result, "avg", policy=policy, name=name, critical=critical, result_only=True
        )

    def _described(self, bucket: GradBucket) -> tuple[str, list[Range]]:
        """Name and critical ranges of a bucket: found anew at each call, for DDP regroups them."""
        parameters = bucket.parameters()
        ranges = gradient_ranges(bucket.buffer(), bucket.gradients())
        critical = [
            where for p, where in zip(parameters, ranges, strict=True) if id(p) in self._critical
        ]
        names = [self._names[id(p)] for p in parameters]
        return bucket_name(self._prefix, names, [p.numel() for p in parameters]), critical


def register(
    model: DistributedDataParallel,
    policy: LossPolicy | None = None,
    *,
    session: Session | None = None,
    warmup_steps: int = DEFAULT_WARMUP,
    fallback: bool = False,
    **options: Any,
) -> Registration:
    """Average the gradients of `model` through dlcpd from now on. Every rank calls it.

    Args:
        model: on CPU, before its first backward pass.
        policy: by default up to 1 % of the segments of large buckets may be late by a
            step. Norms, biases and embeddings never are, nor buckets under 1 MiB.
        session: from `connect`; by default one is opened, and closed with the process.
        warmup_steps: exact steps before a bounded policy counts, at least 2.
        fallback: if any rank cannot connect, all warn and use the framework's own
            all-reduce. Later failures raise in any case.
        options: for `connect`: socket, config, arena_bytes, timeout, job.

    Raises: BadConfig, BadTensor, or what `connect` raises. An error during training
        comes out of backward(): the DlcpError itself when a bucket cannot be submitted,
        a RuntimeError with its text when an operation fails later. The session is over then.
    """
    _check(model)
    opened = None
    if session is None and dist.get_world_size(model.process_group) > 1:
        session = opened = _connect(model.process_group, fallback=fallback, options=options)
    registration = Registration(
        model,
        session,
        policy=policy or bounded(),
        warmup_steps=warmup_steps,
        owned=opened is not None,
    )
    if session is not None:
        model.register_comm_hook(registration, _hook)
    return registration


def _hook(state: Registration, bucket: GradBucket) -> Future[torch.Tensor]:
    return state.submit(bucket).then(lambda tensor: tensor)  # DDP wants one tensor, not a list


def _connect(group: Any, *, fallback: bool, options: dict[str, Any]) -> Session | None:
    """A session, or None when all ranks agreed to go without.

    Raises: what kept this rank, or another, from joining.
    """
    session, error = None, None
    try:
        session = connect(group=group, **options)
    except DlcpError as exc:
        error = exc
    timeout = float(options.get("timeout", DEFAULT_TIMEOUT))
    try:
        problem = ballot.hold(Place.of_group(group), error, fallback=fallback, timeout=timeout)
    except BaseException:
        if session:
            session.close()
        raise
    if not problem:
        return session
    if session:
        session.close()
    text = f"dlcpd is NOT in use, gradients go through {dist.get_backend(group)}: {problem}"
    _log.error(text)
    warnings.warn(text, RuntimeWarning, stacklevel=3)
    return None


def _check(model: Any) -> None:
    if not isinstance(model, DistributedDataParallel):
        raise BadConfig(
            f"register takes a DistributedDataParallel model, not {type(model).__name__}: "
            f"wrap it first"
        )
    devices = {str(p.device) for p in model.parameters() if p.device.type != "cpu"}
    if devices:
        raise BadTensor(
            f"the model is on {', '.join(sorted(devices))}; dlcpd reduces CPU tensors only for now"
        )
