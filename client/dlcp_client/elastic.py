"""A job that changes its ranks while it runs: it drops lost ranks and admits new ones.

    try:
        session = elastic.boundary(session)  # new ranks join here
        session.all_reduce(gradient, "avg").wait()
    except (PeerLost, DaemonLost):
        session = elastic.regroup(session)  # the surviving ranks continue

docs/elastic.md has the whole loop. Every change begins an epoch: a new session with new ranks.
"avg" divides by the new number of ranks; datagrams of an earlier epoch are discarded.
"""

import json
import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

import torch

from dlcp_client.arena.tensors import TENSORS
from dlcp_client.environment import Environment
from dlcp_client.job.epochs import ROOT, EpochAgreement, EpochMembers
from dlcp_client.job.next_members import NEW, NextMembersRule, gone, majority
from dlcp_client.job.prefixed_store import PrefixedStore
from dlcp_client.job.rendezvous import Member
from dlcp_client.job.secret import job_secret
from dlcp_client.job.session_origin import SessionOrigin
from dlcp_client.job.signed_store import SignedStore, StoreLost
from dlcp_client.joining.sessions import DEFAULT_ARENA, checked_timeout, enter
from dlcpd.contract.errors import (
    BadConfig,
    BadMessage,
    DaemonLost,
    DaemonUnavailable,
    DlcpError,
    PeerLost,
)

from .session import Session

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

DEFAULT_TIMEOUT: Final = 120.0  # seconds; time for two attempts if a rank dies during the first
DEFAULT_GRACE: Final = 20.0  # seconds to wait for a busy rank
MAX_ATTEMPTS: Final = 5  # epochs that were agreed on and failed; more would fail, too
MAX_EPOCH: Final = 1 << 31
ENTER_TIMEOUT: Final = 30.0  # seconds for the ranks that agreed on an epoch to enter it

_log: Final = logging.getLogger("dlcp_client")


def regroup(
    session: Session,
    *,
    timeout: float = DEFAULT_TIMEOUT,
    grace: float = DEFAULT_GRACE,
    quorum: int | None = None,
) -> Session:
    """A new session of the remaining ranks and of those that wait to join.

    Every rank that continues calls it; `session` then ends for all of them. Ranks keep their order;
    new ranks follow. Segments waived under a policy are reapplied in the new session, by name:
    those of this rank, not those of ranks (or daemons) that died.

    Args:
        session: of the epoch that ends, whether or not it still works. Closed on success.
        timeout: seconds for all of it.
        grace: seconds to wait for ranks that have neither come nor been lost: the longest time
            that a rank may be busy. A rank that was lost has twice as long.
        quorum: ranks that suffice to continue; by default more than half of the present ones, so
            that two parts of a job never both continue.

    Raises: PeerLost if too few ranks came, or if the others continued without this rank; BadConfig;
        the errors of `connect`. `session` is then unchanged.
    """
    timeout = checked_timeout(timeout)
    size, origin = session.world_size, _origin(session)
    if quorum is not None and not 1 <= quorum <= size:
        raise BadConfig(
            f"quorum {quorum} is out of range: use 1..{size}, the number of ranks of this session"
        )
    rule = NextMembersRule(size, quorum or majority(size), grace)
    made = _attempts(origin, session, rule, session.arena_bytes, time.monotonic() + timeout)
    if made.origin and made.origin.private_socket == origin.private_socket:
        made.adopt_daemon(session)
    _say(session, made)
    session.close()
    return made


def boundary(
    session: Session, *, timeout: float = DEFAULT_TIMEOUT, grace: float = DEFAULT_GRACE
) -> Session:
    """Admit processes that wait in `join`. Returns a new session, or `session` if none waits.

    Every rank calls it between the same two operations. It costs a small broadcast: call it every N
    steps.

    Raises: the error that ended the session, as any operation; the errors of `regroup`.
    """
    origin, waiting = _origin(session), torch.zeros(1, dtype=torch.int64)
    if session.rank == 0:
        secret = job_secret(Environment.read())
        with _without_store():
            here = json.dumps([origin.lineage, origin.epoch])
            SignedStore(origin.store, secret).write(_address(origin.subject), here)
            following = EpochAgreement(
                origin.store, origin.lineage, origin.epoch + 1, origin.epoch, secret
            )
            waiting += following.newcomers()
    session.world.broadcast(waiting, 0).wait()
    return regroup(session, timeout=timeout, grace=grace) if waiting.item() else session


def join(
    store: "Store",
    *,
    job: str | None = None,
    socket: str | None = None,
    arena_bytes: int = DEFAULT_ARENA,
    timeout: float = DEFAULT_TIMEOUT,
    config: str | Path | None = None,
) -> Session:
    """Join a running job at its next `boundary` or `regroup`. The returned session has the assigned
    `rank` and `world_size`.

    Args:
        store: that of the job.
        job: as the job's own `connect` was given.
        socket: as in `connect`.
        arena_bytes: as in `connect`.
        timeout: seconds for all of it, including the wait for the next boundary.
        config: as in `connect`.

    Raises: PeerLost if the job did not admit this process; the errors of `connect`.
    """
    timeout = checked_timeout(timeout)
    deadline, environment = time.monotonic() + timeout, Environment.read()
    subject = job or "job"
    lineage, epoch = _found(store, subject, timeout)
    origin = SessionOrigin(
        store,
        subject,
        Path(config) if config else environment.config,
        TENSORS,
        socket or environment.socket,
        lineage=lineage,
        epoch=epoch,
    )
    return _attempts(origin, None, None, arena_bytes, deadline)


def _attempts(
    origin: SessionOrigin,
    session: Session | None,
    rule: NextMembersRule | None,
    arena_bytes: int,
    deadline: float,
) -> Session:
    """Agree on an epoch and enter it; if that fails for all, try the next one."""
    seat, epoch = (session.rank if session else NEW), origin.epoch
    failed: list[DlcpError] = []  # failures of earlier attempts
    secret = job_secret(Environment.read())
    while True:
        epoch += 1
        asked = EpochAgreement(origin.store, origin.lineage, epoch, origin.epoch, secret)
        with _without_store(), _after(failed):
            own = None if asked.members() else asked.bid(seat)
            members = asked.agree(own, rule, lambda: _lost(session), deadline)
        if (rank := members.rank_of(own)) is not None:
            try:
                return _enter(origin, asked, members, rank, session, arena_bytes, deadline)
            except (PeerLost, DaemonLost, DaemonUnavailable) as exc:
                failed.append(exc)
                if len(failed) == MAX_ATTEMPTS or time.monotonic() >= deadline:
                    raise
                _log.warning(
                    "epoch %d of job %s failed, and the ranks try the next epoch: %s",
                    epoch,
                    origin.subject,
                    exc,
                )
        elif session is not None:
            raise PeerLost(
                f"the members of epoch {epoch} of job {origin.subject} were agreed without "
                f"rank {seat}, which was too late: call elastic.join() to join the job again"
            )


def _enter(  # noqa: PLR0913, PLR0917  # a step of _attempts, with its variables
    origin: SessionOrigin,
    asked: EpochAgreement,
    members: EpochMembers,
    rank: int,
    session: Session | None,
    arena_bytes: int,
    deadline: float,
) -> Session:
    place = PrefixedStore(asked.store, f"{asked.place}/{members.digest}")
    member = Member(place, rank, len(members.bids), asked.secret)
    origin = replace(origin, epoch=members.epoch, seats=members.seats)
    deadline = min(deadline, time.monotonic() + ENTER_TIMEOUT)
    return enter(member, origin, origin.subject, arena_bytes, deadline, previous=session)


def _origin(session: Session) -> SessionOrigin:
    if session.origin is None:
        raise BadConfig(
            "this session was opened without a store, and elastic needs one: pass store= to connect"
        )
    return session.origin


def _lost(session: Session | None) -> frozenset[int]:
    """Ranks whose loss ended the session; empty if there is none."""
    error: DlcpError | None = session.failure() if session else None
    rank = error.peer.rank if error else -1
    return frozenset([rank]) if rank >= 0 else frozenset()


def _address(subject: str) -> str:
    return f"{ROOT}/at/{subject}"


def _found(store: "Store", subject: str, timeout: float) -> tuple[str, int]:
    """Lineage and epoch of a running job. Raises: PeerLost, BadMessage, NotAuthorised."""
    signed_store, key = SignedStore(store, job_secret(Environment.read())), _address(subject)
    until = time.monotonic() + timeout
    while not signed_store.wait([key], until):
        if time.monotonic() >= until:
            raise PeerLost(
                f"job {subject!r} did not call elastic.boundary() within {timeout:g} s: its "
                f"entry is missing in {signed_store.name}"
            )
    text = signed_store.read(key, f"the entry of job {subject!r} in the store")
    try:
        lineage, epoch = json.loads(text or "")
        if not isinstance(lineage, str) or type(epoch) is not int or not 0 <= epoch < MAX_EPOCH:
            raise TypeError
    except (ValueError, TypeError, RecursionError) as exc:
        raise BadMessage(f"the store holds an invalid entry of job {subject!r}") from exc
    return lineage, epoch


@contextmanager
def _without_store() -> Iterator[None]:
    """Add advice to StoreLost. Raises: StoreLost."""
    try:
        yield
    except StoreLost as exc:
        raise StoreLost(
            f"{exc}. Ranks cannot agree on an epoch without the store; restart the job from "
            "its last checkpoint"
        ) from exc


@contextmanager
def _after(failed: Sequence[DlcpError]) -> Iterator[None]:
    """Name the first failure: a rank may be missing only because an earlier attempt failed.

    Raises: PeerLost with that failure.
    """
    try:
        yield
    except PeerLost as exc:
        if not failed:
            raise
        raise PeerLost(f"{exc}. An earlier attempt failed: {failed[0]}") from failed[0]


def _say(session: Session, made: Session) -> None:
    """Log the new ranks, and the residuals lost with the ranks that left."""
    seats = made.origin.seats if made.origin else ()
    left = gone(session.world_size, seats)
    new = seats.count(NEW)
    text = (
        f"epoch {made.epoch} begins: {made.world_size} ranks, rank {session.rank} is now rank "
        f"{made.rank}"
    )
    if new:
        text += f"; {new} new ranks"
    if left:
        names = ", ".join(map(str, left))
        text += f"; rank(s) {names} left, and their residuals are lost"
    if isinstance(session.failure(), DaemonLost):
        text += "; the dlcpd of this rank had ended, and its residuals are lost"
    _log.warning(text)
