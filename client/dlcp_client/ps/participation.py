"""connect(): takes part in the job of a parameter server, as a worker."""

import time
from collections.abc import Sequence
from contextlib import ExitStack
from hashlib import blake2b
from pathlib import Path
from typing import Final

from dlcp_client import lifetimes
from dlcp_client.environment import Environment
from dlcp_client.job.secret import job_secret
from dlcp_client.job.store import Store
from dlcp_client.numpy.file_store import FileStore
from dlcp_client.ps.client import Client, NamedTensor, Worker
from dlcp_client.ps.directory import Directory
from dlcp_client.ps.host_daemon import HostDaemon
from dlcp_client.ps.join_request import JoinRequest, PushAgreement, policy_values
from dlcp_client.ps.layout import ShardLayout, ShardTensor, shard_of
from dlcp_client.ps.link import ShardLink
from dlcp_client.ps.options import WorkerOptions
from dlcp_client.ps.specs import OptimizerSpec
from dlcpd.contract.errors import BadConfig
from dlcpd.contract.policy import EXACT, LossPolicy, checked

DEFAULT_TIMEOUT: Final = 60.0  # seconds
DEFAULT_TAKEOVER: Final = 60.0  # seconds


def connect(  # noqa: PLR0913  # all but the first two by keyword
    tensors: Sequence[NamedTensor],
    optimizer: OptimizerSpec,
    *,
    server: str = "server",
    store: Store | str | Path | None = None,
    policy: LossPolicy = EXACT,
    pulls: LossPolicy = EXACT,
    staleness: int | None = None,
    refuse_stale: bool = False,
    rank: int | None = None,
    world_size: int | None = None,
    job: str | None = None,
    resume: bool = False,
    socket: str | None = None,
    config: str | Path | None = None,
    timeout: float = DEFAULT_TIMEOUT,
    takeover: float = DEFAULT_TAKEOVER,
) -> Client:
    """Take part as a worker. See `dlcp_client.ps.register` for the arguments.

    Raises: BadConfig, BadSnapshot, RanksDisagree, ServerLost, and the errors of connecting.
    """
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
    worker = Worker.read(rank, world_size, job)
    return join_named(
        tensors, optimizer, worker, options, server=server, store=store, takeover=takeover
    )


def join_named(  # noqa: PLR0913  # all but the first four by keyword
    tensors: Sequence[NamedTensor],
    optimizer: OptimizerSpec,
    worker: Worker,
    options: WorkerOptions,
    *,
    server: str,
    store: Store | str | Path | None,
    takeover: float,
) -> Client:
    """Take part as `worker` in the job of a named server. Raises: as `connect`."""
    environment = Environment.read()
    options.check_staleness()
    directory = Directory(_store(store, environment), server, job_secret(environment))
    deadline = time.monotonic() + options.timeout
    shards = directory.shards(deadline)
    shard_of([one.size for one in tensors], shards)  # check before a daemon starts
    host_daemon = HostDaemon(options.socket, options.config)
    try:
        return take_part(
            tensors,
            optimizer,
            worker,
            directory,
            host_daemon,
            shards=shards,
            options=options,
            deadline=deadline,
            takeover=takeover,
        )
    except BaseException:
        host_daemon.close()
        raise


def take_part(  # noqa: PLR0913  # all but the first five by keyword
    tensors: Sequence[NamedTensor],
    optimizer: OptimizerSpec,
    worker: Worker,
    directory: Directory,
    host_daemon: HostDaemon,
    *,
    shards: int,
    options: WorkerOptions,
    deadline: float,
    takeover: float,
) -> Client:
    """A client of the shards in `directory`; its `close` closes `host_daemon`.

    Raises: BadConfig, BadSnapshot, RanksDisagree, ServerLost; no session is open then.
    """
    with ExitStack() as undo:
        chosen = shard_of([one.size for one in tensors], shards)
        places = [[at for at, shard in enumerate(chosen) if shard == s] for s in range(shards)]
        links = []
        for shard, place in enumerate(places):
            layout = ShardLayout(tuple(_tensor(tensors[at]) for at in place))
            join_request = _join_request(tensors, optimizer, worker, layout, options)
            link = ShardLink(
                directory,
                host_daemon,
                shard,
                layout,
                join_request,
                shards=shards,
                takeover=takeover,
            )
            undo.callback(link.leave)
            link.open(deadline)
            links.append(link)
        undo.pop_all()
    client = Client(links, places, host_daemon)
    client.lossy, client.stale = not options.policy.is_plain, not options.pulls.is_plain
    lifetimes.opened(client)
    return client


def _join_request(
    tensors: Sequence[NamedTensor],
    optimizer: OptimizerSpec,
    worker: Worker,
    layout: ShardLayout,
    options: WorkerOptions,
) -> JoinRequest:
    """The request of a worker to the shard of `layout`. Raises: BadPolicy."""
    agreement = PushAgreement(
        worker.job,
        fingerprint(tensors),
        optimizer.kind,
        layout.size,
        len(layout.tensors),
        len(optimizer.groups),
        -1 if options.staleness is None else options.staleness,
        options.refuse_stale,
    )
    policy, pulls = checked(options.policy), checked(options.pulls)
    return JoinRequest(
        agreement,
        worker.rank,
        worker.launch,
        policy_values(policy),
        policy_values(pulls),
        options.resume,
    )


def fingerprint(tensors: Sequence[NamedTensor]) -> str:
    """A hash of the model: equal for equal names, shapes, dtypes and groups in the same order."""
    text = repr([(one.name, one.shape, one.dtype, one.group) for one in tensors])
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _tensor(named: NamedTensor) -> ShardTensor:
    return ShardTensor(named.size, named.group, named.exempt)


def _store(store: Store | str | Path | None, environment: Environment) -> Store:
    """The Store for an argument or the environment. Raises: BadConfig."""
    given = store if store is not None else environment.store
    if given is None:
        raise BadConfig(
            "workers and server have no way to find each other: pass store=, or set "
            "DLCPD_STORE to the folder that the configuration of the server names"
        )
    return FileStore(given) if isinstance(given, str | Path) else given
