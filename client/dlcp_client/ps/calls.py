"""Calls of workers in the store, as worker and shard use them."""

import json
import logging
import secrets
import time
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Final

from dlcp_client.job.prefixed_store import PrefixedStore
from dlcp_client.job.rendezvous import Member
from dlcp_client.job.signed_store import SignedStore, StoreLost
from dlcpd.contract.errors import BadMessage, DlcpError
from dlcpd.contract.limits import MAX_WORLD

SERVER, WORKER = 0, 1  # ranks of server and worker in their session
SCAN: Final = 0.5  # seconds between two reads of all slots, whether or not the bell changed
NAME: Final = 32  # characters of the name of an incarnation or call
MAX_SEEN: Final = 16 * MAX_WORLD  # calls that are remembered, so as to answer each once

_log: Final = logging.getLogger("dlcpd.server")


@dataclass(frozen=True, slots=True)
class WorkerCall:
    """A worker's call of a shard. Its keys name the incarnation and the call, which are unique to
    this launch; so do the signatures of request, answer and session."""

    signed_store: SignedStore  # the server's part of the store
    shard: int
    incarnation: str
    worker: int  # rank of the worker
    name: str
    join_request: dict[str, Any]

    @property
    def slot(self) -> str:
        """Key of the worker's newest join request."""
        return slot(self.shard, self.incarnation, self.worker)

    @property
    def bell(self) -> str:
        """Key of a counter that changes with every call."""
        return bell(self.shard, self.incarnation)

    def text(self) -> str:
        """The text of the join request."""
        return json.dumps({"name": self.name, "join_request": self.join_request})

    def respond(self, answer: dict[str, Any]) -> None:
        """Write the answer for the worker."""
        self.signed_store.write(self._answer, json.dumps(answer))

    def answered(self) -> dict[str, Any] | None:
        """The shard's answer, or None. Raises: BadMessage, NotAuthorised."""
        what = f"the answer of shard {self.shard} in the job's store"
        text = self.signed_store.read(self._answer, what)
        return None if text is None else object_of(text, what)

    def member(self, rank: int) -> Member:
        """A member of the session between worker and shard."""
        place = f"{self.signed_store.place}/{self.shard}/{self.incarnation}/{self.name}"
        return Member(
            PrefixedStore(self.signed_store.store, place), rank, 2, self.signed_store.secret
        )

    @property
    def _answer(self) -> str:
        return f"{self.shard}/{self.incarnation}/{self.name}/answer"


class WorkerCalls:
    """The calls of one incarnation of a shard."""

    def __init__(self, signed_store: SignedStore, shard: int, incarnation: str) -> None:
        self._signed_store, self._shard, self._incarnation = signed_store, shard, incarnation
        self._bell: bytes | None = None
        self._due = 0.0  # monotonic time
        self._seen = OrderedDict[str, None]()
        self._refused = dict[int, str]()  # by rank: the last error of its slot

    def new(self) -> list[WorkerCall]:
        """Calls that have arrived since the last time. Invalid ones are logged and skipped.

        Raises: StoreLost, and the errors of a `FileStore`.
        """
        rung = self._signed_store.peek(bell(self._shard, self._incarnation))
        if rung == self._bell and time.monotonic() < self._due:
            return []
        found = [self._look(rank) for rank in range(MAX_WORLD)]
        self._bell, self._due = rung, time.monotonic() + SCAN
        return [call for call in found if call is not None]

    def _look(self, rank: int) -> WorkerCall | None:
        what = f"shard {self._shard}: the call of worker {rank} in the job's store"
        try:
            text = self._signed_store.read(slot(self._shard, self._incarnation, rank), what)
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

    def _call(self, text: str, what: str, rank: int) -> WorkerCall:
        """The call in a slot's text. Raises: BadMessage."""
        said = object_of(text, what)
        name, join_request = said.get("name"), said.get("join_request")
        if not is_name(name):
            raise BadMessage(f"{what} has no name")
        if not isinstance(join_request, dict) or join_request.get("worker") != rank:
            raise BadMessage(f"{what} is not a join request of that worker")
        return WorkerCall(
            self._signed_store, self._shard, self._incarnation, rank, str(name), join_request
        )

    def _refuse(self, rank: int, why: str) -> None:
        if self._refused.get(rank) != why:
            self._refused[rank] = why
            _log.warning("%s", why)


def slot(shard: int, incarnation: str, rank: int) -> str:
    """Key of a worker's join request."""
    return f"{shard}/{incarnation}/worker/{rank}"


def bell(shard: int, incarnation: str) -> str:
    """Key of a counter that changes with every call; a hint for quick detection."""
    return f"{shard}/{incarnation}/calls"


def new_name() -> str:
    """A unique name of an incarnation or call."""
    return secrets.token_hex(NAME // 2)


def is_name(value: Any) -> bool:
    """Whether it is a name of an incarnation or call."""
    return isinstance(value, str) and len(value) == NAME and value.isalnum() and value.isascii()


def object_of(text: str, what: str) -> dict[str, Any]:
    """The JSON object in `text`. Raises: BadMessage."""
    try:
        value = json.loads(text)
        json.dumps(value, ensure_ascii=False).encode()  # no frame takes a lone surrogate
    except (ValueError, RecursionError) as exc:
        raise BadMessage(f"{what} is not JSON") from exc
    if not isinstance(value, dict):
        raise BadMessage(f"{what} is {type(value).__name__}, not an object")
    return value
