"""How the members of a group agree on its number: through the job's store."""

import threading
import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Final

from dlcp_client.job.store import Store
from dlcpd.contract.errors import BadConfig, PeerLost, TooMany
from dlcpd.contract.messages import MAX_GROUPS

ROOT: Final = "dlcp/group"


class GroupNumbers:
    """The first member of a group draws its number, and the others read it.

    The n-th group of the same ranks and name is the same one on all of its members.
    """

    def __init__(self, store: Store | None, job: str, rank: int) -> None:
        self._store, self._job, self._rank = store, job, rank
        self._made: Counter[str] = Counter()
        self._lock = threading.Lock()

    def number(self, ranks: Sequence[int], name: str, timeout: float) -> int:
        """Of the next group of `ranks`; waits at most `timeout` seconds for its first member.

        Raises: BadConfig, PeerLost, TooMany.
        """
        if self._store is None:
            raise BadConfig("this session was opened without a store, which groups need")
        what = f"{name}/{'.'.join(map(str, ranks))}"
        with self._lock:
            self._made[what] += 1
            key = f"{ROOT}/{self._job}/{what}/{self._made[what]}"
        if self._rank == ranks[0]:
            drawn = self._store.add(f"{ROOT}/{self._job}/drawn", 1)
            self._store.set(key, str(drawn))
        else:
            self._await(key, ranks, name, timeout)
        number = int(self._store.get(key))
        if number >= MAX_GROUPS:
            raise TooMany(f"{MAX_GROUPS - 1} groups, the most of a session; connect again")
        return number

    def _await(self, key: str, ranks: Sequence[int], name: str, timeout: float) -> None:
        assert self._store is not None  # noqa: S101  # `number` looked
        began = time.monotonic()
        try:
            self._store.wait([key], timedelta(seconds=max(timeout, 0.001)))
        except RuntimeError as exc:  # the store's own error is one
            raise PeerLost(
                f"group {name or list(ranks)}: rank {self._rank} waited "
                f"{time.monotonic() - began:.1f} s in vain for rank {ranks[0]} to make it: all "
                f"members must call for the group, in the same order"
            ) from exc
