"""register(): from a model and its optimizer to gradients that cross the step."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch._C._distributed_c10d import GradBucket
from torch.amp import GradScaler
from torch.futures import Future
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from dlcp_client.arena.tensors import copy
from dlcp_client.cross_step.deferred_step import DeferredStep
from dlcp_client.cross_step.suitability import check_backward, check_suitable
from dlcp_client.device.registry import device_of
from dlcp_client.guard import Guard, checked_guard
from dlcp_client.guard.sampler import GuardSampler, averaged
from dlcp_client.hooks.buckets import PlacedGradient, contents, cut
from dlcp_client.hooks.held_hook import HeldHook, hold
from dlcp_client.hooks.lazy_parameters import (
    AveragedPiece,
    attach,
    awaited,
    before_forward,
    drop,
    forget,
    land_parameter,
)
from dlcp_client.hooks.model_session import SessionOptions, check_options
from dlcp_client.hooks.resuming import Resumable
from dlcp_client.hooks.rules import DEFAULT_WARMUP, Rules
from dlcp_client.hooks.wrapped_model import wrapped
from dlcp_client.joining.sessions import DEFAULT_ARENA, DEFAULT_TIMEOUT
from dlcp_client.session import Session
from dlcpd.contract.errors import BadConfig, DlcpError, SessionClosed
from dlcpd.contract.policy import EXACT, LossPolicy


class CrossStepRegistration(Resumable):
    """The result of `register`. `session` is None if the framework's all-reduce is in use."""

    def __init__(
        self,
        model: DistributedDataParallel,
        session: Session | None,
        rules: Rules,
        step: DeferredStep,
        *,
        owned: bool,
        guard: Guard | None = None,
    ) -> None:
        super().__init__(session, rules)
        self.guard = GuardSampler(guard, rules) if guard else None
        self._owned = owned
        self._model, self._step = model, step
        self._parameters = [p for p in model.parameters() if p.requires_grad]
        self.hook: HeldHook | None = None  # the communication hook that calls `average`
        self._zero_grad = model.zero_grad
        model.zero_grad = ZeroGrad(self, model.zero_grad)  # type: ignore[method-assign]  # a hook
        self._hooks = [register_module_forward_pre_hook(before_forward)]
        self._hooks += [
            p.register_post_accumulate_grad_hook(_after_accumulation)  # type: ignore[no-untyped-call]
            for p in self._parameters
        ]
        self._open = True

    def synchronize(self) -> None:
        """Wait for every gradient, and apply every update that is due.

        Needed only for code that reads parameters outside Python, such as a C++ extension or
        torch.distributed. Raises: the error that ended an operation.
        """
        for parameter in self._parameters:
            land_parameter(parameter)

    def state_dict(self) -> dict[str, Any]:
        self.synchronize()
        return super().state_dict()

    def _check_resumable(self) -> None:
        options = {"a device": not self.account.waits}
        check_options(options, "state_dict of a registration")

    def close(self) -> None:
        """Apply due updates, restore model and optimizer, and close the session if `register`
        opened it.

        From now on the model trains with its own process group, and may be registered again. A
        second call does nothing.

        Raises: the error that ended an operation, unless it was raised before; everything is
        closed.
        """
        if self.copied or not self._open:
            return
        self._open = False
        if self.hook is not None:
            self.hook.leave(self)
        try:
            self._land_or_drop()
        finally:
            self.over()
            for hook in self._hooks:
                hook.remove()
            self._model.zero_grad = self._zero_grad  # type: ignore[method-assign]  # the original
            self._step.close()
            self.rules.close()
            if self.session and self._owned:
                self.session.close()

    def average(self, bucket: GradBucket, session: Session) -> Future[torch.Tensor]:
        """Begin to average a bucket, in pieces. Returns a completed Future: DDP writes this rank's
        own values to `.grad`, which no caller sees.

        Raises: BadConfig, or the error that prevents the submission of an operation.
        """
        self.rules.bring_back(bucket)
        for run in cut(contents(bucket), self.rules.class_of):
            self._submit(session, bucket.buffer(), run)
        done: Future[torch.Tensor] = Future()
        done.set_result(bucket.buffer())
        return done

    def begin(self, bucket: GradBucket) -> Session:
        """The session for a bucket that is ready; the first bucket begins a step."""
        if self.session is None:
            raise SessionClosed("this model's gradients do not go through dlcpd")
        check_backward(self._model)
        if not bucket.index():
            self.rules.begin_step(self.session.world)
        return self.session

    def _submit(
        self, session: Session, buffer: torch.Tensor, run: Sequence[PlacedGradient]
    ) -> None:
        start, size, unit = run[0].start, run[-1].stop - run[0].start, buffer.itemsize
        given = buffer.view(-1)[start // unit : (start + size) // unit]
        result = self._apart(session, given)
        request = self.rules.request(run, start, size)
        work = averaged(session, result, request, self.guard, watch=True)
        piece = AveragedPiece(work, self.account.waiting)
        for one in run:
            shape, strides = one.gradient.shape, one.gradient.stride()
            offset = result.storage_offset() + (one.start - start) // unit
            attach(piece, one.parameter, result.as_strided(shape, strides, offset))

    def _apart(self, session: Session, given: torch.Tensor) -> torch.Tensor:
        """A copy of a part of a bucket, to hold the average: DDP keeps using the bucket."""
        if device_of(given) is not None:
            return given.clone()
        result = session.empty(given.shape, given.dtype, wait=self.rules.policy.deadline)
        copy(result, given)
        return result

    def forget(self, *, set_to_none: bool) -> None:
        """model.zero_grad(): an update that is due still gets the gradient of its operation."""
        for parameter in self._parameters:
            if (entry := awaited(parameter)) is not None:
                forget(entry, set_to_none=set_to_none)

    def _land_or_drop(self) -> None:
        entries = [entry for p in self._parameters if (entry := awaited(p)) is not None]
        # The operations failed for the same reason: one report covers all of them.
        told = any(entry.piece.reported for entry in entries)
        untold: DlcpError | None = None
        for entry in entries:
            try:
                land_parameter(entry.parameter)
            except DlcpError as exc:
                drop(entry)
                untold = untold or exc
        if untold is not None and not told:
            raise untold


class ZeroGrad:
    """zero_grad() of a registered model. On a copied model it only calls the method."""

    def __init__(self, registration: CrossStepRegistration, method: Callable[..., None]) -> None:
        self._registration, self._method = registration, method

    def __call__(self, set_to_none: bool = True) -> None:
        if not self._registration.copied:
            self._registration.forget(set_to_none=set_to_none)
        self._method(set_to_none=set_to_none)


def register(  # noqa: PLR0913  # all but the first three by keyword
    model: DistributedDataParallel,
    optimizer: Optimizer,
    policy: LossPolicy = EXACT,
    *,
    session: Session | None = None,
    warmup_steps: int = DEFAULT_WARMUP,
    scaler: GradScaler | None = None,
    guard: Guard | None = None,
    fallback: bool = False,
    job: str | None = None,
    socket: str | None = None,
    arena_bytes: int = DEFAULT_ARENA,
    timeout: float = DEFAULT_TIMEOUT,
    config: str | Path | None = None,
) -> CrossStepRegistration:
    """As `ddp.register`, but training waits for each gradient only when it is used. Every rank
    calls it.

    `backward()` returns when all gradients are submitted, and `optimizer.step()` at once. A
    parameter is updated at its next use, usually by its layer in the next forward pass. Reading its
    `.grad`, a state_dict, or the parameter itself waits for the update, too. So clipping and
    GradScaler work, but they read all gradients and wait for all of them.

    Args:
        model: on the CPU or CUDA devices, before its first backward pass; without
            find_unused_parameters, static_graph, mixed_precision or sparse gradients. It may be
            compiled, in part or as a whole, before or after: the module that torch.compile(module)
            returns waits for all of its parameters at once; module.compile() and compiled functions
            break the graph at each module that has to wait.
        optimizer: SGD, Adam or another of torch.optim that updates each parameter by itself;
            step() without closure or hooks.
        policy, session, warmup_steps, scaler, fallback: as in `ddp.register`.
        guard: likewise, on the CPU; backward() waits for the gradients of a sampled step.
        job, socket, arena_bytes, timeout, config: as in `ddp.register`.

    Raises: BadConfig, BadPolicy, BadTensor, or the errors of `connect`; nothing is left open then.
        During training, the training thread raises the DlcpError where it waits for the gradient.
    """
    model, _, staged = wrapped(model)
    check_suitable(model, optimizer)
    guard = checked_guard(guard, policy)
    if staged:
        check_options({"guard": guard}, "a model on a device")
    opening = SessionOptions(
        fallback=fallback,
        timeout=timeout,
        job=job,
        socket=socket,
        arena_bytes=arena_bytes,
        config=config,
    )
    rules = Rules(model.module, policy, warmup_steps, scaler)
    rules.account.waits = not staged
    with ExitStack() as undo:
        undo.callback(rules.close)
        session, owned = opening.given_or_opened(session, model, undo)
        step = DeferredStep(optimizer)
        registration = CrossStepRegistration(model, session, rules, step, owned=owned, guard=guard)
        undo.callback(registration.close)
        if session is not None:
            registration.hook = hold(model, registration)
            undo.pop_all()
            registration.begun("cross_step")
    return registration


def _after_accumulation(parameter: torch.Tensor) -> None:
    """Check a backward pass that added to `.grad`: its bucket is submitted later, only once.

    DDP itself allows a second backward pass of one forward pass, and does not average its
    gradients.
    """
    if awaited(parameter) is not None:
        raise BadConfig(
            "the model ran a second backward pass without a forward pass in between, and the "
            "gradient of the first one is already averaged; add the losses and call "
            "backward() once"
        )
