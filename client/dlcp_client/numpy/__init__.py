"""dlcpd for numpy arrays, and for arrays that numpy can view, such as JAX on the CPU. Without
torch.

    session = dlcp_client.numpy.connect(store="/shared/folder/of/this/launch")
    session.all_reduce(gradient, "avg").wait()

The package is named after the library whose arrays it takes, because users import it by that name.
Imports are absolute, so `import numpy` means the library in every module of dlcp_client.
"""

from operator import index
from pathlib import Path
from typing import TypeAlias

from dlcp_client import session
from dlcp_client.environment import Environment
from dlcp_client.group import Group
from dlcp_client.job.rendezvous import Member
from dlcp_client.job.secret import job_secret
from dlcp_client.job.store import Store
from dlcp_client.joining.sessions import DEFAULT_ARENA, DEFAULT_TIMEOUT, checked_timeout, join
from dlcp_client.operations.work import Work
from dlcpd.contract.errors import BadConfig, DaemonLost, DlcpError, PeerLost
from dlcpd.contract.policy import EXACT, LossPolicy, bounded, exact

from .arrays import ARRAYS, Array
from .file_store import FileStore

__all__ = [
    "EXACT",
    "DaemonLost",
    "DlcpError",
    "FileStore",
    "Group",
    "LossPolicy",
    "PeerLost",
    "Session",
    "Work",
    "bounded",
    "connect",
    "exact",
]

Session: TypeAlias = session.Session[Array]


def connect(  # noqa: PLR0913  # all but the first three by keyword
    store: Store | str | Path | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    *,
    job: str | None = None,
    socket: str | None = None,
    arena_bytes: int = DEFAULT_ARENA,
    timeout: float = DEFAULT_TIMEOUT,
    config: str | Path | None = None,
) -> Session:
    """Join this process's job. Every rank calls it, in the same order as its other calls of it.

    Args:
        store: the rendezvous of the ranks: a folder that all of them see and that no other
            launch of the job uses, by default DLCPD_STORE; or any Store, such as a TCPStore of
            torch.distributed.
        rank, world_size: by default RANK and WORLD_SIZE of the environment.
        job, socket, arena_bytes, timeout, config: as of `dlcp_client.connect`.

    Raises: as `dlcp_client.connect`.
    """
    timeout = checked_timeout(timeout)
    environment = Environment.read()
    number = _given("rank", rank, environment.rank)
    size = _given("world_size", world_size, environment.world_size)
    member = Member(_store(store, environment), number, size, job_secret(environment))
    if isinstance(member.store, FileStore):
        member.store.claim(number)
    return join(
        member,
        library=ARRAYS,
        job=job,
        socket=socket,
        arena_bytes=arena_bytes,
        timeout=timeout,
        config=config,
    )


def _given(name: str, value: int | None, variable: str) -> int:
    """The argument or the environment variable as an int. Raises: BadConfig."""
    try:
        return int(variable) if value is None else index(value)
    except (TypeError, ValueError):
        raise BadConfig(
            f"connect: {name}={value!r}, {name.upper()}={variable!r} are not valid: pass "
            "numbers, or let a launcher such as torchrun set them"
        ) from None


def _store(store: Store | str | Path | None, environment: Environment) -> Store:
    """The Store for an argument or the environment. Raises: BadConfig."""
    given = store if store is not None else environment.store
    if given is None:
        raise BadConfig(
            "connect: the ranks have no way to find each other: pass store=, or set "
            "DLCPD_STORE to a folder that all ranks see, and that is new for each launch of "
            "the job"
        )
    if isinstance(given, str | Path):
        return FileStore(given)
    missing = [name for name in ("set", "get", "add", "wait", "check") if not hasattr(given, name)]
    if missing:
        raise BadConfig(
            f"store {type(given).__name__} has no method {', '.join(missing)}: pass a folder, "
            "or a store with the methods of torch.distributed.Store"
        )
    return given
