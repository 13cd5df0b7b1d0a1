"""The registration of a module and its optimizer: updates inside the reduction of gradients."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, ClassVar, Final
from weakref import WeakValueDictionary

import torch
from torch import nn
from torch.amp import GradScaler
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from dlcp_client.fused.changes import ScaledStep, clip_norm
from dlcp_client.fused.flat_bucket import FlatBucket
from dlcp_client.fused.gradient_step import GradientStep
from dlcp_client.fused.lamb import LAMB
from dlcp_client.fused.layer_norms import LayerNorms
from dlcp_client.fused.optimizer_state import join_parts, states_of, whole_state
from dlcp_client.fused.optimizer_watch import REFUSED, OptimizerWatch
from dlcp_client.fused.shard_update import ShardUpdate
from dlcp_client.fused.tuned_steps import TunedSteps, check_tunable
from dlcp_client.hooks.lazy_parameters import before_forward
from dlcp_client.hooks.model_registration import ModelRegistration
from dlcp_client.hooks.replace_method import replace_method
from dlcp_client.hooks.rules import Rules
from dlcp_client.session import Session
from dlcpd.contract.errors import BadConfig
from dlcpd.contract.policy import LossPolicy

# Methods of the optimizer, and those of the registration that replace them
METHODS: Final = {
    "step": "update",
    "state_dict": "state_dict",
    "load_state_dict": "load_state_dict",
}


class FusedRegistration(ModelRegistration):
    """The result of `register`."""

    of_parameter: ClassVar[WeakValueDictionary[int, "FusedRegistration"]] = WeakValueDictionary()

    def __init__(
        self,
        session: Session,
        rules: Rules,
        optimizer: Optimizer,
        buckets: Sequence[FlatBucket],
        *,
        eager: bool,
        undo: ExitStack,
    ) -> None:
        """`buckets`: of all parameters; `undo`: gets what ends the registration; see `keep`."""
        super().__init__(session, rules)
        self.session: Session = session
        self._optimizer, self._eager = optimizer, eager
        self._methods = {name: getattr(optimizer, name) for name in (*METHODS, *REFUSED)}
        self._buckets = buckets
        self._shards = [ShardUpdate(bucket, optimizer) for bucket in buckets]
        self._updates = [shard.update for shard in self._shards]
        self._watch = OptimizerWatch(optimizer, self._shards)
        self._gradients = GradientStep(session, rules, buckets)
        self._norms = LayerNorms(session.world, self._shards) if type(optimizer) is LAMB else None
        self._tuned: TunedSteps | None = None
        self._averages = True
        self._undo = undo
        self._take_over([slot.parameter for bucket in buckets for slot in bucket.slots])

    @property
    def state_bytes(self) -> int:
        """Bytes of optimizer state that this rank holds: about its part of all ranks' state."""
        return sum(shard.nbytes for shard in self._shards)

    def explain(self) -> str:
        """The way of a step, of several with measured times under `tune`; bytes of this rank."""
        ways = self._tuned.explain() if self._tuned else self._gradients.way.title
        return f"{ways}\n\noptimizer's state on this rank: {self.state_bytes:,} bytes\n"

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of backward passes in this context add up, and are averaged with those of the
        next pass outside of it."""
        before, self._averages = self._averages, False
        try:
            yield
        finally:
            self._averages = before

    def discard(self) -> None:
        """Drop the gradients of the last backward pass, without an update. Every rank calls it,
        also one whose pass was ended by an exception, or never began.

        Raises: BadConfig; the error that ended an operation.
        """
        self._refuse_eager("discard()")
        if id(self._buckets[0].slots[0].parameter) not in self.of_parameter:
            raise BadConfig("discard() of a handle that is closed: there is nothing to drop")
        self._gradients.submit_rest()
        self._gradients.finish([shard.keep for shard in self._shards])
        for shard in self._shards:
            shard.has_masters = True
        if self._tuned:
            self._tuned.skipped()

    def set_policy(self, policy: LossPolicy) -> None:
        """As of ModelRegistration; with `tune` exact policies only."""
        if self._tuned:
            check_tunable(policy, self._optimizer)
        super().set_policy(policy)

    def clip_grad_norm_(
        self, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False
    ) -> torch.Tensor:
        """As torch.nn.utils.clip_grad_norm_ of all gradients, after the last backward pass and
        before `optimizer.step()`. Waits for all averages. Every rank calls it. Returns the norm
        of the averages.

        Raises: BadConfig; RuntimeError, as torch does; the error that ended an operation.
        """
        self._check("clip_grad_norm_()")
        averages, once = self._gradients.averages(), self._gradients.averages_once()
        with torch.no_grad(), self.account.waiting():
            return clip_norm(
                self.session.world,
                averages,
                once,
                max_norm,
                norm_type,
                error_if_nonfinite=error_if_nonfinite,
            )

    def clip_grad_value_(self, clip_value: float) -> None:
        """As torch.nn.utils.clip_grad_value_ of all gradients; see `clip_grad_norm_`."""
        self._check("clip_grad_value_()")
        for one in self._gradients.averages():
            one.clamp_(-clip_value, clip_value)

    def synchronize(self) -> None:
        """Wait for all weights. Needed only for code that reads parameters outside Python.

        Raises: the error that ended an operation.
        """
        self._gradients.settle()

    def gather_masters(self) -> None:
        """Under a policy with `gather`: put the weights before their rounding into the parameters
        of all ranks, as to save the model. Every rank calls it, between two steps; the next step
        rounds again.

        Raises: BadConfig; the error that ended an operation.
        """
        if self._gradients.begun:
            raise BadConfig("gather_masters() between backward() and step(): call it after step()")
        self._gradients.settle()
        self._put_masters()

    def close(self) -> None:
        """Return parameters, state and methods to model and optimizer, which then train without
        dlcpd; close the session if `register` opened it. Every rank calls it, since each gets the
        whole state. A second call does nothing. Raises: the error that ended an operation."""
        if self.copied:
            return
        with self._undo.pop_all():
            pass

    def update(self, closure: Callable[[], Any] | None = None) -> Any:
        """optimizer.step(): update this rank's parts. A layer of the next forward pass, and any
        other code that reads a parameter, waits for its weights.

        Raises: BadConfig; the error that ended an operation.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._gradients.check_complete("step()")
        self._gradients.check_unchanged()
        self._watch.check()
        with torch.no_grad():
            if self._norms is not None:
                self._norms.agree(self._gradients.parts())
            self._gradients.finish(self._updates)
        for shard in self._shards:
            shard.stepped()
        if self._tuned:
            self._tuned.stepped()
        return loss

    def state_dict(self) -> dict[str, Any]:
        """optimizer.state_dict(), in torch's format: the whole state, so every rank calls it.

        Raises: the error that ended an operation.
        """
        saved: dict[str, Any] = self._methods["state_dict"]()
        saved["state"] = whole_state(self.session, self._optimizer, self._shards, saved)
        return saved

    def load_state_dict(self, saved: dict[str, Any]) -> None:
        """optimizer.load_state_dict(), of a state of any number of ranks. Every rank calls it with
        the same one, between two steps.

        Raises: BadConfig for the state of another optimizer or model, and nothing has changed.
        """
        if self._gradients.begun:
            raise BadConfig("load_state_dict() between backward() and step(): load before it")
        states = states_of(self._optimizer, self._shards, saved)
        self._methods["load_state_dict"]({**saved, "state": {}})
        for shard, one in zip(self._shards, states, strict=True):
            shard.load(one)

    # --- gradients ------------------------------------------------------------------------------

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        """A backward pass has added to the gradient of a parameter."""
        if not self._averages:
            return
        self._gradients.add(parameter)
        if self._eager:
            with torch.no_grad():
                self._gradients.compute_due(self._updates)

    def _check(self, call: str) -> None:
        """Raises: BadConfig if a call cannot change the averages of this step."""
        self._refuse_eager(call)
        self._gradients.check_complete(call)
        self._gradients.check_unchanged()

    def _refuse_eager(self, call: str) -> None:
        if self._eager:
            raise BadConfig(f"{call}: eager=True updates within backward(); register without it")

    # --- begin and end --------------------------------------------------------------------------

    def keep(self, undo: ExitStack) -> None:
        """`undo`: from now on, what `close` undoes."""
        self._undo = undo

    def _take_over(self, parameters: Sequence[nn.Parameter]) -> None:
        undo, optimizer = self._undo, self._optimizer
        undo.callback(self.over)
        for bucket in self._buckets:
            bucket.enter()
            undo.callback(bucket.leave)
        undo.callback(register_module_forward_pre_hook(before_forward).remove)
        for parameter in parameters:
            self.of_parameter[id(parameter)] = self
            hook = parameter.register_post_accumulate_grad_hook(self._on_gradient)  # type: ignore[no-untyped-call]  # torch
            undo.callback(hook.remove)
            undo.callback(self.of_parameter.pop, id(parameter))
        own = {name: getattr(self, method) for name, method in METHODS.items()}
        for name, call in {**own, **REFUSED}.items():
            replace_method(optimizer, name, call)
            undo.callback(setattr, optimizer, name, self._methods[name])
        undo.callback(self._return_state)
        undo.callback(self._put_masters)
        undo.callback(self._gradients.settle)

    def start(self, *, tune: bool) -> None:
        """Go on from the state that the optimizer had before; `tune`: choose the way of steps.

        Raises: BadConfig; RanksDisagree; the error that ended an operation.
        """
        if self._optimizer.state:
            self.load_state_dict(self._methods["state_dict"]())
            self._optimizer.state.clear()
        if tune:
            self._tuned = TunedSteps(self.session, self._optimizer, self._gradients, self._shards)

    def scale_with(self, scaler: GradScaler) -> None:
        """Let `scaler` act on the averages until `close`. Raises: BadConfig."""
        scaled = ScaledStep(
            scaler, self._optimizer, self._gradients, self.session.world, self.discard
        )
        self._undo.callback(scaled.close)

    def replace_averaging_of(self, model: DistributedDataParallel) -> None:
        """Until `close`, `model` averages no gradients, and its no_sync() is the one here."""
        syncs = model.require_backward_grad_sync
        model.require_backward_grad_sync = False
        model.no_sync = self.no_sync  # type: ignore[method-assign]  # the loop stays as it is
        self._undo.callback(setattr, model, "require_backward_grad_sync", syncs)
        self._undo.callback(vars(model).pop, "no_sync")

    def _put_masters(self) -> None:
        for shard in self._shards:
            shard.bucket.take_changes()
            if whole := shard.masters():
                join_parts(self.session, whole)
                bucket = shard.bucket
                bucket.weights.copy_(whole["weights"])
                bucket.apply([slot.parameter for slot in bucket.slots])

    def _return_state(self) -> None:
        """Needs the other ranks, and the replaced methods."""
        self._methods["load_state_dict"](self.state_dict())
