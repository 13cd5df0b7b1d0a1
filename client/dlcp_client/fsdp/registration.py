"""register(): from a model of fully_shard to reduce-scatters through dlcpd."""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.amp import GradScaler
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp._fully_shard._fsdp_api import AllGather, ReduceScatter

from dlcp_client.c10d import ProcessGroup
from dlcp_client.c10d.errors import torch_errors
from dlcp_client.c10d.reduction import Reduction
from dlcp_client.device.registry import device_of
from dlcp_client.group import Group
from dlcp_client.guard import Guard, checked_guard
from dlcp_client.guard.sampler import BoundedSample, GuardSampler
from dlcp_client.hooks.buckets import PlacedGradient
from dlcp_client.hooks.model_registration import ModelRegistration
from dlcp_client.hooks.model_session import check_options
from dlcp_client.hooks.rules import DEFAULT_WARMUP, GradientRequest, Rules
from dlcp_client.operations.work import Work
from dlcpd.contract.errors import BadConfig
from dlcpd.contract.policy import EXACT, LossPolicy


class FSDPRegistration(ModelRegistration):
    """The result of `register`, and the open reductions of the current backward pass."""

    def __init__(self, group: Group, rules: Rules, guard: Guard | None = None) -> None:
        super().__init__(group.session, rules)
        self.group = group
        self.guard = GuardSampler(guard, rules) if guard else None
        self._open: list[Work] = []
        self._in_backward = False

    def begin(self) -> None:
        """Note a reduction of a backward pass; the first one begins a step."""
        if not self._in_backward:
            self._in_backward = True
            self.rules.begin_step(self.group)
            torch.autograd.Variable._execution_engine.queue_callback(self.finish)  # noqa: SLF001

    def add(self, work: Work) -> None:
        """Register a reduction that its caller does not wait for."""
        self._open.append(work)

    def finish(self) -> None:
        """Wait for all reductions, at the end of the backward pass.

        Raises: the error that ended one of them; backward() raises it.
        """
        self._in_backward = False
        works, self._open = self._open, []
        with torch_errors(), self.account.waiting():
            for work in works:
                work.wait()


def register(
    model: nn.Module,
    policy: LossPolicy = EXACT,
    *,
    warmup_steps: int = DEFAULT_WARMUP,
    scaler: GradScaler | None = None,
    guard: Guard | None = None,
) -> FSDPRegistration:
    """Reduce the gradients of `model` by `policy` from now on. Every rank calls it.

    Args:
        model: the root, after `fully_shard` of it and of its blocks, on the CPU or CUDA devices.
        policy: the bound on loss. Norms, biases and embeddings are exact, and so are reductions of
            less than 1 MiB, and steps in which a parameter of the block has no gradient. A codec
            applies to blocks of 1 MiB or more; it rounds contributions, not sums.
        warmup_steps: exact steps, without a codec, before the policy applies, at least 2.
        scaler: the GradScaler of the training, if it has one: as of `ddp.register`.
        guard: as of `ddp.register`, on the CPU; not with hybrid sharding.

    backward() returns when all gradients are complete. Until then the reductions of several blocks
    overlap each other and the computation.

    Raises: BadConfig, BadPolicy. backward() raises a DlcpError for an error during training.
    """
    if not isinstance(model, FSDPModule):
        raise BadConfig(f"{type(model).__name__} is not sharded: call fully_shard(model) first")
    blocks = [module for module in model.modules() if isinstance(module, FSDPModule)]
    shards = [shard for block in blocks for shard in _shards(block)]
    group = _group_of(shards)
    guard = checked_guard(guard, policy)
    if guard and any(shard._is_hsdp for shard in shards):  # noqa: SLF001  # no public name
        raise BadConfig(
            "guard= does not work with hybrid sharding: each group of shards would decide for "
            "itself; leave guard= out, or shard over all ranks"
        )
    staged = any([device_of(parameter) is not None for parameter in model.parameters()])
    if staged:
        check_options({"guard": guard}, "a model on a device")
    rules = Rules(model, policy, warmup_steps, scaler)
    rules.account.waits = not staged
    registration = FSDPRegistration(group, rules, guard)
    for block in blocks:
        for shard in _shards(block):
            block.set_custom_reduce_scatter(GradientReduce(registration, shard))
            block.set_custom_all_gather(WeightGather(group))
    registration.begun("fsdp")
    return registration


class ArenaBuffers:
    """Buffers for a collective in the arena, which need no copy; for a device, on that device."""

    def __init__(self, group: Group) -> None:
        self.group = group

    def allocate(self, size: Any, *, dtype: torch.dtype, device: torch.device) -> torch.Tensor:
        """A buffer, as FSDP requests it. Raises: ArenaFull."""
        if device_of(torch.empty(0, device=device)) is not None:
            return torch.empty(tuple(size), dtype=dtype, device=device)
        return self.group.session.empty(tuple(size), dtype, wait=EXACT.deadline)


class WeightGather(ArenaBuffers, AllGather):
    """The exact gather of weights."""

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> Any:
        return dist.all_gather_single(output_tensor, input_tensor, group, async_op)


class GradientReduce(ArenaBuffers, ReduceScatter):
    """The reduction of one block's gradients."""

    def __init__(self, registration: FSDPRegistration, shard: Any) -> None:
        """`shard`: FSDP's record of the block's parameters."""
        super().__init__(registration.group)
        self._registration, self._shard = registration, shard

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> None:
        """Reduce. Does not wait if FSDP only takes views of the output."""
        self._registration.begin()
        with torch_errors():
            asked = Reduction.of(op, input_tensor.dtype)
            if asked.factor is not None:
                input_tensor.mul_(asked.factor)
            request = self._terms(input_tensor)
            work = self.group.reduce_scatter(
                output_tensor, input_tensor, asked.op, **request.keywords()
            )
            sampler = self._registration.guard
            if sampler is not None and not sampler.samples(request):
                request.time(work, watch=True)
            if self._only_viewed(output_tensor, asked.op):
                self._registration.add(work)
            else:
                with self._registration.account.waiting():
                    work.wait()
            self._sample(work, output_tensor, input_tensor, asked.op, request)

    def _sample(
        self,
        work: Work,
        output: torch.Tensor,
        given: torch.Tensor,
        op: str,
        request: GradientRequest,
    ) -> None:
        """Let the guard compare the result. Each rank compares its own part."""
        sampler = self._registration.guard
        if sampler is None or not sampler.samples(request):
            return
        # FSDP may change the output in place later.
        result = output if self._only_viewed(output, op) else output.clone()

        def exactly() -> tuple[Work, torch.Tensor]:
            exact = self.allocate(output.shape, dtype=output.dtype, device=output.device)
            return self.group.reduce_scatter(exact, given, op, policy=sampler.exact), exact

        sampler.add(
            self.group, BoundedSample(request.name, work, result, exactly, lambda tensor: tensor)
        )

    def _terms(self, gradients: torch.Tensor) -> GradientRequest:
        """The terms of a reduction. FSDP lays gradients out as one row per rank, each with a part
        of every parameter."""
        rules, parameters = self._registration.rules, self._shard.fsdp_params
        sizes = [p.padded_sharded_param_size.numel() * gradients.itemsize for p in parameters]
        if sum(sizes) * self.group.size != gradients.nbytes:
            return GradientRequest(
                rules.exact, "", [], [], 1.0
            )  # not all parameters have a gradient
        placed, start = [], 0
        for _ in range(self.group.size):
            for parameter, size in zip(parameters, sizes, strict=True):
                if size:
                    placed.append(
                        PlacedGradient(parameter.sharded_param, gradients, start, start + size)
                    )
                start += size
        return rules.request(placed, 0, gradients.nbytes)

    def _only_viewed(self, output: torch.Tensor, op: str) -> bool:
        """Whether FSDP leaves the values alone: no second reduction, division, conversion or sum.

        Source: torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, `foreach_reduce`.
        """
        shard = self._shard
        return not (
            shard._is_hsdp  # noqa: SLF001  # no public names
            or shard._all_reduce_hook is not None  # noqa: SLF001  # as above
            or op != "avg"  # a sum may be divided afterwards
            or output.dtype != shard._orig_dtype  # noqa: SLF001  # as above
            or any(_is_read(parameter) for parameter in shard.fsdp_params)
        )


def _is_read(parameter: Any) -> bool:
    """Whether the new gradient is copied, added to another, or passed to a hook at once."""
    kept = parameter.sharded_param
    hooks = getattr(kept, "_post_accumulate_grad_hooks", None)
    return bool(parameter.offload_to_cpu or kept.grad is not None or hooks)


def _shards(block: FSDPModule) -> list[Any]:
    return list(block._get_fsdp_state()._fsdp_param_groups)  # noqa: SLF001  # no public name


def _group_of(shards: list[Any]) -> Group:
    """The one group over which all shards are sharded.

    Raises: BadConfig.
    """
    found = {shard._reduce_scatter_process_group for shard in shards}  # noqa: SLF001  # as above
    if len(found) != 1:
        raise BadConfig(
            f"the model is sharded over {len(found)} groups, and register supports one: shard "
            "the root and its blocks over the same group"
        )
    group = found.pop()
    if not isinstance(group, ProcessGroup) or not isinstance(group.group, Group):
        raise BadConfig(
            "the model is sharded over a group of one rank or of another backend: use "
            'init_process_group("dlcp") and at least two ranks'
        )
    return group.group
