"""register(): from a module and its optimizer to updates inside the reduction of gradients."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final
from weakref import WeakValueDictionary

import torch
from torch import nn
from torch.optim import Optimizer

from dlcp_client.fused.flat_bucket import FlatBucket, flat_buckets
from dlcp_client.fused.optimizer_state import states_of, whole_state
from dlcp_client.fused.shard_update import ShardUpdate
from dlcp_client.fused.suitability import trained
from dlcp_client.hooks.model_registration import ModelRegistration
from dlcp_client.hooks.replace_method import replace_method
from dlcp_client.hooks.rules import DEFAULT_WARMUP, Rules
from dlcp_client.joining.sessions import DEFAULT_ARENA, DEFAULT_TIMEOUT
from dlcp_client.joining.torch_ranks import connect
from dlcp_client.operations.work import Work
from dlcp_client.session import Session
from dlcpd.contract.errors import BadConfig, BadTensor
from dlcpd.contract.policy import EXACT, LossPolicy

NAMED: Final = 3  # parameters that an error names at most
# Methods of the optimizer, and those of the registration that replace them
METHODS: Final = {
    "step": "update",
    "state_dict": "state_dict",
    "load_state_dict": "load_state_dict",
    "add_param_group": "add_param_group",
}


class FusedRegistration(ModelRegistration):
    """The result of `register`."""

    of_parameter: ClassVar[WeakValueDictionary[int, "FusedRegistration"]] = WeakValueDictionary()

    def __init__(
        self,
        session: Session,
        rules: Rules,
        optimizer: Optimizer,
        parameters: list[nn.Parameter],
        *,
        owned: bool,
    ) -> None:
        super().__init__(session, rules)
        self.session: Session = session
        self._optimizer = optimizer
        self._methods = {name: getattr(optimizer, name) for name in METHODS}
        self._buckets = flat_buckets(session, optimizer.param_groups, parameters)
        self._shards = [ShardUpdate(bucket, optimizer) for bucket in self._buckets]
        self._of = {id(slot.parameter): b for b in self._buckets for slot in b.slots}
        self._at = {id(one.parameter): one for b in self._buckets for one in b.placed}
        # by parameter: its gradient of this step, and the version of the values that were averaged
        self._given: dict[int, tuple[torch.Tensor, int]] = {}
        self._works: list[Work] = []  # of the first buckets, in their order
        self._averages = True
        self._undo = ExitStack()
        if owned:
            self._undo.callback(session.close)
        self._take_over(parameters)

    @property
    def state_bytes(self) -> int:
        """Bytes of optimizer state that this rank holds: about its part of all ranks' state."""
        return sum(shard.nbytes for shard in self._shards)

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
        """Drop the gradients of the last backward pass, without an update. Every rank calls it.

        Raises: the error that ended an operation.
        """
        self._check_complete("discard()")
        self._finish([lambda _first, _end: None] * len(self._shards))

    def close(self) -> None:
        """Return parameters, state and methods to model and optimizer, which then train without
        dlcpd; close the session if `register` opened it. Every rank calls it, since each gets the
        whole state. A second call does nothing. Raises: the error that ended an operation."""
        if self.copied:
            return
        with self._undo.pop_all():
            pass

    def update(self, closure: Callable[[], Any] | None = None) -> Any:
        """optimizer.step(): update this rank's parts, and wait for all weights.

        Raises: BadConfig; the error that ended an operation.
        """
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self._check_complete("step()")
        self._check_unchanged()
        with torch.no_grad():
            self._finish([shard.update for shard in self._shards])
        for shard in self._shards:
            shard.stepped()
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
        if self._given:
            raise BadConfig("load_state_dict() between backward() and step(): load before it")
        states = states_of(self._optimizer, self._shards, saved)
        self._methods["load_state_dict"]({**saved, "state": {}})
        for shard, one in zip(self._shards, states, strict=True):
            shard.load(one)

    def add_param_group(self, _: dict[str, Any]) -> None:
        """optimizer.add_param_group(). Raises: BadConfig."""
        raise BadConfig("fused has laid out all parameters: close the handle, then add parameters")

    # --- gradients ------------------------------------------------------------------------------

    def _on_gradient(self, parameter: torch.Tensor) -> None:
        """A backward pass has added to the gradient of a parameter."""
        if not self._averages:
            return
        key, gradient = id(parameter), parameter.grad
        if key in self._given:
            raise BadConfig(
                f"a second backward pass without step(): {self.name_of(parameter)!r} is averaged "
                f"already. Use no_sync() of the handle for all passes but the last, or its "
                f"discard() to skip a step"
            )
        assert gradient is not None  # noqa: S101  # torch calls the hook after it has added to it
        if gradient.is_sparse:
            raise BadTensor(
                f"the gradient of {self.name_of(parameter)!r} is sparse: set sparse=False"
            )
        if not self._given:
            self.rules.begin_step(self.session.world)
        self._at[key].gradient.copy_(gradient)
        self._given[key] = gradient, gradient._version  # noqa: SLF001  # no public name
        self._of[key].missing -= 1
        while len(self._works) < len(self._buckets) and not self._next.missing:
            self._submit(self._next)

    @property
    def _next(self) -> FlatBucket:
        return self._buckets[len(self._works)]

    def _submit(self, bucket: FlatBucket) -> None:
        request = self.rules.request(bucket.placed, 0, bucket.gradients.nbytes)
        work = self.session.world.all_reduce_computed(
            bucket.gradients, bucket.weights, "avg", **request.keywords()
        )
        request.time(work)
        self._works.append(work)

    def _check_complete(self, call: str) -> None:
        """Raises: BadConfig if a gradient is missing."""
        absent = [slot.parameter for b in self._buckets for slot in b.slots]
        absent = [p for p in absent if id(p) not in self._given]
        if absent:
            names = ", ".join(repr(self.name_of(p)) for p in absent[:NAMED])
            raise BadConfig(
                f"{call} without a gradient of {names}: every parameter needs one from a backward "
                f"pass outside no_sync(); freeze parameters that are not used"
            )

    def _check_unchanged(self) -> None:
        """Raises: BadConfig if a gradient has changed since it was averaged: clipping, a GradScaler
        and hooks act on values that no update reads any more; or if a parameter has left the arena,
        where it would miss its updates."""
        for bucket in self._buckets:
            start, unit = bucket.weights.data_ptr(), bucket.weights.itemsize
            for parameter, first, _ in bucket.slots:
                kept, version = self._given[id(parameter)]
                if parameter.grad is not kept or kept._version != version:  # noqa: SLF001  # as above
                    raise BadConfig(
                        f"the gradient of {self.name_of(parameter)!r} was changed after "
                        f"backward(), when it was averaged already: fused does not support "
                        f"clipping and GradScaler; use ddp.register for them"
                    )
                if parameter.data_ptr() != start + first * unit:
                    raise BadConfig(
                        f"parameter {self.name_of(parameter)!r} has other memory than since "
                        f"fused.register: convert, move or assign parameters before it"
                    )

    def _finish(self, computations: list[Callable[[int, int], None]]) -> None:
        """Complete the operations of this step. Raises: the error that ended one."""
        works, self._works = self._works, []
        self._given.clear()
        for bucket in self._buckets:
            bucket.missing = len(bucket.slots)
        # the front layers, whose gradients come last, are needed first
        pairs = reversed(list(zip(works, computations, strict=True)))
        with self.account.waiting():
            self.session.compute(dict(pairs))
            for work in works:
                work.wait()

    # --- begin and end --------------------------------------------------------------------------

    def _take_over(self, parameters: list[nn.Parameter]) -> None:
        undo, optimizer = self._undo, self._optimizer
        undo.callback(self.rules.close)
        undo.callback(self.over)
        for bucket in self._buckets:
            bucket.enter()
            undo.callback(bucket.leave)
        for parameter in parameters:
            self.of_parameter[id(parameter)] = self
            hook = parameter.register_post_accumulate_grad_hook(self._on_gradient)  # type: ignore[no-untyped-call]  # torch
            undo.callback(hook.remove)
            undo.callback(self.of_parameter.pop, id(parameter))
        for name, own in METHODS.items():
            replace_method(optimizer, name, getattr(self, own))
            undo.callback(setattr, optimizer, name, self._methods[name])
        undo.callback(self._return_state)

    def _return_state(self) -> None:
        """Needs the other ranks, and the replaced methods."""
        self._methods["load_state_dict"](self.state_dict())


def register(  # noqa: PLR0913  # all but the first three by keyword
    model: nn.Module,
    optimizer: Optimizer,
    policy: LossPolicy = EXACT,
    *,
    session: Session | None = None,
    warmup_steps: int = DEFAULT_WARMUP,
    arena_bytes: int = DEFAULT_ARENA,
    timeout: float = DEFAULT_TIMEOUT,
    config: str | Path | None = None,
) -> FusedRegistration:
    """Train `model` in data parallel, and update each part of the parameters on one rank, between
    the reduction of its gradients and the gather of its weights. Every rank calls it.

    Gradients are averaged while backward() runs. `optimizer.step()` updates this rank's parts with
    torch's fused kernel, and returns when all parameters are here. Each rank holds its part of the
    optimizer's state. Parameters and buffers of rank 0 are copied to all ranks first; buffers are
    not copied again.

    Args:
        model: a plain module on the CPU. Every trained parameter gets a gradient in each step.
        optimizer: SGD, Adam or AdamW of torch.optim, without steps so far.
        policy: exact or bounded; bounds apply to gradients alone, weights are always complete.
        session: by default a new one of `connect`, which `close` ends.
        warmup_steps: as of `ddp.register`.
        arena_bytes, timeout, config: as of `connect`. The arena holds all parameters twice.

    Raises: BadConfig, BadPolicy, BadTensor, ArenaFull, or the errors of `connect`; model and
        optimizer then stay as they are, but for the values of rank 0.
    """
    parameters = trained(model, optimizer, policy)
    for name, parameter in parameters.items():
        if id(parameter) in FusedRegistration.of_parameter:
            raise BadConfig(f"parameter {name!r} is registered already: close that registration")
    rules = Rules(model, policy, warmup_steps)
    with ExitStack() as undo:
        undo.callback(rules.close)
        opened = session is None
        if session is None:
            session = connect(arena_bytes=arena_bytes, timeout=timeout, config=config)
            undo.callback(session.close)
        _copy_from_rank_0(session, model)
        made = FusedRegistration(session, rules, optimizer, list(parameters.values()), owned=opened)
        undo.pop_all()
    made.begun("fused")
    return made


def _copy_from_rank_0(session: Session, model: nn.Module) -> None:
    """Parameters and buffers, as DistributedDataParallel does."""
    for tensor in [*model.parameters(), *model.buffers()]:
        values = tensor.detach().contiguous()
        session.world.broadcast(values, 0).wait()
        tensor.detach().copy_(values)
