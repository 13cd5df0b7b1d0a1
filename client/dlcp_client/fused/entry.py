"""register(): from a module and its optimizer to updates inside the reduction of gradients."""

from contextlib import ExitStack
from pathlib import Path
from typing import Final

import torch
from torch import nn
from torch.amp import GradScaler
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from dlcp_client.fused.device_bucket import kind_of_buckets
from dlcp_client.fused.flat_bucket import division_of, flat_buckets
from dlcp_client.fused.lamb import LAMB
from dlcp_client.fused.registration import FusedRegistration
from dlcp_client.fused.suitability import trained
from dlcp_client.fused.tuned_steps import check_tunable
from dlcp_client.hooks.rules import DEFAULT_WARMUP, Rules
from dlcp_client.joining.sessions import DEFAULT_ARENA, DEFAULT_TIMEOUT
from dlcp_client.joining.torch_ranks import connect
from dlcp_client.quantities import switch
from dlcp_client.session import Session
from dlcpd.contract.errors import BadConfig
from dlcpd.contract.policy import EXACT, LossPolicy

# By the policy's `gather`: dtype to which weights are rounded
ROUNDED: Final[dict[str, torch.dtype | None]] = {"": None, "bf16": torch.bfloat16}


def register(  # noqa: PLR0913  # all but the first three by keyword
    model: nn.Module,
    optimizer: Optimizer,
    policy: LossPolicy = EXACT,
    *,
    session: Session | None = None,
    warmup_steps: int = DEFAULT_WARMUP,
    scaler: GradScaler | None = None,
    eager: bool = False,
    where: str = "",
    tune: bool = False,
    arena_bytes: int = DEFAULT_ARENA,
    timeout: float = DEFAULT_TIMEOUT,
    config: str | Path | None = None,
) -> FusedRegistration:
    """Train `model` in data parallel, and update each part of the parameters on one rank, between
    the reduction of its gradients and the gather of its weights. Every rank calls it.

    Gradients are averaged while backward() runs. `optimizer.step()` updates this rank's parts with
    torch's fused kernel, and returns. Each layer of the next forward pass waits for its own
    weights, and so does other code that reads a parameter. Each rank holds its part of the
    optimizer's state. Parameters and buffers of rank 0 are copied to all ranks first; buffers are
    not copied again.

    Args:
        model: a module, plain or in a DistributedDataParallel, which then averages nothing; on the
            CPU, or with `where` on CUDA devices. Every trained parameter gets a gradient in
            each step.
        optimizer: SGD, Adam or AdamW of torch.optim, or `fused.LAMB`. If it has a state, as from a
            checkpoint, that is equal on all ranks, and each keeps its part.
        policy: exact or bounded; bounds apply to gradients alone, weights are always complete. With
            gather="bf16" they travel rounded, and each rank keeps the unrounded ones of its part.
        session: by default a new one of `connect`, which `close` ends.
        warmup_steps: as of `ddp.register`.
        scaler: the GradScaler of the training, if it has one.
        eager: update within backward(), with the optimizer's settings at that time, so that weights
            travel sooner. Without clipping, `scaler`, LAMB and `discard`.
        where: of a model on devices, whose weights and averages have memory of the host, too, in
            float32; parameters may be float16 or bfloat16. "host": updates and the optimizer's
            state are there. "device": this rank's part is updated on its device, which keeps the
            state.
        tune: compare three ways of a step in the first steps, and go on with the fastest: in one
            operation; in a reduce-scatter and an all-gather; in an all-reduce, where each rank has
            the whole state. Weights are equal, to the bit. A later job reads the result from the
            user's cache. Without `eager`, LAMB, bounds and `gather`.
        arena_bytes, timeout, config: as of `connect`. The arena holds all parameters twice.

    Raises: BadConfig, BadPolicy, BadTensor, ArenaFull, or the errors of `connect`; model and
        optimizer then stay as they are, but for the values of rank 0.
    """
    ddp = model if isinstance(model, DistributedDataParallel) else None
    module: nn.Module = model if ddp is None else ddp.module
    parameters = trained(model, optimizer, policy, where)
    for name, parameter in parameters.items():
        if id(parameter) in FusedRegistration.of_parameter:
            raise BadConfig(f"parameter {name!r} is registered already: close that registration")
    if session is not None and not isinstance(session, Session):
        raise BadConfig(f"session={session!r:.40} is not valid: give what connect() returned")
    if switch("eager", eager) and scaler is not None:
        raise BadConfig("eager=True updates before a scaler has seen all gradients: give only one")
    if eager and type(optimizer) is LAMB:
        raise BadConfig("eager=True updates before LAMB has the norms of layers: leave eager out")
    if switch("tune", tune):
        check_tunable(policy, optimizer, eager=eager)
    rules = Rules(module, policy, warmup_steps, scaler, gathers=True)
    with ExitStack() as undo:
        undo.callback(rules.close)
        if session is None:
            session = connect(arena_bytes=arena_bytes, timeout=timeout, config=config)
            undo.callback(session.close)
        _copy_from_rank_0(session, module)
        buckets = flat_buckets(
            session,
            optimizer.param_groups,
            list(parameters.values()),
            ROUNDED[rules.policy.gather],
            kind_of_buckets(parameters.values(), where),
            division=division_of(session.hosts, eager=eager, exact=rules.policy.mode == "exact"),
        )
        made = FusedRegistration(session, rules, optimizer, buckets, eager=eager, undo=undo)
        if ddp is not None:
            made.replace_averaging_of(ddp)
        if scaler is not None:
            made.scale_with(scaler)
        made.start(tune=tune)
        made.keep(undo.pop_all())
    made.begun("fused")
    return made


def _copy_from_rank_0(session: Session, model: nn.Module) -> None:
    """Parameters and buffers, as DistributedDataParallel does."""
    for tensor in [*model.parameters(), *model.buffers()]:
        values = tensor.detach().contiguous()
        session.world.broadcast(values, 0).wait()
        tensor.detach().copy_(values)
