"""Calls of workers, as both ends have them in the store, and as a shard finds them."""

import json
import logging
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from dlcp_client.job.prefix import Prefixed
from dlcp_client.job.rendezvous import Member
from dlcp_client.job.sealed import Sealed, StoreLost
from dlcpd.contract.errors import BadMessage, DlcpError
from dlcpd.contract.messages import MAX_WORLD

SERVER, WORKER = 0, 1  # ranks of the two in their session
SCAN: Final = 0.5  # seconds between two looks at all ranks, whether or not there seems to be news
NAME: Final = 32  # characters of an incarnation's name, and of a call's
MAX_SEEN: Final = 16 * MAX_WORLD  # calls that are not answered twice

_log: Final = logging.getLogger("dlcpd.server")


@dataclass(frozen=True, slots=True)
class Call:
    """A worker that calls a shard. Its keys name the incarnation and the call, which were made up
    for this launch: so do the signatures of wish, answer and session."""

    sealed: Sealed  # part of the server
    shard: int
    incarnation: str
    worker: int  # its rank
    name: str
    wish: dict[str, Any]

    @property
    def slot(self) -> str:
        """Where the worker's newest wish is."""
        return slot(self.shard, self.incarnation, self.worker)

    @property
    def bell(self) -> str:
        """Changes with every call."""
        return bell(self.shard, self.incarnation)

    def text(self) -> str:
        """Of the wish."""
        return json.dumps({"name": self.name, "wish": self.wish})

    def respond(self, answer: dict[str, Any]) -> None:
        """To the worker."""
        self.sealed.write(self._answer, json.dumps(answer))

    def answered(self) -> dict[str, Any] | None:
        """Raises: BadMessage, NotAuthorised."""
        what = f"the answer of shard {self.shard} in the job's store"
        text = self.sealed.read(self._answer, what)
        return None if text is None else object_of(text, what)

    def member(self, rank: int) -> Member:
        """For the session of the two."""
        place = f"{self.sealed.place}/{self.shard}/{self.incarnation}/{self.name}"
        return Member(Prefixed(self.sealed.store, place), rank, 2, self.sealed.secret)

    @property
    def _answer(self) -> str:
        return f"{self.shard}/{self.incarnation}/{self.name}/answer"


class Calls:
    """The calls of one incarnation of a shard."""

    def __init__(self, sealed: Sealed, shard: int, incarnation: str) -> None:
        self._sealed, self._shard, self._incarnation = sealed, shard, incarnation
        self._bell: bytes | None = None
        self._due = 0.0  # monotonic time
        self._seen = OrderedDict[str, None]()
        self._refused = dict[int, str]()  # by rank: what was said of its place last

    def new(self) -> list[Call]:
        """Those that have come since the last time. What is no call is logged, and holds up none.

        Raises: StoreLost and what a `FileStore` raises.
        """
        rung = self._sealed.peek(bell(self._shard, self._incarnation))
        if rung == self._bell and time.monotonic() < self._due:
            return []
        found = [self._look(rank) for rank in range(MAX_WORLD)]
        self._bell, self._due = rung, time.monotonic() + SCAN
        return [call for call in found if call is not None]

    def _look(self, rank: int) -> Call | None:
        what = f"shard {self._shard}: what the job's store holds of worker {rank}"
        try:
            text = self._sealed.read(slot(self._shard, self._incarnation, rank), what)
            call = None if text is None else self._call(text, what, rank)
        except StoreLost:
            raise
        except DlcpError as exc:
            self._refuse(rank, str(exc))
            return None
        if call is None or call.name in self._seen:
            return None
        self._seen[call.name] = None
        if len(self._seen) > MAX_SEEN:
            self._seen.popitem(last=False)
        return call

    def _call(self, text: str, what: str, rank: int) -> Call:
        """Raises: BadMessage."""
        said = object_of(text, what)
        name, wish = said.get("name"), said.get("wish")
        if not is_name(name):
            raise BadMessage(f"{what} names no call")
        if not isinstance(wish, dict) or wish.get("worker") != rank:
            raise BadMessage(f"{what} is no wish of that worker")
        return Call(self._sealed, self._shard, self._incarnation, rank, str(name), wish)

    def _refuse(self, rank: int, why: str) -> None:
        if self._refused.get(rank) != why:
            self._refused[rank] = why
            _log.warning("%s", why)


def slot(shard: int, incarnation: str, rank: int) -> str:
    """Key of a worker's wish."""
    return f"{shard}/{incarnation}/worker/{rank}"


def bell(shard: int, incarnation: str) -> str:
    """Key of a count that changes with every call: only to be quick."""
    return f"{shard}/{incarnation}/calls"


def new_name() -> str:
    """Of an incarnation, or of a call: no other has it."""
    return secrets.token_hex(NAME // 2)


def is_name(value: Any) -> bool:
    """Whether it is that of an incarnation or a call."""
    return isinstance(value, str) and len(value) == NAME and value.isalnum() and value.isascii()


def object_of(text: str, what: str) -> dict[str, Any]:
    """Of JSON. Raises: BadMessage."""
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # half a surrogate pair fits no frame
    except (ValueError, RecursionError) as exc:
        raise BadMessage(f"{what} is no JSON") from exc
    if not isinstance(value, dict):
        raise BadMessage(f"{what} is {type(value).__name__}, not an object")
    return value
