"""A worker of a parameter server: pushes gradients and pulls parameters, as numpy arrays.

Needs no torch. `dlcp_client.ps.register` wraps it for a torch model.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

import numpy as np

from dlcp_client import lifetimes
from dlcp_client.environment import Environment
from dlcp_client.numpy.arrays import Array
from dlcp_client.ps.host_daemon import HostDaemon
from dlcp_client.ps.link import ShardExchange, ShardLink
from dlcp_client.ps.protocol import RequestFlags, ShardReply
from dlcp_client.ps.specs import Settings
from dlcpd.contract.errors import BadConfig, DlcpError, SessionClosed

_log: Final = logging.getLogger("dlcp_client")


@dataclass(frozen=True, slots=True)
class NamedTensor:
    """A tensor as the servers know it. `group`: index of its settings in OptimizerSpec.groups."""

    name: str
    shape: tuple[int, ...]
    group: int = 0
    exempt: bool = False  # no segment of its gradient is ever waived
    dtype: str = "float32"  # that the worker rounds the values to; they are sent as float32

    @property
    def size(self) -> int:
        """Number of elements."""
        return int(np.prod(self.shape, dtype=np.int64))


@dataclass(frozen=True, slots=True)
class Worker:
    """The identity of a worker. `launch`: number of workers that start together."""

    rank: int
    launch: int
    job: str

    @classmethod
    def read(cls, rank: int | None, launch: int | None, job: str | None) -> Self:
        """The arguments, with defaults from the environment: RANK, WORLD_SIZE, and a name that is
        unique to a torchrun launch. Raises: BadConfig."""
        environment = Environment.read()
        try:
            number = int(environment.rank) if rank is None else int(rank)
            size = int(environment.world_size) if launch is None else int(launch)
        except ValueError:
            raise BadConfig(
                f"rank={rank!r}, world_size={launch!r}, RANK={environment.rank!r}, "
                f"WORLD_SIZE={environment.world_size!r} are not valid: pass numbers, or let "
                "torchrun set them"
            ) from None
        if size < 1 or number < 0:
            raise BadConfig(
                f"rank {number} of {size} workers is not valid: ranks begin at 0, and a job "
                "has at least 1 worker"
            )
        return cls(number, size, job or environment.launch or "job")


class Client:
    """This worker's sessions with all shards. `version`: of the parameters that were pulled last.

    Every worker of a synchronous job makes the same number of pushes. Not thread-safe.
    """

    def __init__(
        self, links: Sequence[ShardLink], places: Sequence[Sequence[int]], host_daemon: HostDaemon
    ) -> None:
        self._links, self._places, self._host_daemon = links, places, host_daemon
        self.version = 0
        self.lossy = False  # whether pushes use their policy instead of exact()
        self.stale = False  # whether `push_pull` pulls with the policy of pulls
        self._closed = False
        self._lost = frozenset[int]()  # ranks of lost workers

    def initialise(self, parameters: Sequence[Array]) -> None:
        """Send the initial parameters. The server ignores them if it has parameters."""
        self._check()
        for link, place in zip(self._links, self._places, strict=True):
            for (start, stop), at in zip(link.layout.ranges, place, strict=True):
                link.parameters[start:stop] = parameters[at].reshape(-1)
        self._exchange(RequestFlags.INITIALISE)

    def push(self, gradients: Sequence[Array | None], settings: tuple[Settings, ...]) -> bool:
        """Push gradients. Returns when the push is acknowledged; it then survives the server's end.

        gradients: in the order of the tensors, float32; None: zeros. settings: of each group.
        False: the version changed nothing, because one of its gradients was not finite. Raises:
        StaleWorker, RanksDisagree, BadConfig, NotInitialised: it does not count; DeadlineExceeded;
        ServerLost.
        """
        return self._exchange(self._packed(gradients), gradients, settings)

    def pull(self, into: Sequence[Array], *, wait: float = 0.0) -> None:
        """Copy the newest parameters, exactly, to `into`. `wait`: seconds to wait until all workers
        of the launch have joined and there are parameters.

        Raises: NotInitialised; DeadlineExceeded; ServerLost.
        """
        self._check()
        self._exchange(
            RequestFlags.PULL | (RequestFlags.WAIT if wait else RequestFlags(0)), patience=wait
        )
        self._unpack(into)

    def push_pull(
        self,
        gradients: Sequence[Array | None],
        into: Sequence[Array],
        settings: tuple[Settings, ...],
    ) -> bool:
        """`push` and `pull` in one round trip."""
        ask = (
            self._packed(gradients)
            | RequestFlags.PULL
            | (RequestFlags.STALE if self.stale else RequestFlags(0))
        )
        changed = self._exchange(ask, gradients, settings)
        self._unpack(into)
        return changed

    def close(self) -> None:
        """Leave: other workers no longer wait for this one. A second call does nothing."""
        if self._closed:
            return
        self._closed = True
        lifetimes.closed(self)
        for link in self._links:
            link.leave()
        self._host_daemon.close()

    def abandon(self) -> None:
        """In a forked child: the sessions belong to the parent."""
        self._closed = True
        self._host_daemon.abandon()

    def _packed(self, gradients: Sequence[Array | None]) -> RequestFlags:
        """Copy the gradients to the links. Returns the flags of the push."""
        self._check()
        for link, place in zip(self._links, self._places, strict=True):
            link.pack([gradients[at] for at in place])
        if not all(finite(link.gradient) for link in self._links):
            return RequestFlags.PUSH  # the push changes nothing on any shard
        return (
            RequestFlags.PUSH
            | RequestFlags.FINITE
            | (RequestFlags.LOSSY if self.lossy else RequestFlags(0))
        )

    def _exchange(
        self,
        ask: RequestFlags,
        gradients: Sequence[Array | None] = (),
        settings: tuple[Settings, ...] = (),
        *,
        patience: float = 0.0,
    ) -> bool:
        """Make one request to all shards at once. Returns whether all of them changed.

        Raises: the first error, after all have answered.
        """
        for link, place in zip(self._links, self._places, strict=True):
            own = [gradients[at] for at in place] if gradients else []
            link.start(ShardExchange(ask, own, settings, patience))
        replies: list[ShardReply] = []
        failure: DlcpError | None = None
        for link in self._links:
            try:
                replies.append(link.finish())
            except DlcpError as exc:
                failure = failure or exc
        if failure is not None:
            raise failure
        self.version = min(reply.version for reply in replies)
        self._note_lost(frozenset[int]().union(*[reply.lost for reply in replies]))
        return all(reply.changed for reply in replies)

    def _note_lost(self, lost: frozenset[int]) -> None:
        for rank in sorted(lost - self._lost):
            _log.warning(
                "the server lost worker %d: versions after %d are made without it",
                rank,
                self.version,
            )
        self._lost = lost

    def _unpack(self, into: Sequence[Array]) -> None:
        for link, place in zip(self._links, self._places, strict=True):
            for (start, stop), at in zip(link.layout.ranges, place, strict=True):
                into[at].reshape(-1)[:] = link.parameters[start:stop]

    def _check(self) -> None:
        if self._closed:
            raise SessionClosed("this client is closed: its worker has left the server")


def finite(array: Array) -> bool:
    """Whether there is neither NaN nor Inf. Usually takes one pass, in BLAS."""
    with np.errstate(all="ignore"):
        if np.isfinite(np.dot(array, array)):
            return True
        return bool(np.isfinite(array).all())  # squares may overflow although the values do not
