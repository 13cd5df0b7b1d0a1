"""register(): from a torch model and its optimizer to steps on servers."""

import logging
from functools import partial
from pathlib import Path
from typing import Any, Final, Self

import torch
from torch import nn
from torch.optim import Optimizer

from dlcp_client.environment import Environment
from dlcp_client.hooks.replace_method import replace_method
from dlcp_client.job.store import Store
from dlcp_client.ranges import RANGES
from dlcp_client.report.account import Account
from dlcp_client.report.registered import Registered
from dlcpd.contract.errors import BadConfig
from dlcpd.contract.policy import EXACT, LossPolicy

from .client import Client, Worker
from .joining import join_embedded
from .options import WorkerOptions
from .participation import DEFAULT_TAKEOVER, DEFAULT_TIMEOUT, join_named
from .specs import OptimizerSpec
from .tensors import ModelTensors

DEFAULT_WARMUP: Final = 10  # exact steps; early gradients are large and change direction

_log: Final = logging.getLogger("dlcp_client")


class PSRegistration(Registered):
    """The result of `register`. It has a session with every shard, so it reports none."""

    session = None

    def __init__(
        self,
        tensors: ModelTensors,
        client: Client,
        optimizer: Optimizer | OptimizerSpec,
        warmup_steps: int,
        *,
        policy: LossPolicy,
        pulls: LossPolicy,
    ) -> None:
        self._tensors, self._client, self._optimizer = tensors, client, optimizer
        self._warmup_steps, self._policy, self._pulls = warmup_steps, policy, pulls
        self.account = Account()
        self._places = tensors.places()
        self.steps = self.skipped = 0  # steps made; those of them that changed nothing
        self._local_step: Any = None
        if isinstance(optimizer, Optimizer):
            self._local_step = optimizer.step
            replace_method(optimizer, "step", self._step_of_optimizer)

    @property
    def version(self) -> int:
        """Version of this worker's parameters."""
        return self._client.version

    @property
    def policy(self) -> LossPolicy:
        """The policy of pushes, after the warm-up."""
        return self._policy

    def step(self) -> bool:
        """Push the gradients, and pull the parameters of the resulting version or of a newer one.
        `optimizer.step()` calls it if a torch optimizer was registered.

        False: a gradient of the version was not finite, and it changed nothing.

        Raises: as Client.push_pull. An unacknowledged push does not count.
        """
        client, tensors = self._client, self._tensors
        warm = self.steps >= self._warmup_steps
        client.lossy = warm and not self._policy.is_plain
        client.stale = warm and not self._pulls.is_plain
        settings = tensors.spec().groups
        self.account.begin()
        gradients = tensors.gradients()
        self.account.handed(sum(one.nbytes for one in gradients if one is not None))
        policy = self._policy if client.lossy else EXACT
        with RANGES.exchange("push_pull", gradients, policy):
            with RANGES.waiting(), self.account.waiting():
                changed = client.push_pull(gradients, self._places, settings)
            tensors.store(self._places)
        self.steps += 1
        if not changed:
            self.skipped += 1
            _log.warning(
                "the gradients of step %d contain NaN or Inf: this worker skips the step",
                self.steps,
            )
        return changed

    def pull(self) -> None:
        """Pull the newest parameters, exactly, without a push."""
        with RANGES.exchange("pull", self._places, EXACT):
            with RANGES.waiting():
                self._client.pull(self._places)
            self._tensors.store(self._places)

    def close(self) -> None:
        """Leave: other workers no longer wait for this one. The optimizer steps locally again, with
        its own state. A second call does nothing."""
        if self.copied:
            return
        self._client.close()
        if self._local_step is not None:
            assert isinstance(self._optimizer, Optimizer)  # noqa: S101  # see above
            replace_method(self._optimizer, "step", self._local_step)
            self._local_step = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _step_of_optimizer(self, closure: Any = None) -> Any:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        self.step()
        return loss


def register(  # noqa: PLR0913  # all but the first three by keyword
    model: nn.Module,
    optimizer: Optimizer | OptimizerSpec,
    policy: LossPolicy = EXACT,
    *,
    pulls: LossPolicy = EXACT,
    server: str | None = None,
    store: Store | str | Path | None = None,
    group: Any = None,
    snapshots: str | Path | None = None,
    staleness: int | None = None,
    refuse_stale: bool = False,
    warmup_steps: int = DEFAULT_WARMUP,
    rank: int | None = None,
    world_size: int | None = None,
    job: str | None = None,
    resume: bool = False,
    socket: str | None = None,
    config: str | Path | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    takeover: float | None = None,
) -> PSRegistration:
    """Let servers take the steps of `optimizer`. Every worker calls it.

    Without `server`, `store` and DLCPD_STORE the server is embedded: the first rank of each machine
    starts a shard, and shards end with the job.

    Args:
        model: on CPU, and not a DistributedDataParallel. Its trainable parameters (float32,
            float16, bfloat16) become those of worker 0, or those that the server already has.
            Each worker keeps its buffers.
        optimizer: of torch: SGD, Adam or AdamW, whose step() then is the server's, with the
            settings of its groups at each step. Or sgd, adam, adamw or lamb of dlcp_client.ps: then
            call step() of the returned registration.
        policy: of pushes: exact(), or bounded(0.01), either with a codec.
        pulls: policy of the pulls of steps. Under bounded(0.01) a parameter whose change is lost on
            the way keeps its old value for a step (stale fill), on that worker alone. `pull()` is
            always exact; call it before ranks evaluate or save.
        server: name of a server, from its configuration; by default "server".
        store: the store in the server's configuration, a folder; by default DLCPD_STORE.
        group: of an embedded server: the torch.distributed group of its workers. By default all
            ranks, of the process group if there is one, else of the launch (torchrun).
        snapshots: of an embedded server: a folder where its shards keep parameters and optimizer
            state, for a later job (`resume`). By default they keep nothing.
        staleness: None: every version has gradients of all workers. A number: each push makes a
            version, and the fastest worker is at most that many pushes ahead of the slowest.
        refuse_stale: workers do not wait for the slowest; a push that was computed more than
            `staleness` versions ago is refused (StaleWorker).
        warmup_steps: number of exact steps, without a codec, before the policies apply.
        rank, world_size: with a named server: rank of this worker, and number of workers that start
            together; by default RANK and WORLD_SIZE. A worker that joins later has an unused rank.
        job: name of the training; by default that of the launch by torchrun.
        resume: continue with the parameters that an earlier job has left on the server, or in
            `snapshots`.
        socket: session socket of the host's daemon; by default DLCPD_SOCKET, and without that a
            private daemon is started.
        config: configuration of a private daemon; by default DLCPD_CONFIG.
        timeout: seconds for server and workers to appear.
        takeover: of a named server: seconds to wait for another process when one of its ends, by
            default 60. An embedded shard is not replaced.

    Raises: BadConfig, BadPolicy, BadTensor; BadSnapshot if the server has another model;
        RanksDisagree; ServerLost; DeadlineExceeded. With an embedded server also DaemonUnavailable,
        NotAuthorised, NotPermitted, PeerLost, if this rank or another cannot take part. Nothing
        is left open then.
    """
    embedded = server is None and store is None and Environment.read().store is None
    named = {"rank": rank, "world_size": world_size, "takeover": takeover}
    _check_use(embedded, named=named, own={"group": group, "snapshots": snapshots})
    options = WorkerOptions(
        policy=policy,
        pulls=pulls,
        staleness=staleness,
        refuse_stale=refuse_stale,
        resume=resume,
        job=job,
        socket=socket,
        config=config,
        timeout=timeout,
    )
    look = partial(_tensors_of, model, optimizer, warmup_steps)
    if embedded:
        tensors, client, first = join_embedded(look, options, group=group, snapshots=snapshots)
    else:
        tensors, worker = look(), Worker.read(rank, world_size, job)
        client = join_named(
            tensors.named,
            tensors.spec(),
            worker,
            options,
            server=server or "server",
            store=store,
            takeover=DEFAULT_TAKEOVER if takeover is None else takeover,
        )
        first = worker.rank == 0
    _start(tensors, client, timeout, first=first)
    return PSRegistration(tensors, client, optimizer, warmup_steps, policy=policy, pulls=pulls)


def _tensors_of(
    model: nn.Module, optimizer: Optimizer | OptimizerSpec, warmup_steps: int
) -> ModelTensors:
    """The tensors of a registration. Raises: BadConfig, BadTensor."""
    tensors = ModelTensors(model, optimizer)
    if warmup_steps < 0:
        raise BadConfig(f"warmup_steps={warmup_steps} is not valid: use 0 or more")
    return tensors


def _start(tensors: ModelTensors, client: Client, timeout: float, *, first: bool) -> None:
    """Give the model the parameters of the server. The first worker sends its own, for a server
    without. Closes the client after an error."""
    try:
        if first:
            client.initialise(tensors.values())
        places = tensors.places()
        client.pull(places, wait=timeout)
        tensors.store(places)
    except BaseException:
        client.close()
        raise


def _check_use(
    embedded: bool,  # the kind of server whose options are checked
    *,
    named: dict[str, Any],
    own: dict[str, Any],
) -> None:
    """Raises: BadConfig for options of the other kind of server."""
    wrong = [name for name, value in (named if embedded else own).items() if value is not None]
    if not wrong:
        return
    options = ", ".join(f"{name}=" for name in wrong)
    if embedded:
        raise BadConfig(
            f"{options} needs a named server: pass server= and store=, or leave {options} out"
        )
    raise BadConfig(
        f"{options} needs an embedded server, and server=, store= or DLCPD_STORE names another "
        "server: leave one of the two out"
    )
