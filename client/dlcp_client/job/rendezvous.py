"""How the ranks of a job find each other: through the job's store."""

import json
import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from dlcp_client.job.secret import JobSecret
from dlcp_client.job.store import Store
from dlcpd.contract.errors import (
    BadConfig,
    BadMessage,
    DlcpError,
    NotAuthorised,
    PeerLost,
    error_for,
)
from dlcpd.contract.messages import MAX_WORLD, PeerRow, Welcome

MAX_NAMED: Final = 16  # ranks named in an error
MAX_JOB: Final = 96  # characters of a job's name; the rest of Join.job is the unique part
MIN_WORLD: Final = 1
ROOT: Final = "dlcp"  # first part of every key
PURPOSE: Final = "rendezvous 1"  # of a signature; the number is that of what is signed, and how
MAX_SAID: Final = 64 * 1024  # bytes that a rank publishes at once; the longest are errors
LATE: Final = 3.0  # seconds after a deadline in which others say that they failed at theirs


@dataclass(frozen=True, slots=True)
class Member:
    """A rank of a world, and the store that its members share.

    With a `secret`, what is published is signed, and what is not is refused. `launch` is what all
    ranks of this launch of the job know to be its own: what was signed in an earlier one is no use.
    """

    store: Store
    rank: int
    world_size: int
    secret: JobSecret | None = None
    launch: str = ""

    def __post_init__(self) -> None:
        if not MIN_WORLD <= self.world_size <= MAX_WORLD:
            raise BadConfig(
                f"world size {self.world_size}: a session has {MIN_WORLD} to {MAX_WORLD} ranks"
            )
        if not 0 <= self.rank < self.world_size:
            raise BadConfig(f"rank {self.rank} of a world of {self.world_size}")


class Meeting:
    """One use of the store, under keys of its own.

    The n-th meeting about a `subject` of each rank is the same one, so all ranks must
    connect in the same order. Several sessions of one job do not collide.
    """

    def __init__(self, member: Member, subject: str) -> None:
        self._member = member
        number = member.store.add(f"{ROOT}/{subject}/count/{member.rank}", 1)
        self._prefix = f"{ROOT}/{subject}/{number}"
        self.subject = subject

    def publish(self, value: dict[str, Any]) -> None:
        """Tell the other ranks."""
        text, rank = json.dumps(value), self._member.rank
        if secret := self._member.secret:
            tag = secret.tag(PURPOSE, *self._context(rank), text)
            text = json.dumps({"signed": text, "tag": tag})
        self._member.store.set(self._key(rank), text)

    def gather(self, deadline: float) -> list[dict[str, Any]]:
        """What every rank published, by rank. `deadline` is monotonic time.

        Raises: PeerLost naming the ranks that published nothing; NotAuthorised naming the first
            whose place somebody else has taken; BadMessage.
        """
        keys = [self._key(rank) for rank in range(self._member.world_size)]
        started = time.monotonic()
        try:
            left = timedelta(seconds=max(deadline - started, 0.001))
            self._member.store.wait(keys, left)
        except RuntimeError as exc:  # the store's own error is one
            missing = self._missing(keys)
            if missing != []:
                raise PeerLost(
                    f"{self.subject}: rank {self._member.rank} waited "
                    f"{time.monotonic() - started:.1f} s in vain for {_named(missing)} of "
                    f"{len(keys)} ranks; look at what those ranks do instead, or allow more with "
                    f"timeout="
                ) from exc
        return [self._said(rank, self._member.store.get(key)) for rank, key in enumerate(keys)]

    def so_far(self) -> list[dict[str, Any]]:
        """What ranks have published by now, by rank; nothing of those that have not.

        Raises: BadMessage, NotAuthorised.
        """
        keys = [self._key(rank) for rank in range(self._member.world_size)]
        missing = self._missing(keys)
        if missing is None:
            return []
        return [
            {} if rank in missing else self._said(rank, self._member.store.get(key))
            for rank, key in enumerate(keys)
        ]

    def _said(self, rank: int, data: bytes) -> dict[str, Any]:
        """Raises: BadMessage, NotAuthorised."""
        value, secret = _parse(rank, data), self._member.secret
        text, tag = value.get("signed"), value.get("tag")
        if secret is None:
            if text is not None:
                raise NotAuthorised(
                    f"rank {rank} has a job's secret and rank {self._member.rank} has none: set "
                    f"the same DLCPD_JOB_SECRET, or DLCPD_JOB_SECRET_FILE, for all ranks"
                )
            return value
        if not isinstance(text, str) or not isinstance(tag, str):
            raise NotAuthorised(
                f"{self.subject}: what the job's store holds of rank {rank} is not signed: that "
                f"rank has no DLCPD_JOB_SECRET, or somebody else wrote it"
            )
        if not secret.proves(tag, PURPOSE, *self._context(rank), text):
            raise NotAuthorised(
                f"{self.subject}: what the job's store holds of rank {rank} was not signed by it, "
                f"in this launch of the job and with its secret: that rank has another "
                f"DLCPD_JOB_SECRET, or somebody else wrote it"
            )
        return _parse(rank, text.encode())

    def _context(self, rank: int) -> tuple[str, ...]:
        """What a signature is about, beside the text: nothing signed fits another place."""
        return self._member.launch, self._prefix, str(rank), str(self._member.world_size)

    def _key(self, rank: int) -> str:
        return f"{self._prefix}/{rank}"

    def _missing(self, keys: Sequence[str]) -> list[int] | None:
        """Who has published nothing yet; None where the store does not say."""
        try:
            return [rank for rank, key in enumerate(keys) if not self._member.store.check([key])]
        except RuntimeError:  # it is gone
            return None


@contextmanager
def together(member: Member, subject: str, deadline: float) -> Iterator[None]:
    """What the block does succeeds on all ranks, or fails on all.

    Every rank enters a block about the same `subject`. `deadline` is monotonic time; the others
    are waited for until LATE seconds after it.

    Raises: what the block raised, but the cause where that is the loss of a rank which has failed
        itself; else the error of the first rank where it raised one; PeerLost naming the ranks that
        never finished it.
    """
    meeting = Meeting(member, subject)
    try:
        yield
    except PeerLost as exc:  # it left because it failed, and has said why before it left
        meeting.publish(refusal(exc))
        raise_refusal([{} if _is_loss(said) else said for said in meeting.so_far()])
        raise
    except DlcpError as exc:
        meeting.publish(refusal(exc))
        raise
    meeting.publish({})
    raise_refusal(meeting.gather(deadline + LATE))


def introduction(welcome: Welcome, job: str) -> dict[str, Any]:
    """What a rank tells the others about its daemon; rank 0's job name counts."""
    unique = f"{job[:MAX_JOB]}-{secrets.token_hex(8)}"
    return {"job": unique, "peer": [welcome.host, welcome.endpoint, welcome.public_key]}


def refusal(error: DlcpError) -> dict[str, Any]:
    """What a rank that cannot take part tells the others, so that they do not wait for it."""
    return {"code": error.code, "text": str(error)}


def raise_refusal(said: Sequence[dict[str, Any]]) -> None:
    """Raises: the error of the first rank that refused."""
    for rank, values in enumerate(said):
        if "code" in values:
            text = f"rank {rank} cannot take part: {values.get('text')}"
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
        raise BadMessage("the store holds no introduction where one should be") from exc


def _is_loss(said: dict[str, Any]) -> bool:
    return said.get("code") == PeerLost.code


def _parse(rank: int, text: bytes) -> dict[str, Any]:
    if len(text) > MAX_SAID:
        raise BadMessage(f"rank {rank} published {len(text)} B, at most {MAX_SAID}")
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair fits no frame
    except (ValueError, RecursionError) as exc:
        raise BadMessage(f"rank {rank} published no JSON") from exc
    if not isinstance(value, dict):
        raise BadMessage(f"rank {rank} published {type(value).__name__}, not an object")
    return value


def _named(ranks: Sequence[int] | None) -> str:
    if ranks is None:
        return "the store, which does not answer, and some"
    more = f" and {len(ranks) - MAX_NAMED} more" if len(ranks) > MAX_NAMED else ""
    return f"rank{'s' if len(ranks) > 1 else ''} {', '.join(map(str, ranks[:MAX_NAMED]))}{more}"
