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
from dlcp_client.ps.client import Client, Named, Worker
from dlcp_client.ps.directory import Directory
from dlcp_client.ps.home import Home
from dlcp_client.ps.layout import Layout, Tensor, shard_of
from dlcp_client.ps.link import Link
from dlcp_client.ps.options import WorkerOptions
from dlcp_client.ps.specs import Spec
from dlcp_client.ps.wish import Terms, Wish, policy_values
from dlcpd.contract.errors import BadConfig
from dlcpd.contract.policy import EXACT, LossPolicy, checked

DEFAULT_TIMEOUT: Final = 60.0  # seconds
DEFAULT_TAKEOVER: Final = 60.0  # seconds


def connect(  # noqa: PLR0913  # all but the first two by keyword
    tensors: Sequence[Named],
    optimizer: Spec,
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
    tensors: Sequence[Named],
    optimizer: Spec,
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
    home = Home(options.socket, options.config)
    try:
        return take_part(
            tensors,
            optimizer,
            worker,
            directory,
            home,
            shards=shards,
            options=options,
            deadline=deadline,
            takeover=takeover,
        )
    except BaseException:
        home.close()
        raise


def take_part(  # noqa: PLR0913  # all but the first five by keyword
    tensors: Sequence[Named],
    optimizer: Spec,
    worker: Worker,
    directory: Directory,
    home: Home,
    *,
    shards: int,
    options: WorkerOptions,
    deadline: float,
    takeover: float,
) -> Client:
    """A client of the shards in `directory`; its `close` closes `home`.

    Raises: BadConfig, BadSnapshot, RanksDisagree, ServerLost; no session is open then.
    """
    with ExitStack() as undo:
        chosen = shard_of([one.size for one in tensors], shards)
        places = [[at for at, shard in enumerate(chosen) if shard == s] for s in range(shards)]
        links = []
        for shard, place in enumerate(places):
            layout = Layout(tuple(_tensor(tensors[at]) for at in place))
            wish = _wish(tensors, optimizer, worker, layout, options)
            link = Link(directory, home, shard, layout, wish, shards=shards, takeover=takeover)
            undo.callback(link.leave)
            link.open(deadline)
            links.append(link)
        undo.pop_all()
    client = Client(links, places, home)
    client.lossy, client.stale = not options.policy.is_plain, not options.pulls.is_plain
    lifetimes.opened(client)
    return client


def _wish(
    tensors: Sequence[Named],
    optimizer: Spec,
    worker: Worker,
    layout: Layout,
    options: WorkerOptions,
) -> Wish:
    """The request of a worker to the shard of `layout`. Raises: BadPolicy."""
    terms = Terms(
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
    return Wish(
        terms,
        worker.rank,
        worker.launch,
        policy_values(policy),
        policy_values(pulls),
        options.resume,
    )


def fingerprint(tensors: Sequence[Named]) -> str:
    """A hash of the model: equal for equal names, shapes, dtypes and groups in the same order."""
    text = repr([(one.name, one.shape, one.dtype, one.group) for one in tensors])
    return blake2b(text.encode(), digest_size=16).hexdigest()


def _tensor(named: Named) -> Tensor:
    return Tensor(named.size, named.group, named.exempt)


def _store(store: Store | str | Path | None, environment: Environment) -> Store:
    """The Store for an argument or the environment. Raises: BadConfig."""
    given = store if store is not None else environment.store
    if given is None:
        raise BadConfig(
            "by what do workers and server find each other? Pass store=, or set DLCPD_STORE: the "
            "folder that the server's configuration names"
        )
    return FileStore(given) if isinstance(given, str | Path) else given
