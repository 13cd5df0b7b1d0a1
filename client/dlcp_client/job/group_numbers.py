"""Agreement of a group's members on its number, through the job's store."""

import threading
import time
from collections import Counter
from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, NamedTuple

from dlcp_client.job.secret import JobSecret
from dlcp_client.job.signed_store import SignedStore, StoreLost
from dlcp_client.job.store import Store
from dlcpd.contract.errors import BadConfig, BadMessage, PeerLost, TooMany
from dlcpd.contract.messages import PROBES

ROOT: Final = "dlcp/group"
MAX_TITLE: Final = 128  # characters, as OpenGroup.name
OWN_LOOK: Final = 2.0  # seconds between two checks that the store answers


class GroupNumber(NamedTuple):
    """`title`: identifies one of the groups of these ranks. The engines of all members compare it
    with every operation, so a wrong number cannot mix two groups."""

    number: int
    title: str


class GroupNumbers:
    """The first member of a group draws its number, and the other members read it.

    The n-th group of the same ranks and name is the same one on all of its members. The text for
    each group is signed for it; `job` is unique to a launch.
    """

    def __init__(
        self, store: Store | None, job: str, rank: int, secret: JobSecret | None = None
    ) -> None:
        self._signed_store = (
            None if store is None else SignedStore(store, secret, place=f"{ROOT}/{job}")
        )
        self._rank = rank
        self._made: Counter[str] = Counter()
        self._used = set[int]()  # numbers of this rank's groups
        self._lock = threading.Lock()

    def agree(self, ranks: Sequence[int], name: str, timeout: float) -> GroupNumber:
        """The number and title of the next group of `ranks`; waits up to `timeout` seconds for its
        first member.

        Raises: BadConfig, BadMessage, NotAuthorised, PeerLost, TooMany.
        """
        if self._signed_store is None:
            raise BadConfig(
                "this session was opened without a store, and groups need one: pass store= to "
                "connect"
            )
        what = f"{name}/{'.'.join(map(str, ranks))}"
        with self._lock:
            self._made[what] += 1
            count = self._made[what]
        told = f"group {name or list(ranks)}"
        if self._rank == ranks[0]:
            number = self._drawn(self._signed_store, f"{what}/{count}")
        else:
            number = self._read(self._signed_store, f"{what}/{count}", told, ranks[0], timeout)
        if number >= PROBES:
            raise TooMany(f"a session has at most {PROBES - 1} groups; connect again")
        self._take(number, told)
        return GroupNumber(number, title(name, count))

    def _drawn(self, signed_store: SignedStore, key: str) -> int:
        for _ in range(len(self._used) + 1):  # several if the store's count was reset
            number = signed_store.draw("drawn")
            if number not in self._used:
                break
        signed_store.write(key, str(number))
        return number

    def _read(
        self, signed_store: SignedStore, key: str, told: str, first: int, timeout: float
    ) -> int:
        """The number that the first member wrote. Raises: BadMessage, NotAuthorised, PeerLost."""
        began = time.monotonic()
        while not signed_store.wait([key], min(began + timeout, time.monotonic() + OWN_LOOK)):
            if time.monotonic() >= began + timeout:
                raise PeerLost(
                    f"{told}: rank {self._rank} waited {time.monotonic() - began:.1f} s for "
                    f"rank {first} to create it in {signed_store.name}: all members must create "
                    f"their groups in the same order"
                )
        text = signed_store.read(key, f"{told}: its number in the job's store")
        if text is None:
            raise StoreLost(f"{told}: {signed_store.name} has lost the number of the group")
        return (
            int(text) if text.isascii() and text.isdigit() and len(text) <= len(str(PROBES)) else 0
        )

    def _take(self, number: int, told: str) -> None:
        """Reserve the number. Raises: BadMessage."""
        with self._lock:
            if number < 1 or number in self._used:
                raise BadMessage(
                    f"{told}: the job's store returned an invalid number, or that of another "
                    "group: another program writes to the store; connect again, with a store "
                    "that no other job uses"
                )
            self._used.add(number)


def title(name: str, count: int) -> str:
    """A name that differs for different names and counts, of at most MAX_TITLE characters."""
    full = name if count == 1 else f"{name} ({count})"
    if len(full) <= MAX_TITLE:
        return full
    digest = blake2b(full.encode("utf-8", "replace"), digest_size=8).hexdigest()
    return f"{full[: MAX_TITLE // 2]}...{digest}"
