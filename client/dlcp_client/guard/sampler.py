"""Samples bounded reductions, and applies a training's guard to their error."""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch

from dlcp_client.arena.tensors import copy
from dlcp_client.group import Group
from dlcp_client.guard import Guard
from dlcp_client.guard.gradient_error import GradientError, sums
from dlcp_client.hooks.rules import GradientRequest, Rules
from dlcp_client.operations.work import Work
from dlcp_client.session import Session
from dlcpd.contract.errors import GuardStopped
from dlcpd.contract.policy import LossPolicy

_log: Final = logging.getLogger("dlcp_client")


@dataclass(frozen=True, slots=True)
class BoundedSample:
    """A bounded reduction. `exactly` submits the exact one of the same contribution, and returns it
    with its result tensor; `part` selects the elements that this rank compares."""

    name: str
    bounded: Work
    result: torch.Tensor
    exactly: Callable[[], tuple[Work, torch.Tensor]]
    part: Callable[[torch.Tensor], torch.Tensor]


class GuardSampler:
    """The guard of one model. Every rank samples the same reductions in the same steps, and decides
    by exact sums over all ranks, so all decide alike."""

    def __init__(self, guard: Guard, rules: Rules) -> None:
        self._guard, self._rules = guard, rules
        self._open: list[BoundedSample] = []  # of the current backward pass
        self._step = 0  # number of that pass
        self._counts = {"samples": 0, "excesses": 0, "overflows": 0}
        self._last: dict[str, Any] = {}
        if guard.every > 1:  # else no step is without a sample, and its exact operations
            rules.compare()

    @property
    def exact(self) -> LossPolicy:
        """The policy of the exact reductions."""
        return self._rules.exact

    def report(self) -> dict[str, Any]:
        """Plain values for a logger, of the last sample that was finite; equal on all ranks.

        `error` (relative), `cosine`, `missing_norm` and `exact_norm` over all bounded gradients of
        `step`; `worst` and `worst_error` of one operation; `bound`: the present one. Counts:
        `samples`, `excesses` over the guard's max_error, `overflows` (steps with NaN or Inf).
        """
        return self._counts | self._last | {"bound": self._rules.policy.max_loss}

    def samples(self, request: GradientRequest) -> bool:
        """Whether to sample a reduction that is about to be submitted."""
        if request.policy.is_plain or self._rules.exact_step:
            return False
        return self._rules.inexact_steps % self._guard.every == 0

    def add(self, group: Group, sample: BoundedSample) -> None:
        """Called in a backward pass: compare the sample at the end of the pass."""
        if self._step != self._rules.step:  # first sample of the pass; drop samples of a failed one
            self._step, self._open = self._rules.step, []
            torch.autograd.Variable._execution_engine.queue_callback(  # noqa: SLF001
                lambda: self._finish(group)
            )
        self._open.append(sample)

    def _finish(self, group: Group) -> None:
        """Raises: the error that ended an operation, out of backward(); GuardStopped."""
        samples, self._open = self._open, []
        rows = [self._compare(sample) for sample in samples]
        table = torch.stack(rows)
        group.all_reduce(table, "sum", policy=self.exact).wait()
        self._counts["samples"] += 1
        error = GradientError.of(table.sum(0))
        if error.overflow:
            self._overflow()
            return
        each = [GradientError.of(row).relative for row in table]
        worst = max(range(len(each)), key=each.__getitem__)
        self._last = {
            "step": self._step,
            "error": error.relative,
            "cosine": error.cosine,
            "missing_norm": error.missing,
            "exact_norm": error.exact,
            "worst": samples[worst].name,
            "worst_error": each[worst],
        }
        if error.relative > self._guard.max_error:
            self._exceeded(error.relative)

    def _compare(self, sample: BoundedSample) -> torch.Tensor:
        sample.bounded.wait()
        work, exact = sample.exactly()
        work.wait()
        return sums(sample.part(sample.result), sample.part(exact))

    def _overflow(self) -> None:
        """Count a step with NaN or Inf: a loss scaler skips such a step, and so does the guard."""
        if not self._counts["overflows"]:
            _log.warning(
                (
                    "guard: the gradients of step %d contain NaN or Inf, so their error is "
                    "unknown; later cases are counted as overflows"
                ),
                self._step,
            )
        self._counts["overflows"] += 1

    def _exceeded(self, error: float) -> None:
        """React to an excessive error. Raises: GuardStopped."""
        self._counts["excesses"] += 1
        guard, rules, before = self._guard, self._rules, self._rules.policy.max_loss
        said = (
            f"guard: in step {self._step} the error of bounded gradients is {error:.3g}, above "
            f"the limit {guard.max_error:g} (bound {before:g})"
        )
        if guard.on_excess == "stop":
            raise GuardStopped(
                f'{said}: the training stops, as on_excess="stop" demands; tighten the '
                "policy, or use exact()"
            )
        if guard.on_excess == "warn":
            _log.warning(said)
            return
        half = before / 2 if guard.on_excess == "tighten" else 0.0
        bound = half if half >= guard.floor else 0.0
        rules.limit(bound)
        _log.warning("%s; later steps use: %s", said, f"bound {bound:g}" if bound else "exact")


def averaged(
    session: Session,
    result: torch.Tensor,
    request: GradientRequest,
    sampler: GuardSampler | None,
    *,
    watch: bool = False,
) -> Work:
    """Average `result`, a tensor of `session.empty`, over all ranks; sampled if due, else timed if
    due. `watch`: the caller makes no Future of it.

    Raises: the error that prevents the submission of an operation.
    """
    if sampler is None or not sampler.samples(request):
        work = session.all_reduce(result, "avg", result_only=True, **request.keywords())
        request.time(work, watch=watch)
        return work
    group, policy = session.world, request.policy
    given = session.empty(result.shape, result.dtype, wait=policy.deadline)
    copy(given, result)
    work = group.all_reduce(given, "avg", into=result, result_only=True, **request.keywords())

    def exactly() -> tuple[Work, torch.Tensor]:
        exact = session.empty(given.shape, given.dtype, wait=policy.deadline)
        return group.all_reduce(given, "avg", into=exact, policy=sampler.exact), exact

    def part(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.flatten().tensor_split(group.size)[group.rank]

    sampler.add(group, BoundedSample(request.name, work, result, exactly, part))
    return work
