"""The terms of a model's gradients: policy, name, exempt ranges and traffic classes."""

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Self

import torch
from torch import nn
from torch._C._distributed_c10d import GradBucket
from torch.amp import GradScaler

from dlcp_client.group import Group
from dlcp_client.hooks import exact_steps
from dlcp_client.hooks.buckets import PlacedGradient, contents
from dlcp_client.hooks.exempt import bucket_name, exempt_parameters
from dlcp_client.hooks.forward_order import ForwardOrder
from dlcp_client.hooks.resumed_gradients import ResumedGradients
from dlcp_client.operations.layers import UNCLASSED, Layer
from dlcp_client.operations.requests import Range
from dlcp_client.operations.work import Work
from dlcp_client.quantities import whole
from dlcp_client.report.account import Account
from dlcpd.contract.errors import BadConfig, BadPolicy
from dlcpd.contract.policy import LossPolicy, checked

DEFAULT_WARMUP: Final = 10  # steps; early gradients are large and change direction
MIN_WARMUP: Final = 2  # steps; DDP regroups its buckets after the first, so names change once
EXACT_BELOW: Final = 1 << 20  # bytes, about a chunk: too small to gain from loss

_models: Final = itertools.count()  # every rank registers its models in the same order


@dataclass(frozen=True, slots=True)
class GradientRequest:
    """The keywords of `Session.all_reduce` for a run of gradients."""

    policy: LossPolicy
    name: str
    exempt: list[Range]
    layers: list[Layer]
    scale: float  # loss scale
    seconds: list[float] | None = None  # receives the time of the operation; None: it is not timed

    def time(self, work: Work[Any], *, watch: bool = False) -> None:
        """Time its operation, if it is to be timed. `watch`: as of `Work.time`."""
        if self.seconds is not None:
            work.time(self.seconds, watch=watch)

    def keywords(self) -> dict[str, Any]:
        """The keyword arguments."""
        return {
            "policy": self.policy,
            "name": self.name,
            "exempt": self.exempt,
            "layers": self.layers,
            "scale": self.scale,
        }


@dataclass(frozen=True, slots=True)
class ResidualOrigin:
    """An operation that may have a residual for the next one of its name."""

    count: int  # elements
    dtype: torch.dtype
    # For each gradient in it: its parameter, first element, shape and strides.
    rows: tuple[tuple[nn.Parameter, int, torch.Size, tuple[int, ...]], ...]

    @classmethod
    def of(cls, placed: Sequence[PlacedGradient], start: int, size: int) -> Self:
        """The record of an operation over `size` bytes of a bucket, from `start` on."""
        unit = placed[0].gradient.itemsize
        return cls(
            size // unit,
            placed[0].gradient.dtype,
            tuple(
                (
                    one.parameter,
                    (one.start - start) // unit,
                    one.gradient.shape,
                    one.gradient.stride(),
                )
                for one in placed
            ),
        )

    def parts(self, values: torch.Tensor) -> Iterator[tuple[nn.Parameter, torch.Tensor]]:
        """Views of its values, by parameter."""
        for parameter, first, shape, strides in self.rows:
            yield parameter, values.as_strided(shape, strides, values.storage_offset() + first)


class Rules:
    """Applies one policy to all gradients of a model. `step` counts backward passes begun;
    `account` holds their totals."""

    def __init__(
        self,
        model: nn.Module,
        policy: LossPolicy,
        warmup_steps: int,
        scaler: GradScaler | None = None,
        *,
        gathers: bool = False,
    ) -> None:
        """`gathers`: updated weights travel, in the policy's `gather`. Raises: BadPolicy,
        BadConfig."""
        policy = checked(policy)
        if policy.gather and not gathers:
            raise BadPolicy(
                f"gather={policy.gather!r} is of weights, and here gradients travel: use it with "
                f"fused.register, or codec= for gradients"
            )
        if scaler is not None and not isinstance(scaler, GradScaler):
            raise BadConfig(
                f"scaler {scaler!r} is not a GradScaler: pass the torch.amp.GradScaler of the "
                "training"
            )
        self._scaler, self._scale = scaler, 1.0  # scale of this step's loss
        self.account = Account()
        self.policy, self.exact = policy, _exactly(policy)
        self._use(policy)
        self._next: LossPolicy | None = None  # policy from the next step on
        self.warmup_steps = max(whole("warmup_steps", warmup_steps), MIN_WARMUP)
        self.step = 0
        self.before = 0  # steps of the training before the checkpoint
        self._compares: Callable[[int], bool] | None = None  # whether a step may be exact, or timed
        self.exact_step = False  # whether this step is exact to be compared with bounded ones
        self.inexact_steps = 0  # number of earlier steps after the warm-up without those
        self.resumed = ResumedGradients(dict(model.named_parameters()))
        # By name, in the order of their first submission. At most twice the model's number of
        # buckets or pieces: DDP regroups its buckets once, before any has a name.
        self.residuals: dict[str, ResidualOrigin] = {}
        self._ended = False  # nothing is waived any more
        self._prefix = f"ddp{next(_models)}"
        self._names = {id(p): name for name, p in model.named_parameters()}
        self._exempt = exempt_parameters(model)
        self._order = ForwardOrder(model)

    def bring_back(self, bucket: GradBucket) -> None:
        """Add values from a checkpoint, or from saving one, to the gradients of a ready bucket."""
        if self.resumed:
            self.resumed.add_to((one.parameter, one.gradient) for one in contents(bucket))

    def begin_step(self, group: Group) -> None:
        """A backward pass begins, on all ranks of `group`.

        The first one waits for rank 0, whose forward order gives the classes of all ranks: branches
        may run in a different order on each. Raises: the error that ended that operation.
        """
        if self.step > self.warmup_steps and not self.exact_step:
            self.inexact_steps += 1
        self.step += 1
        self.account.begin()
        if self._next is not None:
            self._take(self._next)
        self._compare()
        if self._scaler:  # once per step: on a device it waits for all queued work
            self._scale = self._scaler.get_scale()
        self.resumed.rescale(self._scale)
        if self.step == 1 and self.policy.traffic_class == UNCLASSED:
            self._order.agree(group, replace(self.exact, gather=""))

    def compare(self, may: Callable[[int], bool] = lambda _: True) -> None:
        """From now on run a bounded step in exact mode at times, and compare their times.

        `may(step)`: whether that step may be one of those; equal on all ranks.
        """
        self._compares = may

    def _compare(self) -> None:
        """Begin a step as one that is compared, or not. It depends on the number of the step, so
        all ranks do alike."""
        if self._compares is None:
            return
        number = self.step - self.warmup_steps - 1
        compares = self.policy.mode == "bounded" and number >= 0 and self._compares(self.step)
        self.exact_step = compares and exact_steps.is_exact(number)
        timed = compares and exact_steps.is_timed(number)
        self.account.exchanges.begin(timed=timed, exact=self.exact_step)

    def policy_now(self, size: int) -> LossPolicy:
        """The policy for `size` bytes in this step."""
        if not self._may_be_inexact(size):
            return self.exact
        return self._lossless if self.exact_step else self.policy

    def _may_be_inexact(self, size: int) -> bool:
        return self.step > self.warmup_steps and size >= EXACT_BELOW

    def change(self, policy: LossPolicy) -> None:
        """Use another policy from the next step on, on all ranks. Raises: BadPolicy."""
        policy = checked(policy)
        if policy.traffic_class != self.policy.traffic_class:
            raise BadPolicy(
                f"the policy changes the traffic class from {self.policy.traffic_class!r} to "
                f"{policy.traffic_class!r}, and ranks agree on classes in the first step only: "
                "close this registration and register again"
            )
        if policy.gather != self.policy.gather:
            raise BadPolicy("gather= stays as it was: close this registration and register again")
        self._next = policy

    def _take(self, policy: LossPolicy) -> None:
        # Residuals under the present policy are reapplied in operations of the same names.
        self._ended = policy.is_plain and (self._ended or not self.policy.is_plain)
        self.exact, self._next = _exactly(policy), None
        self._use(policy)

    def _use(self, policy: LossPolicy) -> None:
        if policy.mode == "bounded" and policy != self.policy:
            self.account.exchanges.forget()  # of another bound
        self.policy = policy
        # With the codec of the policy: in a comparison only the loss differs.
        self._lossless = replace(policy, mode="exact", max_loss=0.0, per_class={})

    def limit(self, max_loss: float) -> None:
        """Lower the bound for later operations, on all ranks in the same step. 0: nothing more is
        waived, and residuals are reapplied."""
        self._ended = not max_loss
        per_class = {name: min(b, max_loss) for name, b in self.policy.per_class.items()}
        lower = replace(self.policy, max_loss=max_loss, per_class=per_class) if max_loss else None
        self._use(lower or self.exact)

    def resume(self, step: int) -> None:
        """Count `step` steps of the training before the first one here."""
        self.before = step
        self.warmup_steps = max(self.warmup_steps - step, MIN_WARMUP)

    def class_of(self, parameter: nn.Parameter) -> str:
        """The policy's own class if it chose one, else that of the parameter's first use."""
        own = self.policy.traffic_class
        return own if own != UNCLASSED else self._order.class_of(parameter)

    def request(
        self, placed: Sequence[PlacedGradient], start: int, size: int, *, bring_home: bool = False
    ) -> GradientRequest:
        """The terms of an operation over `size` bytes of a bucket, from `start` on.

        The name is equal for the same parameters in the same order, on every rank. `bring_home`:
        waive nothing, and reapply the residual.
        """
        policy = self.policy_now(size)
        scale, placed = self._scale, [one for one in placed if one.start < one.stop]
        self.account.handed(size, bounded=policy.mode == "bounded" and not bring_home)
        layers = [(one.start - start, self.class_of(one.parameter)) for one in placed]
        inexact = self._may_be_inexact(size)
        bring_home = bring_home or (self._ended and inexact)
        compared = self.exact_step and inexact  # it reapplies residuals, as a bounded one does
        if policy.is_plain and not (bring_home or compared):
            return GradientRequest(policy, "", [], layers, scale)
        names = [self._names[id(one.parameter)] for one in placed]
        counts = [one.parameter.numel() for one in placed]
        exempt = [
            (one.start - start, one.stop - start)
            for one in placed
            if id(one.parameter) in self._exempt
        ]
        name = bucket_name(self._prefix, names, counts)
        if name not in self.residuals:
            self.residuals[name] = ResidualOrigin.of(placed, start, size)
        if bring_home:
            return GradientRequest(self.exact, name, [], layers, scale)
        self.account.label(
            name, names[0] if names[0] == names[-1] else f"{names[0]} to {names[-1]}"
        )
        seconds = self.account.exchanges.place(name, size)
        return GradientRequest(policy, name, exempt, layers, scale, seconds)

    def is_exempt(self, parameter: nn.Parameter) -> bool:
        """Whether no part of its gradient is ever waived."""
        return id(parameter) in self._exempt

    def name_of(self, parameter: torch.Tensor) -> str:
        """The parameter's name in the model."""
        return self._names[id(parameter)]

    def close(self) -> None:
        """Stop watching the model's forward passes."""
        self._order.stop()


def _exactly(policy: LossPolicy) -> LossPolicy:
    return replace(policy, mode="exact", max_loss=0.0, per_class={}, codec="")
