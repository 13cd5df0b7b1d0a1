"""The one class through which everything in a job's store is written and read.

A store asks no client for proof. So each text is signed with the job's secret, for its key and for
the launch of the job, and a reader refuses a text without such a signature: without the secret a
text cannot be made, moved to another key, or brought from an earlier launch. Counts, and whether a
key is there, cannot be signed: ranks use them to be quick and to find free places, and act only on
signed texts. Without a secret the same is read, and nothing is proved.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, TypeVar

from dlcp_client.job.prefix import Prefixed
from dlcp_client.job.secret import JobSecret
from dlcp_client.job.store import Store
from dlcpd.contract.errors import BadMessage, NotAuthorised, PeerLost

T = TypeVar("T")

PURPOSE: Final = "store 1"  # of a signature; the number is that of what is signed, and how
SIGNED: Final = "signed"  # first word of a signed text; an unsigned one is JSON
MAX_SAID: Final = 64 * 1024  # bytes of a text; the longest are errors
MAX_SIGNED: Final = MAX_SAID + 128  # bytes: with the signature
ABSENT: Final = "dlcp: absent"  # what a key that is not there is compared with
PAUSE: Final = 0.05  # seconds after a wait that a store ended early
# What stores raise where they do not answer, or hold what is no count.
ERRORS: Final = (RuntimeError, ValueError, IndexError, OSError)


class StoreLost(PeerLost):
    """The job's store does not answer, or has lost what was written to it."""


@dataclass(frozen=True)
class Sealed:
    """Part `place` of a store. `launch`: what all ranks of this launch know to be its own.

    Raises, from every method: StoreLost where the store does not answer; what a `FileStore` does.
    """

    store: Store
    secret: JobSecret | None = None
    launch: str = ""
    place: str = ""
    name: str = field(init=False)  # of the store, for errors

    def __post_init__(self) -> None:
        store: Any = self.store
        place = self.place
        while isinstance(store, Prefixed):  # a signature is about the whole key
            store, place = store.store, f"{store.prefix}/{place}" if place else store.prefix
        where = getattr(store, "folder", type(store).__name__)
        for name, value in [
            ("store", store),
            ("place", place),
            ("name", f"the job's store ({where})"),
        ]:
            object.__setattr__(self, name, value)

    # --- signed texts ---------------------------------------------------------------------

    def write(self, key: str, text: str, *about: str) -> None:
        """`about`: more that the reader knows, and that the signature is of."""
        full, sealed = self._key(key), self._sealed(key, text, about)
        self._ask(lambda: self.store.set(full, sealed))

    def read(self, key: str, what: str, *about: str) -> str | None:
        """The text of a key; None where it is not there. Never waits.

        Raises: NotAuthorised, BadMessage, which name `what`.
        """
        raw = self.peek(key)
        return None if raw is None else self._opened(raw, key, what, about)

    def settle(self, key: str, text: str, what: str) -> str:
        """Write, unless the key is there; the text that it has. Raises: as `read`."""
        full, sealed = self._key(key), self._sealed(key, text, ())
        return self._opened(
            self._ask(lambda: self.store.compare_set(full, "", sealed)), key, what, ()
        )

    def keeps(self, key: str, text: str, *about: str) -> bool:
        """Whether the store still has what this process wrote."""
        return self.peek(key) == self._sealed(key, text, about).encode()

    # --- hints ----------------------------------------------------------------------------

    def draw(self, key: str) -> int:
        """Add one to a count; the new one. Anybody may have changed it."""
        return self._ask(lambda: self.store.add(self._key(key), 1))

    def count(self, key: str) -> int:
        """Of draws. Anybody may have changed it."""
        return self._ask(lambda: self.store.add(self._key(key), 0))

    def has(self, *keys: str) -> bool:
        """Whether all keys are there."""
        return self._ask(lambda: self.store.check([self._key(key) for key in keys]))

    def wait(self, keys: Sequence[str], until: float) -> bool:
        """Whether all keys are there; waits for them until `until`, monotonic time, or less."""
        full, left = [self._key(key) for key in keys], max(until - time.monotonic(), 0.001)
        try:
            self.store.wait(full, timedelta(seconds=left))
        except ERRORS:  # its time is over, or it does not answer, which `has` would say
            if self.has(*keys):
                return True
            time.sleep(max(min(PAUSE, until - time.monotonic()), 0.0))
            return False
        return True

    def peek(self, key: str) -> bytes | None:
        """What the key has, unchecked. `get` of torch's stores would wait for the key."""
        full = self._key(key)
        try:
            raw = self.store.compare_set(full, ABSENT, ABSENT)
        except ERRORS:  # a store of Python has no compare_set, as torchelastic's for etcd
            return self._ask(lambda: self.store.get(full) if self.store.check([full]) else None)
        return None if raw == ABSENT.encode() else raw

    # --------------------------------------------------------------------------------------

    def _key(self, key: str) -> str:
        return f"{self.place}/{key}" if self.place else key

    def _ask(self, question: Callable[[], T]) -> T:
        """Raises: StoreLost."""
        try:
            return question()
        except ERRORS as exc:
            raise StoreLost(f"{self.name} does not answer: {exc}") from exc

    def _sealed(self, key: str, text: str, about: Sequence[str]) -> str:
        if self.secret is None:
            return text
        return (
            f"{SIGNED} {self.secret.tag(PURPOSE, self.launch, self._key(key), *about, text)} {text}"
        )

    def _opened(self, raw: bytes, key: str, what: str, about: Sequence[str]) -> str:
        """Raises: NotAuthorised, BadMessage."""
        if len(raw) > (MAX_SIGNED if raw.startswith(SIGNED.encode()) else MAX_SAID):
            raise BadMessage(f"{what} has {len(raw)} B, at most {MAX_SAID}")
        try:
            said = raw.decode()
        except UnicodeDecodeError as exc:
            raise BadMessage(f"{what} is no text") from exc
        word, _, rest = said.partition(" ")
        if self.secret is None:
            if word == SIGNED:
                raise NotAuthorised(
                    f"{what} is signed with a job's secret, and this process has none: set the "
                    f"same DLCPD_JOB_SECRET, or DLCPD_JOB_SECRET_FILE, for all ranks"
                )
            return said
        if word != SIGNED:
            raise NotAuthorised(
                f"{what} is not signed: its writer has no DLCPD_JOB_SECRET, or is no rank of this "
                f"job"
            )
        tag, _, text = rest.partition(" ")
        if not self.secret.proves(tag, PURPOSE, self.launch, self._key(key), *about, text):
            raise NotAuthorised(
                f"{what} was not signed for this place, in this launch of the job and with its "
                f"secret: its writer has another DLCPD_JOB_SECRET, or is no rank of this job"
            )
        return text
