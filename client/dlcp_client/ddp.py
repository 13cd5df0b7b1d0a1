"""Gradients of DistributedDataParallel through dlcpd: two lines in a training script.

Those are `from dlcp_client import ddp` and `ddp.register(model)`.
"""

from typing import Any, Final

import torch
from torch._C._distributed_c10d import GradBucket
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from dlcpd.contract.errors import SessionClosed
from dlcpd.contract.policy import LossPolicy, bounded

from .buckets import contents
from .ledger import Ledger
from .model_session import check_model, session_for
from .rules import Rules
from .session import Session
from .tensors import copy
from .work import Work

DEFAULT_WARMUP: Final = 10  # steps; early gradients are large and change direction


class Registration:
    """What `register` did. `session` is None where the framework's all-reduce is in use."""

    def __init__(self, session: Session | None, rules: Rules, *, owned: bool) -> None:
        self.session, self.rules, self._owned = session, rules, owned

    @property
    def step(self) -> int:
        """Backward passes begun."""
        return self.rules.step

    @property
    def ledger(self) -> Ledger:
        """Totals of the session: what was sent, repaired, given up, returned and lost."""
        return self.session.ledger if self.session else Ledger()

    def close(self) -> None:
        """Close the session, if `register` opened it. The model cannot train on after that."""
        self.rules.close()
        if self.session and self._owned:
            self.session.close()

    def submit(self, bucket: GradBucket) -> Work:
        """Begin to average a bucket. The work's tensor is a new one, in the arena.

        DDP copies a hook's result to the gradients in any case, so it copies from there.
        """
        session, rules = self.session, self.rules
        if session is None:
            raise SessionClosed("this model's gradients do not go through dlcpd")
        rules.begin(bucket)
        buffer = bucket.buffer()
        result = session.empty(buffer.shape, buffer.dtype, wait=rules.policy.deadline)
        copy(result, buffer)
        terms = rules.terms(contents(bucket), 0, buffer.nbytes)
        return session.all_reduce(result, "avg", result_only=True, **terms.keywords())


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
    check_model(model)
    opened = None
    if session is None:
        session = opened = session_for(model, fallback=fallback, options=options)
    rules = Rules(model.module, policy or bounded(), warmup_steps)
    registration = Registration(session, rules, owned=opened is not None)
    if session is None:
        rules.close()
    else:
        model.register_comm_hook(registration, _hook)
    return registration


def _hook(state: Registration, bucket: GradBucket) -> Future[torch.Tensor]:
    return state.submit(bucket).then(lambda tensor: tensor)  # DDP wants one tensor, not a list
