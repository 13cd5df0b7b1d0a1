"""How workers and shards find each other: in a store, where each shard has a place by its name.

Every process that takes over a shard is a new *incarnation* of it. A worker *calls* an incarnation:
it leaves its wish under the next number, and the answer is left beside it.
"""

import time
from dataclasses import dataclass
from typing import Any, Final

from dlcp_client.job.prefix import Prefixed
from dlcp_client.job.rendezvous import Meeting, Member, raise_refusal
from dlcp_client.job.secret import JobSecret
from dlcp_client.job.store import Store
from dlcpd.contract.errors import BadConfig, BadMessage, ServerLost

ROOT: Final = "dlcp/server"
LOOK: Final = 0.02  # seconds between two looks at the store
MAX_SHARDS: Final = 64  # of one server: a worker has a session with each
SERVER, WORKER = 0, 1  # ranks of the two in what they share


@dataclass(frozen=True, slots=True)
class Call:
    """A worker that calls a shard: `place` is their own part of the store."""

    store: Store
    place: str
    secret: JobSecret | None

    def member(self, rank: int) -> Member:
        """For the session of the two."""
        return Member(Prefixed(self.store, self.place), rank, 2, self.secret)

    def meeting(self, rank: int) -> Meeting:
        """Where the wish and the answer are; its subject has the place, and so its signatures."""
        return Meeting(self.member(rank), self.place)


@dataclass(frozen=True, slots=True)
class Directory:
    """The shards of the server called `name`."""

    store: Store
    name: str
    secret: JobSecret | None = None

    # --- of a server --------------------------------------------------------------------------

    def announce(self, shard: int, shards: int) -> int:
        """Take the place of `shard` of `shards`; the number of this incarnation, from 1.

        Raises: BadConfig where the server has another number of shards.
        """
        said = int(self.store.compare_set(self._key("shards"), "", str(shards)))
        if said != shards:
            raise BadConfig(
                f"server {self.name!r} has {said} shards in this store, and shards = {shards} was "
                f"configured here: use one number, or another name"
            )
        return self.store.add(self._key(f"{shard}/incarnations"), 1)

    def newest(self, shard: int) -> int:
        """The incarnation that has the shard now; 0: none has had it."""
        return self.store.add(self._key(f"{shard}/incarnations"), 0)

    def called(self, shard: int, incarnation: int, number: int) -> Call | None:
        """The call of that number, from 1, if it has come."""
        call = self._call(shard, incarnation, number)
        return call if self.store.check([f"{call.place}/here"]) else None

    # --- of a worker --------------------------------------------------------------------------

    def shards(self, deadline: float) -> int:
        """How many there are. Raises: ServerLost where the server is not there by then; BadMessage
        for what no server says."""
        key = self._key("shards")
        while not self.store.check([key]):
            if time.monotonic() >= deadline:
                raise ServerLost(
                    f"no server {self.name!r} is in this store: start it (dlcpd server --config "
                    f"FILE) with the same store and name"
                )
            time.sleep(LOOK)
        try:
            shards = int(self.store.get(key))
        except ValueError:
            shards = 0
        if not 0 < shards <= MAX_SHARDS:
            raise BadMessage(f"the store does not say how many shards server {self.name!r} has")
        return shards

    def call(self, shard: int, wish: dict[str, Any], deadline: float) -> tuple[Call, int]:
        """Call a shard until an incarnation answers: the call, and what it answered.

        Raises: what it refused with; ServerLost naming the shard.
        """
        incarnation = 0
        while True:
            newest = self.newest(shard)
            if newest > incarnation:  # nobody answers in the place of one that has ended
                incarnation = newest
                call = self._begin(shard, incarnation, wish)
            if incarnation and (answer := call.meeting_said()) is not None:
                return call.call, answer
            if time.monotonic() >= deadline:
                raise ServerLost(
                    f"shard {shard} of server {self.name!r} does not answer: it ended, and no "
                    f"other process took over; start one (dlcpd server --config FILE), or some "
                    f"with --standby beforehand"
                )
            time.sleep(LOOK)

    def _begin(self, shard: int, incarnation: int, wish: dict[str, Any]) -> "_Calling":
        number = self.store.add(self._key(f"{shard}/{incarnation}/calls"), 1)
        call = self._call(shard, incarnation, number)
        meeting = call.meeting(WORKER)
        meeting.publish(wish)
        self.store.set(f"{call.place}/here", "1")
        return _Calling(call, meeting)

    def _call(self, shard: int, incarnation: int, number: int) -> Call:
        place = self._key(f"{shard}/{incarnation}/call/{number}")
        return Call(self.store, place, self.secret)

    def _key(self, what: str) -> str:
        return f"{ROOT}/{self.name}/{what}"


@dataclass(frozen=True, slots=True)
class _Calling:
    call: Call
    meeting: Meeting

    def meeting_said(self) -> int | None:
        """The number in the answer; None before there is one. Raises: what was refused with."""
        said = self.meeting.so_far()
        if not said or not said[SERVER]:
            return None
        raise_refusal([said[SERVER]])
        last = said[SERVER].get("last")
        if type(last) is not int or last < 0:
            raise BadMessage("the server's answer is none of this version")
        return last
