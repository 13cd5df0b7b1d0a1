"""register(): from a DistributedDataParallel model to averages through dlcpd."""

from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.amp import GradScaler
from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import allreduce_hook
from torch.futures import Future
from torch.nn.parallel import DistributedDataParallel

from dlcp_client.arena.tensors import copy
from dlcp_client.auto.calibration import Calibration, slowest
from dlcp_client.auto.choice import Transport, Transports, checked_transport
from dlcp_client.ddp.local_groups import LocalGroup, local_group
from dlcp_client.ddp.results import ResultTensors
from dlcp_client.device.registry import device_of
from dlcp_client.guard import Guard, checked_guard
from dlcp_client.guard.sampler import GuardSampler, averaged
from dlcp_client.hooks.buckets import contents
from dlcp_client.hooks.ddp_wait import time_the_wait
from dlcp_client.hooks.held_hook import HeldHook, hold
from dlcp_client.hooks.model_session import SessionOptions, check_options
from dlcp_client.hooks.resuming import Resumable
from dlcp_client.hooks.rules import DEFAULT_WARMUP, MIN_WARMUP, Rules
from dlcp_client.hooks.wrapped_model import wrapped
from dlcp_client.joining.sessions import DEFAULT_ARENA, DEFAULT_TIMEOUT
from dlcp_client.low_rank import PowerSGD, checked_low_rank
from dlcp_client.low_rank.products import LowRank
from dlcp_client.session import Session
from dlcpd.contract.errors import SessionClosed
from dlcpd.contract.policy import EXACT, LossPolicy


class DDPRegistration(Resumable):
    """The result of `register`. `session` is None if the framework's all-reduce is in use."""

    def __init__(  # noqa: PLR0913  # all but the first three by keyword
        self,
        session: Session | None,
        rules: Rules,
        process_group: dist.ProcessGroup,
        *,
        owned: bool,
        calibration: Calibration | None = None,
        guard: Guard | None = None,
        low_rank: PowerSGD | None = None,
        local: LocalGroup | None = None,
    ) -> None:
        """`calibration`: chooses between dlcpd and `process_group`; None: all through dlcpd.
        `local`: the reduction among the ranks of this host."""
        super().__init__(session, rules)
        self.guard = GuardSampler(guard, rules) if guard else None
        self._owned = owned
        self._calibration, self._process_group = calibration, process_group
        if calibration is not None:
            rules.compare(calibration.is_between)
        self._low_rank = LowRank(low_rank, rules) if low_rank else None
        self._local, self._results = local, ResultTensors()
        self.hook: HeldHook | None = None  # the communication hook that calls `average`

    @property
    def transports(self) -> Transports:
        """With `transport="auto"`: the transport of each bucket size, and the measured times.

        The object never changes; a later decision makes a new one. Empty before the first decision.
        """
        return self._calibration.transports if self._calibration else Transports()

    def set_policy(self, policy: LossPolicy) -> None:
        checked_low_rank(self._low_rank.asked if self._low_rank else None, policy)
        super().set_policy(policy)

    def _check_resumable(self) -> None:
        options = {
            "low_rank": self._low_rank,
            "local": self._local,
            "a device": not self.account.waits,
        }
        check_options(options, "state_dict of a registration")

    def close(self) -> None:
        """Close the session, if `register` opened it. From now on the model trains with its own
        process group, and may be registered again. A second call does nothing.

        The last waived segments are not reapplied: call `set_policy(exact())` one step before.
        """
        if self.copied:
            return
        if self.hook is not None:
            self.hook.leave(self)
        self.over()
        self.rules.close()
        self._results.clear()
        if self._local:
            self._local.close()
        if self.session and self._owned:
            self.session.close()

    def average(self, bucket: GradBucket, session: Session) -> Future[torch.Tensor]:
        """Average a bucket, as DDP's hook. Raises: the error that prevents submission."""
        self.rules.bring_back(bucket)
        if self._low_rank is not None and self._low_rank.counts:
            return self._low_rank.average(session, bucket)
        if self._local:
            return self._local.average(bucket, self.rules)
        calibration = self._calibration
        if calibration is None:
            return self._by_dlcpd(session, bucket)
        size = bucket.buffer().nbytes
        if calibration.way(size) == "dlcp":
            return calibration.timed(size, partial(self._by_dlcpd, session, bucket))
        if size in calibration.leaving and not self.rules.policy_now(size).is_plain:
            # It went through dlcpd until now; residuals there would never be reapplied.
            return self._by_dlcpd(session, bucket, bring_home=True)
        return calibration.timed(size, partial(allreduce_hook, self._process_group, bucket))

    def begin(self, bucket: GradBucket) -> Session:
        """The session for a bucket that is ready; the first bucket begins a step."""
        if self.session is None:
            raise SessionClosed("this model's gradients do not go through dlcpd")
        if not bucket.index():
            self.rules.begin_step(self.session.world)
            if self.account.waits:
                time_the_wait(self.account)
            if self._calibration:
                self._calibration.begin(self.step)
        return self.session

    def _by_dlcpd(
        self, session: Session, bucket: GradBucket, *, bring_home: bool = False
    ) -> Future[torch.Tensor]:
        """Average a bucket through dlcpd.

        On the CPU the result is in the arena: DDP copies a hook's result to the gradients anyway.
        On a device it is the bucket itself, or gradients would be copied from the host one by one.
        """
        rules, buffer = self.rules, bucket.buffer()
        request = rules.request(contents(bucket), 0, buffer.nbytes, bring_home=bring_home)
        if device_of(buffer) is not None:
            work = session.all_reduce(buffer, "avg", **request.keywords())
        else:
            result = self._results.empty(session, bucket, rules.policy.deadline)
            copy(result, buffer)
            work = averaged(session, result, request, self.guard)
            if self.guard is None:  # the guard compares results after the step
                self._results.keep(bucket, result, work)
        return work.then(lambda tensor: tensor)  # DDP wants one tensor, not a list


def register(  # noqa: PLR0913  # all but the first two by keyword
    model: DistributedDataParallel,
    policy: LossPolicy = EXACT,
    *,
    session: Session | None = None,
    local: dist.ProcessGroup | None = None,
    warmup_steps: int = DEFAULT_WARMUP,
    scaler: GradScaler | None = None,
    guard: Guard | None = None,
    low_rank: PowerSGD | None = None,
    transport: Transport = "dlcp",
    fallback: bool = False,
    job: str | None = None,
    socket: str | None = None,
    arena_bytes: int = DEFAULT_ARENA,
    timeout: float = DEFAULT_TIMEOUT,
    config: str | Path | None = None,
) -> DDPRegistration:
    """Average the gradients of `model` through dlcpd from now on. Every rank calls it.

    Args:
        model: on the CPU or CUDA devices (docs/cuda.md), before its first backward pass, without a
            communication hook; compiled or not, or of replicate(). Gradients are float32, float64,
            float16 or bfloat16. Sparse ones, and those of other dtypes, go through the model's own
            process group; one warning names them.
        policy: exact() loses nothing. bounded(0.01) lets 1 % of the segments of large buckets be
            late by a step; never norms, biases and embeddings, nor buckets under 1 MiB. Either may
            have a codec, for buckets of 1 MiB and more.
        session: from `connect`; by default one is opened, and closed with the process.
        local: the group of the ranks of this host, of equal size on all hosts, unused by other code
            in a backward pass. These ranks add their gradients up, and each sends a part of the sum
            (docs/cuda.md). Without guard, low_rank and transport="auto".
        warmup_steps: exact steps, without a codec, before the policy applies, at least 2.
        scaler: the GradScaler of the training, if it has one. With a bounded policy, or a codec,
            residuals of one scale are then reapplied in the present one.
        guard: compares sampled steps with exact ones, and tightens the policy or stops. Results:
            `guard.report()` of the returned registration. Every rank passes the same. On the CPU.
            One step in 50 is exact, so that `summary()` says what bounded mode saves.
        low_rank: PowerSGD(rank=4) sends the gradients of matrices as products of two narrow ones,
            after the warm-up; with exact(), and without a codec. The trainer keeps the error of the
            products, of the size of those gradients. On the CPU.
        transport: "dlcp": all gradients go through dlcpd. "auto": those of each bucket size go
            through dlcpd or the framework's own all-reduce, whichever is faster in this job, as
            `Calibration` measures at times; the logger "dlcp_client" and `transports` of the
            registration report the choice; on the CPU; exact steps as with a guard. "backend": the
            framework's own, and no session is opened. Every rank passes the same, whatever the
            policy.
        fallback: if any rank cannot connect, or no data gets through, all warn and use the
            framework's own all-reduce. Later failures raise in any case.
        job: as in `connect`, which opens the session.
        socket: as in `connect`.
        arena_bytes: as in `connect`.
        timeout: seconds until all ranks are connected; the error is raised at most 5 s later.
        config: as in `connect`.

    Raises: BadConfig, BadPolicy, BadTensor, or the errors of `connect`; nothing is left open then.
        backward() raises errors during training: the DlcpError itself when a bucket cannot be
        submitted, a RuntimeError with its text when an operation fails later. The session has then
        ended.
    """
    model, module, staged = wrapped(model)
    options = _checked(
        policy, transport=transport, guard=guard, low_rank=low_rank, local=local, staged=staged
    )
    opening = SessionOptions(
        fallback=fallback,
        timeout=timeout,
        job=job,
        socket=socket,
        arena_bytes=arena_bytes,
        config=config,
    )
    rules = Rules(module, policy, warmup_steps, scaler)
    rules.account.waits = not staged
    with ExitStack() as undo:
        undo.callback(rules.close)
        owned = False
        if options.transport == "backend":
            session = None
        else:
            session, owned = opening.given_or_opened(session, model, undo, options.transport)
        registration = _registration(model, rules, options, session, undo, owned=owned)
        if session is not None:
            registration.hook = hold(model, registration)
            undo.pop_all()
            registration.begun(f'ddp, transport="{options.transport}"')
    return registration


@dataclass(frozen=True, slots=True)
class HookOptions:
    """Checked options of `register` that change how a bucket is averaged."""

    transport: Transport
    guard: Guard | None
    low_rank: PowerSGD | None
    local: dist.ProcessGroup | None


def _checked(
    policy: LossPolicy,
    *,
    transport: Any,
    guard: Any,
    low_rank: Any,
    local: dist.ProcessGroup | None,
    staged: bool,
) -> HookOptions:
    """`staged`: the model is on a device. Raises: BadConfig, BadPolicy."""
    transport = checked_transport(transport)
    guard = checked_guard(guard, policy, transport)
    low_rank = checked_low_rank(low_rank, policy, guard=guard, transport=transport)
    options = {"guard": guard, "low_rank": low_rank, 'transport="auto"': transport == "auto"}
    if staged:
        check_options(options, "a model on a device")
    if local is not None:
        check_options(options, "local groups")
    return HookOptions(transport, guard, low_rank, local)


def _registration(
    model: DistributedDataParallel,
    rules: Rules,
    options: HookOptions,
    session: Session | None,
    undo: ExitStack,
    *,
    owned: bool,
) -> DDPRegistration:
    """The registration, without its hook. `undo` closes its local group."""
    parts = local_group(options.local, session) if session and options.local else None
    if parts is not None:
        undo.callback(parts.close)
    auto = options.transport == "auto" and session is not None
    return DDPRegistration(
        session,
        rules,
        model.process_group,
        owned=owned,
        local=parts,
        calibration=_calibration(model, rules) if auto else None,
        guard=options.guard,
        low_rank=options.low_rank,
    )


def _calibration(model: DistributedDataParallel, rules: Rules) -> Calibration:
    """Measure bounded operations if the policy is bounded: the job will use those."""
    exact_steps = MIN_WARMUP if rules.policy.is_plain else rules.warmup_steps
    return Calibration(slowest(model.process_group), first=exact_steps + 1)
