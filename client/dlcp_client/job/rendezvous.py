"""Rendezvous of a job's ranks through the job's store."""

import hashlib
import json
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, Final

from dlcp_client.job.secret import JobSecret
from dlcp_client.job.signed_store import SignedStore, StoreLost
from dlcp_client.job.store import Store
from dlcpd.contract.errors import (
    BadConfig,
    BadMessage,
    DlcpError,
    PeerLost,
    ServerLost,
    error_for,
)
from dlcpd.contract.job_name import LAUNCH_BYTES, of_launch
from dlcpd.contract.limits import MAX_WORLD
from dlcpd.contract.messages import PeerRow, Welcome

MAX_NAMED: Final = 16  # ranks named in an error
MIN_WORLD: Final = 1
ROOT: Final = "dlcp"  # first part of every key
OWN_LOOK: Final = 2.0  # seconds between two checks that the store still has this rank's own value
_LOSSES: Final = (PeerLost, ServerLost)  # loss of a rank, and of a shard that ended with its rank
LATE: Final = 3.0  # seconds for other ranks to publish that they missed their deadline


@dataclass(frozen=True, slots=True)
class Member:
    """A rank of a world, and the store that its members share.

    With a `secret`, published values are signed, and unsigned ones are refused. `launch` identifies
    this launch of the job to all its ranks: signatures of an earlier launch are invalid.
    """

    store: Store
    rank: int
    world_size: int
    secret: JobSecret | None = None
    launch: str = ""

    def __post_init__(self) -> None:
        if not MIN_WORLD <= self.world_size <= MAX_WORLD:
            raise BadConfig(
                f"world size {self.world_size} is out of range: a session has {MIN_WORLD} to "
                f"{MAX_WORLD} ranks"
            )
        if not 0 <= self.rank < self.world_size:
            raise BadConfig(f"rank {self.rank} is not in a world of {self.world_size} ranks")


class Meeting:
    """One exchange of values through the store, with its own keys.

    The n-th meeting of each rank about a `subject` is the same one, so all ranks must connect in
    the same order. Several sessions of one job do not collide.
    """

    def __init__(self, member: Member, subject: str) -> None:
        self._member = member
        self._sealed = SignedStore(member.store, member.secret, member.launch)
        number = self._sealed.draw(f"{ROOT}/{subject}/count/{member.rank}")
        self._prefix = f"{ROOT}/{subject}/{number}"
        self._published = False
        self.subject = subject

    def publish(self, value: dict[str, Any]) -> None:
        """Publish this rank's value to the other ranks."""
        rank = self._member.rank
        self._sealed.write(self._key(rank), json.dumps(value), *self._about(rank))
        self._published = True

    def gather(self, deadline: float) -> list[dict[str, Any]]:
        """The values that all ranks published, by rank. `deadline` is monotonic time.

        Raises: PeerLost naming the ranks that published nothing; StoreLost if the store has lost
        this rank's value; NotAuthorised naming the first rank whose value has no valid signature;
        BadMessage.
        """
        keys = [self._key(rank) for rank in range(self._member.world_size)]
        started = time.monotonic()
        while not self._sealed.wait(keys, min(deadline, time.monotonic() + OWN_LOOK)):
            self._check_own()
            if time.monotonic() >= deadline and (missing := self._missing(keys)):
                raise PeerLost(
                    f"{self.subject}: rank {self._member.rank} waited "
                    f"{time.monotonic() - started:.1f} s, and {_named(missing)} of {len(keys)} "
                    f"ranks did not write to {self._sealed.name}; see the output of those "
                    "ranks, or allow more time with timeout="
                )
        said = [self._said(rank) for rank in range(len(keys))]
        for rank, values in enumerate(said):
            if values is None:
                raise self._lost(rank)
        return [values or {} for values in said]

    def so_far(self) -> list[dict[str, Any]]:
        """The values that ranks have published so far, by rank; {} for those that have not.

        Raises: BadMessage, NotAuthorised.
        """
        try:
            return [self._said(rank) or {} for rank in range(self._member.world_size)]
        except StoreLost:
            return []

    def _said(self, rank: int) -> dict[str, Any] | None:
        """The value of a rank, or None. Raises: BadMessage, NotAuthorised, StoreLost."""
        what = f"{self.subject}: the entry of rank {rank} in the job's store"
        text = self._sealed.read(self._key(rank), what, *self._about(rank))
        return None if text is None else _parse(rank, text)

    def _check_own(self) -> None:
        """Raises: StoreLost if the store has lost this rank's value."""
        own = self._member.rank
        if self._published and not self._sealed.has(self._key(own)):
            raise self._lost(own)

    def _lost(self, rank: int) -> StoreLost:
        whose = "the entry of this rank" if rank == self._member.rank else "an entry"
        return StoreLost(
            f"{self.subject}: {self._sealed.name} has lost {whose} (rank {rank}): another "
            "program deleted some or all of its keys; restart the job with a store that no "
            "other job uses"
        )

    def _about(self, rank: int) -> tuple[str, ...]:
        """The signed context of a value, in addition to key, launch and text."""
        return str(rank), str(self._member.world_size)

    def _key(self, rank: int) -> str:
        return f"{self._prefix}/{rank}"

    def _missing(self, keys: Sequence[str]) -> list[int]:
        """Ranks that have published nothing yet. Raises: StoreLost."""
        return [rank for rank, key in enumerate(keys) if not self._sealed.has(key)]


def launched(member: Member, subject: str, deadline: float) -> Member:
    """`member` with a launch. Every rank calls it before a meeting that must not accept old values.
    Raises: as Meeting.gather."""
    meeting = Meeting(member, subject)
    meeting.publish(fresh())
    return replace(member, launch=launch_of(meeting.gather(deadline)))


def fresh() -> dict[str, str]:
    """This rank's random part of the launch."""
    return {"nonce": secrets.token_hex(16)}


def launch_of(said: Sequence[dict[str, Any]]) -> str:
    """A digest of all ranks' values, each with a random part: equal on all ranks, and unique."""
    return hashlib.sha256(json.dumps(said, sort_keys=True).encode()).hexdigest()


@contextmanager
def together(member: Member, subject: str, deadline: float) -> Iterator[None]:
    """Make the block succeed on all ranks, or fail on all.

    Every rank enters a block about the same `subject`. `deadline` is monotonic time; other ranks
    have until LATE seconds after it.

    Raises: the block's error; if that is the loss of a rank, the error that a rank published before
    it left. After a success: the error of the first rank that failed; PeerLost naming the ranks
    that never finished the block.
    """
    meeting = Meeting(member, subject)
    try:
        yield
    except _LOSSES as exc:  # that rank published its failure before it left
        meeting.publish(refusal(exc))
        raise_refusal([{} if _is_loss(said) else said for said in meeting.so_far()])
        raise
    except DlcpError as exc:
        meeting.publish(refusal(exc))
        raise
    meeting.publish({})
    raise_refusal(meeting.gather(deadline + LATE))


def introduction(welcome: Welcome, job: str) -> dict[str, Any]:
    """The published value of a rank about its daemon; the job name of rank 0 is used."""
    unique = of_launch(job, secrets.token_bytes(LAUNCH_BYTES))
    return {"job": unique, "peer": [welcome.host, welcome.endpoint, welcome.public_key]}


def refusal(error: DlcpError) -> dict[str, Any]:
    """The published value of a rank that cannot take part: no other rank waits for it."""
    return {"code": error.code, "text": str(error)}


def raise_refusal(said: Sequence[dict[str, Any]]) -> None:
    """Raises: the error of the first rank that refused."""
    for rank, values in enumerate(said):
        if "code" in values:
            text = f"rank {rank} failed to join: {values.get('text')}"
            raise error_for(str(values["code"]), text)


def roster(introductions: Sequence[dict[str, Any]]) -> tuple[str, list[PeerRow]]:
    """Job name and peer rows for Join.

    Raises: the error of the first rank that refused; BadMessage.
    """
    raise_refusal(introductions)
    try:
        rows = [PeerRow(rank, *map(str, said["peer"])) for rank, said in enumerate(introductions)]
        return str(introductions[0]["job"]), rows
    except (KeyError, TypeError) as exc:
        raise BadMessage(
            "the store has an invalid introduction of a rank: run the same version of "
            "dlcp_client on all ranks"
        ) from exc


def _is_loss(said: dict[str, Any]) -> bool:
    return said.get("code") in {kind.code for kind in _LOSSES}


def _parse(rank: int, text: str) -> dict[str, Any]:
    """The value of a published text. Raises: BadMessage."""
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # no frame takes a lone surrogate
    except (ValueError, RecursionError) as exc:
        raise BadMessage(f"rank {rank} published a text that is not JSON") from exc
    if not isinstance(value, dict):
        raise BadMessage(f"rank {rank} published {type(value).__name__}, not an object")
    return value


def _named(ranks: Sequence[int]) -> str:
    more = f" and {len(ranks) - MAX_NAMED} more" if len(ranks) > MAX_NAMED else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:MAX_NAMED]))}{more}"
