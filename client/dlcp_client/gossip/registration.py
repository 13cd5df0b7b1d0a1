"""register(): from a model and its optimizer to steps that average with neighbours."""

from collections.abc import Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import nn
from torch.optim import Optimizer

from dlcp_client.group import Group
from dlcp_client.joining.sessions import DEFAULT_ARENA, DEFAULT_TIMEOUT, checked_timeout
from dlcp_client.joining.torch_ranks import connect
from dlcp_client.report.account import Account
from dlcp_client.report.registered import Registered
from dlcp_client.session import Session
from dlcpd.contract.errors import BadConfig, BadPolicy, DlcpError, RanksDisagree, SessionClosed
from dlcpd.contract.policy import EXACT, LossPolicy, checked

from .buckets import Buckets, digest, state
from .codecs import Codec, checked_codec
from .exchange import CompressedExchange, DenseExchange, Neighbours
from .graphs import Graph, checked_graph, graph_of

COLUMNS: Final = (
    "a hash of graph, codec and broadcast", "the number of trainable parameters",
    "the number of their elements", "a hash of the names, shapes and dtypes of the model's tensors",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class GossipOptions:
    """Checked options of `register`."""

    policy: LossPolicy
    graph: str
    codec: Codec | None
    broadcast: bool
    timeout: float  # seconds

    def fingerprint(self) -> int:
        """A hash of the options that must be equal on all ranks."""
        return digest(f"{self.graph} {self.codec} {self.broadcast}")


class GossipRegistration(Registered):
    """The result of `register`."""

    def __init__(
        self,
        buckets: Buckets,
        group: Group,
        graph: Graph,
        options: GossipOptions,
        *,
        owned: bool,
    ) -> None:
        self.session: Session = group.session
        self.graph, self.account = graph, Account()
        self._buckets, self._group, self._policy = buckets, group, options.policy
        self._owned = owned
        self._neighbours = Neighbours(group, options.policy)
        self._exchange = (
            CompressedExchange(buckets.all, self._neighbours, options.codec)
            if options.codec
            else DenseExchange(buckets.all, self._neighbours)
        )
        self._hook: Any = None
        self._step = 0
        self._over = ""  # the reason why no exchange can follow

    @property
    def step(self) -> int:
        """Number of exchanges made."""
        return self._step

    @property
    def sent_bytes(self) -> int:
        """Bytes that this rank sent to neighbours, payload only, since `register`."""
        return self._neighbours.sent_bytes

    @property
    def policy(self) -> LossPolicy:
        """The policy of the exchanges: exact."""
        return self._policy

    def start(self, optimizer: Optimizer) -> None:
        """Send the initial state to neighbours, and exchange after each step of `optimizer`."""
        for bucket in self._buckets.all:
            bucket.pack()
        self._exchange.start(self.graph.sources(0))
        self._hook = optimizer.register_step_post_hook(lambda *_: self.exchange())

    def exchange(self) -> None:
        """Average with the neighbours of this step, which call it as well.

        `optimizer.step()` calls it. Call it for a step that was skipped, as by a GradScaler.

        Raises: the error that ended the exchange, such as PeerLost or DeadlineExceeded: the
        parameters are then unchanged, and no exchange can follow. BadConfig if the parameters are
        not those that were registered.
        """
        self._check_open()
        self._over = (
            f"exchange {self._step + 1} failed or was interrupted, so no exchange can follow: "
            "restart from a checkpoint"
        )
        for bucket in self._buckets.all:
            bucket.pack()
        self.account.begin()
        before = self.sent_bytes
        with self.account.waiting():
            self._exchange.step(self.graph.sources(self._step))
        self.account.handed(self.sent_bytes - before)
        for bucket in self._buckets.all:
            bucket.unpack()
        self._step += 1
        self._over = ""

    @torch.no_grad()
    def average(self) -> None:
        """Give every rank the average over all ranks of parameters and of floating-point buffers,
        which steps do not exchange. Every rank calls it, at the end, or before it evaluates or
        saves.

        Raises: as `exchange`; parts of the model may then be averaged.
        """
        self._check_open()
        self._over = (
            "an average over all ranks failed or was interrupted, so no exchange can follow: "
            "restart from a checkpoint"
        )
        for bucket in self._buckets.all:
            bucket.flat.copy_(self._mean(bucket.pack(), bucket.computed_in))
            bucket.unpack()
        for buffer in self._buckets.model.buffers():
            if buffer.is_floating_point() and buffer.numel():
                wide = torch.float64 if buffer.dtype is torch.float64 else torch.float32
                buffer.copy_(self._mean(buffer.detach(), wide))
        self._exchange.restart()
        self._over = ""

    def consensus_distance(self) -> float:
        """The distance between ranks: the root of the mean, over ranks, of ||x_i - mean||^2, over
        all exchanged parameters. Equal on all ranks; every rank calls it. It costs an all-reduce.

        Raises: as `exchange`.
        """
        self._check_open()
        total = torch.zeros(1, dtype=torch.float64)
        for bucket in self._buckets.all:
            own = bucket.pack().to(bucket.computed_in)
            total += (own - self._mean(own, bucket.computed_in)).square().sum(dtype=total.dtype)
        self._group.all_reduce(total, "avg", policy=self._policy).wait()
        return float(total.sqrt())

    def close(self) -> None:
        """Stop exchanging, and close the session if `register` opened it. The model is unchanged,
        and may be trained or registered again. A second call does nothing."""
        if self.copied:
            return
        self._over = (
            "this registration is closed: gossip no longer exchanges the parameters of the model"
        )
        self.over()
        if self._hook is not None:
            self._hook.remove()
            self._hook = None
        _leave(self._group)
        if self._owned:
            self.session.close()

    def _check_open(self) -> None:
        if self._over:
            raise SessionClosed(self._over)
        self._buckets.check()

    def _mean(self, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        result = tensor.to(dtype, copy=True, memory_format=torch.contiguous_format)
        self._group.all_reduce(result, "avg", policy=self._policy).wait()
        return result


def register(  # noqa: PLR0913  # all but the first three by keyword
    model: nn.Module,
    optimizer: Optimizer,
    policy: LossPolicy = EXACT,
    *,
    graph: str = "ring",
    codec: Codec | None = None,
    broadcast: bool = True,
    session: Session | None = None,
    job: str | None = None,
    socket: str | None = None,
    arena_bytes: int = DEFAULT_ARENA,
    timeout: float = DEFAULT_TIMEOUT,
    config: str | Path | None = None,
) -> GossipRegistration:
    """Average parameters with neighbours after every `optimizer.step()`. Every rank calls it.

    Args:
        model: on CPU, and not a DistributedDataParallel: each rank keeps its gradients and buffers.
            Trainable parameters (float32, float64, float16, bfloat16) are averaged in float32,
            those of float64 in float64.
        optimizer: any of torch's. Each rank keeps its state, such as momentum.
        policy: exact(), for its deadline and traffic class: messages lose nothing.
        graph: "ring": average with the two adjacent ranks. "exponential": receive from one rank and
            send to another, 2^k away, with another k in every step.
        codec: of dlcp_client.gossip, in a ring: BF16() or TopK(0.1) send the change since the
            last message, compressed; later messages carry the rest. By default parameters are sent.
        broadcast: begin with the parameters and buffers of rank 0; False: each rank keeps its own,
            as when a training is resumed.
        session: from `connect`; by default one is opened.
        job, socket, arena_bytes, config: as in `connect`.
        timeout: seconds until all ranks are connected, and again until they have agreed.

    Raises: BadConfig, BadPolicy, BadTensor; RanksDisagree if models or arguments differ; the errors
        of `connect`. Nothing is left open then. optimizer.step() raises errors during training,
        after its update: see `GossipRegistration.exchange`.
    """
    options = _checked(policy, graph=graph, codec=codec, broadcast=broadcast, timeout=timeout)
    buckets = Buckets(model)
    _check_optimizer(optimizer, model)
    with ExitStack() as undo:
        owned = session is None
        if session is None:
            session = connect(
                job=job,
                socket=socket,
                arena_bytes=arena_bytes,
                timeout=options.timeout,
                config=config,
            )
            undo.callback(session.close)
        made = graph_of(options.graph, session.world_size)
        group = _joined(session, model, buckets, options, undo)
        registration = GossipRegistration(buckets, group, made, options, owned=owned)
        registration.start(optimizer)
        undo.pop_all()
    registration.begun(f'gossip, graph="{graph}"')
    return registration


def _checked(
    policy: Any, *, graph: Any, codec: Any, broadcast: bool, timeout: Any
) -> GossipOptions:
    """Raises: BadConfig, BadPolicy."""
    policy, codec, graph = _exact(policy), checked_codec(codec), checked_graph(graph)
    if codec is not None and graph != "ring":
        raise BadConfig(
            f'codec {codec} does not work with graph="{graph}": a codec needs the same '
            'neighbours in every step; use graph="ring", or no codec'
        )
    return GossipOptions(policy, graph, codec, bool(broadcast), checked_timeout(timeout))


def _joined(
    session: Session, model: nn.Module, buckets: Buckets, options: GossipOptions, undo: ExitStack
) -> Group:
    """The group of ranks that agreed on model and options; `undo` closes it.

    Raises: RanksDisagree, or the error that ended an operation.
    """
    first = replace(options.policy, deadline=options.timeout)
    _agree(session, (options.fingerprint(), *buckets.fingerprint()), first)
    group = session.group(range(session.world_size), "gossip", timeout=options.timeout)
    undo.callback(_leave, group)
    if options.broadcast:
        _broadcast(model, group, first)
    return group


def _exact(policy: Any) -> LossPolicy:
    if not checked(policy).is_plain:
        raise BadPolicy(
            "gossip sends each parameter or difference once, so it needs a lossless policy "
            "without a codec: use exact(), and codec= of gossip.register for fewer bytes"
        )
    return checked(policy)


def _check_optimizer(optimizer: Any, model: nn.Module) -> None:
    if not isinstance(optimizer, Optimizer):
        raise BadConfig(f"register takes a torch.optim.Optimizer, not {type(optimizer).__name__}")
    updated = {id(p) for group in optimizer.param_groups for p in group["params"]}
    if updated.isdisjoint(id(p) for p in model.parameters()):
        raise BadConfig(
            "the optimizer has no parameter of this model: construct it after the model"
        )


def _agree(session: Session, own: Sequence[int], policy: LossPolicy) -> None:
    """Raises: RanksDisagree naming a rank whose model or arguments differ from those of rank 0."""
    row = torch.tensor(own, dtype=torch.int64)
    rows = torch.empty((session.world_size, len(own)), dtype=torch.int64)
    session.world.all_gather(rows, row, policy=policy).wait()
    for rank, other in enumerate(rows.tolist()):
        for what, here, first in zip(COLUMNS, other, rows[0].tolist(), strict=True):
            if here != first:
                raise RanksDisagree(
                    f"gossip.register: {what} is {here} on rank {rank} and {first} on rank 0; "
                    f"give all ranks the same model and arguments"
                )


@torch.no_grad()
def _broadcast(model: nn.Module, group: Group, policy: LossPolicy) -> None:
    for _, tensor in state(model):
        if tensor.numel():
            whole = tensor.detach().contiguous()
            group.broadcast(whole, 0, policy=policy).wait()
            tensor.copy_(whole)


def _leave(group: Group) -> None:
    """Close a group; does nothing if its session has ended."""
    with suppress(DlcpError):
        group.close()
