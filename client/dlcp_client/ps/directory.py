"""The rendezvous of workers and shards in a store, where each shard has a place under its name.

Every process that takes over a shard is a new *incarnation* of it, with a unique name. A worker
*calls* an incarnation: it writes its join request to the slot of its rank, in one write, and reads
the answer under a new name that is in the join request. So no call waits for another one, even if
the calling process dies. Both ends rewrite values that the store loses.
"""

import json
import time
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from dlcp_client.job.rendezvous import raise_refusal
from dlcp_client.job.secret import JobSecret
from dlcp_client.job.signed_store import SignedStore
from dlcp_client.job.store import Store
from dlcp_client.ps.calls import NAME, WorkerCall, is_name, new_name, object_of
from dlcpd.contract.errors import BadConfig, BadMessage, NotAuthorised, ServerLost
from dlcpd.contract.limits import MAX_WORLD

ROOT: Final = "dlcp/server"
LOOK: Final = 0.02  # seconds between two reads of the store
AGAIN: Final = 1.0  # seconds until a value that the store has lost is written again
MAX_SHARDS: Final = 64  # of one server: a worker has a session with each


class IncarnationRecord(NamedTuple):
    """The published record of an incarnation."""

    incarnation: str
    shards: int


@dataclass(frozen=True, slots=True)
class Directory:
    """The shards of the server called `name`."""

    store: Store
    name: str
    secret: JobSecret | None = None

    @property
    def signed_store(self) -> SignedStore:
        """The server's part of the store."""
        return SignedStore(self.store, self.secret, place=f"{ROOT}/{self.name}")

    # --- of a server --------------------------------------------------------------------------

    def announce(self, shard: int, shards: int) -> str:
        """Take the place of `shard` of `shards`. Returns the name of this incarnation.

        Raises: BadConfig if the server has another number of shards.
        """
        said = _count(
            self.signed_store.settle("shards", str(shards), self._what("number of shards"))
        )
        if said != shards:
            raise BadConfig(
                f"server {self.name!r} has {said or 'no known number of'} shards in this "
                f"store, and the configuration has shards = {shards}: configure the same "
                "number, or another name"
            )
        incarnation = new_name()
        self._stand(shard, IncarnationRecord(incarnation, shards))
        return incarnation

    def stay(self, shard: int, incarnation: str, shards: int) -> None:
        """Publish the record again if the store has lost it. Raises: as `SignedStore`."""
        self.signed_store.settle("shards", str(shards), self._what("number of shards"))
        try:
            lost = self.newest(shard) is None
        except (BadMessage, NotAuthorised):
            lost = True
        if lost:
            self._stand(shard, IncarnationRecord(incarnation, shards))

    def _stand(self, shard: int, standing: IncarnationRecord) -> None:
        self.signed_store.write(f"{shard}/standing", json.dumps(standing._asdict()))

    # --- of a worker --------------------------------------------------------------------------

    def newest(self, shard: int) -> IncarnationRecord | None:
        """The present incarnation; None: there was none. Raises: BadMessage, NotAuthorised."""
        what = self._what(f"shard {shard}")
        text = self.signed_store.read(f"{shard}/standing", what)
        if text is None:
            return None
        said = object_of(text, what)
        incarnation, shards = said.get("incarnation"), said.get("shards")
        if not is_name(incarnation) or type(shards) is not int:
            raise BadMessage(
                f"{what} has an unknown format: run the same version of dlcp_client on workers "
                "and servers"
            )
        return IncarnationRecord(str(incarnation), shards)

    def shards(self, deadline: float) -> int:
        """The number of shards. Raises: ServerLost if the server is not in the store by `deadline`;
        BadMessage for an invalid number."""
        what = self._what("number of shards")
        while (text := self.signed_store.read("shards", what)) is None:
            if time.monotonic() >= deadline:
                raise ServerLost(
                    f"{self.signed_store.name} has no server {self.name!r}: start it with the same "
                    f"store and name (dlcpd server --config FILE)"
                )
            time.sleep(LOOK)
        if not (shards := _count(text)):
            raise BadMessage(f"the store has an invalid number of shards of server {self.name!r}")
        return shards

    def call(
        self, shard: int, shards: int, join_request: dict[str, Any], deadline: float
    ) -> tuple[WorkerCall, int]:
        """Call a shard, of `shards`, until an incarnation answers. Returns the call and its answer.

        Raises: the error with which it refused; ServerLost naming the shard; BadMessage,
        NotAuthorised.
        """
        began, calling = time.monotonic(), None
        while True:
            newest = self.newest(shard)
            if newest and newest.shards != shards:
                raise BadMessage(
                    f"{self._what('number of shards')} is {shards}, but shard {shard} belongs "
                    f"to a server of {newest.shards} shards"
                )
            self.check_lives(shard)
            # a call to an ended incarnation gets no answer
            if newest and (calling is None or newest.incarnation != calling.call.incarnation):
                calling = _PendingCall.begin(
                    self.signed_store, shard, newest.incarnation, join_request
                )
            if calling is not None and (answer := calling.answer()) is not None:
                return calling.call, answer
            if time.monotonic() >= deadline:
                raise ServerLost(self._unanswered(shard, time.monotonic() - began, newest))
            if calling is not None:
                calling.keep()
            time.sleep(LOOK)

    def check_lives(self, shard: int) -> None:
        """Raises: ServerLost if the shard has ended and has no successor."""

    def _unanswered(self, shard: int, waited: float, newest: IncarnationRecord | None) -> str:
        """The error text. The shard's process may still run: this worker cannot know."""
        heard = "was called" if newest else "is not in the store"
        return (
            f"shard {shard} of server {self.name!r} did not answer within {waited:.1f} s: it "
            f"{heard}, in {self.signed_store.name}. If its process runs, read its log; if not, "
            "start a process for it (dlcpd server --config FILE); standbys start with "
            "--standby"
        )

    def _what(self, what: str) -> str:
        return f"server {self.name!r}: its {what} in the job's store"


@dataclass(slots=True)
class _PendingCall:
    """An unanswered call."""

    call: WorkerCall
    text: str
    left: float = field(default_factory=time.monotonic)  # time of the last write

    @classmethod
    def begin(
        cls, signed_store: SignedStore, shard: int, incarnation: str, join_request: dict[str, Any]
    ) -> "_PendingCall":
        """Raises: BadConfig if the worker's rank is out of range."""
        rank = join_request["worker"]
        if not 0 <= rank < MAX_WORLD:
            raise BadConfig(f"worker {rank} is out of range: ranks are 0..{MAX_WORLD - 1}")
        name = new_name()
        call = WorkerCall(signed_store, shard, incarnation, rank, name, join_request)
        made = cls(call, call.text())
        signed_store.write(call.slot, made.text)
        signed_store.draw(call.bell)
        return made

    def answer(self) -> int | None:
        """The number in the answer; None without an answer. Raises: the error of a refusal."""
        said = self.call.answered()
        if said is None:
            return None
        raise_refusal([said])
        last = said.get("last")
        if type(last) is not int or last < 0:
            raise BadMessage(
                "the server sent an answer of unknown format: run the same version of "
                "dlcp_client on workers and servers"
            )
        return last

    def keep(self) -> None:
        """Write the join request again if the store lost it, or another worker overwrote it."""
        if time.monotonic() < self.left + AGAIN:
            return
        self.left = time.monotonic()
        if not self.call.signed_store.keeps(self.call.slot, self.text):
            self.call.signed_store.write(self.call.slot, self.text)


def _count(text: str) -> int:
    """A number of shards; 0: the text is invalid."""
    shards = int(text) if text.isascii() and text.isdigit() and len(text) <= NAME else 0
    return shards if shards <= MAX_SHARDS else 0
