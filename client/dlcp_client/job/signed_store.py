"""The only class that reads and writes a job's store.

A store does not authenticate clients. So each text is signed with the job's secret, for its key and
for the launch of the job, and a reader refuses any other: without the secret a text cannot be
forged, moved to another key, or replayed from an earlier launch. Counts and the existence of keys
cannot be signed: ranks use them as hints, and act only on signed texts. Without a secret, texts are
read without verification.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, TypeVar

from dlcp_client.job.prefixed_store import PrefixedStore
from dlcp_client.job.secret import JobSecret
from dlcp_client.job.store import Store
from dlcpd.contract.errors import BadMessage, NotAuthorised, PeerLost

T = TypeVar("T")

PURPOSE: Final = "store 1"  # of a signature; the number is the version of the signed format
SIGNED: Final = "signed"  # first word of a signed text; an unsigned one is JSON
MAX_SAID: Final = 64 * 1024  # bytes of a text; the longest ones are errors
MAX_SIGNED: Final = MAX_SAID + 128  # bytes: with the signature
ABSENT: Final = "dlcp: absent"  # compared with a key to test whether it exists
PAUSE: Final = 0.05  # seconds after a wait that a store ended early
# Errors of stores that do not answer, or whose value is no count.
ERRORS: Final = (RuntimeError, ValueError, IndexError, OSError)


class StoreLost(PeerLost):
    """The job's store does not answer, or has lost data that was written to it."""


@dataclass(frozen=True)
class SignedStore:
    """Part `place` of a store. `launch`: identifies this launch to all its ranks.

    Raises, from every method: StoreLost if the store does not answer; the errors of a `FileStore`.
    """

    store: Store
    secret: JobSecret | None = None
    launch: str = ""
    place: str = ""
    name: str = field(init=False)  # of the store, for errors

    def __post_init__(self) -> None:
        store: Any = self.store
        place = self.place
        while isinstance(store, PrefixedStore):  # a signature covers the whole key
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
        """Write `text`, signed. `about`: further signed context that the reader knows."""
        full, signed = self._key(key), self._signed(key, text, about)
        self._ask(lambda: self.store.set(full, signed))

    def read(self, key: str, what: str, *about: str) -> str | None:
        """The text of a key; None if it does not exist. Never waits.

        Raises: NotAuthorised, BadMessage, which name `what`.
        """
        raw = self.peek(key)
        return None if raw is None else self._opened(raw, key, what, about)

    def settle(self, key: str, text: str, what: str) -> str:
        """Write unless the key exists. Returns its text. Raises: as `read`."""
        full, signed = self._key(key), self._signed(key, text, ())
        return self._opened(
            self._ask(lambda: self.store.compare_set(full, "", signed)), key, what, ()
        )

    def keeps(self, key: str, text: str, *about: str) -> bool:
        """Whether the store still has the text that this process wrote."""
        return self.peek(key) == self._signed(key, text, about).encode()

    # --- hints ----------------------------------------------------------------------------

    def draw(self, key: str) -> int:
        """Increment a counter. Returns its new value, which other clients may have changed."""
        return self._ask(lambda: self.store.add(self._key(key), 1))

    def count(self, key: str) -> int:
        """The value of a counter, which other clients may have changed."""
        return self._ask(lambda: self.store.add(self._key(key), 0))

    def has(self, *keys: str) -> bool:
        """Whether all keys exist."""
        return self._ask(lambda: self.store.check([self._key(key) for key in keys]))

    def wait(self, keys: Sequence[str], until: float) -> bool:
        """Whether all keys exist; waits for them until `until`, monotonic time, or less."""
        full, left = [self._key(key) for key in keys], max(until - time.monotonic(), 0.001)
        try:
            self.store.wait(full, timedelta(seconds=left))
        except ERRORS:  # timeout, or no answer, which `has` would raise
            if self.has(*keys):
                return True
            time.sleep(max(min(PAUSE, until - time.monotonic()), 0.0))
            return False
        return True

    def peek(self, key: str) -> bytes | None:
        """The value of the key, unverified. `get` of torch's stores would wait for the key."""
        full = self._key(key)
        try:
            raw = self.store.compare_set(full, ABSENT, ABSENT)
        except ERRORS:  # a Python store without compare_set, as torchelastic's for etcd
            return self._ask(lambda: self.store.get(full) if self.store.check([full]) else None)
        return None if raw == ABSENT.encode() else raw

    # --------------------------------------------------------------------------------------

    def _key(self, key: str) -> str:
        return f"{self.place}/{key}" if self.place else key

    def _ask(self, question: Callable[[], T]) -> T:
        """The store's answer. Raises: StoreLost."""
        try:
            return question()
        except ERRORS as exc:
            raise StoreLost(f"{self.name} does not answer: {exc}") from exc

    def _signed(self, key: str, text: str, about: Sequence[str]) -> str:
        if self.secret is None:
            return text
        return (
            f"{SIGNED} {self.secret.tag(PURPOSE, self.launch, self._key(key), *about, text)} {text}"
        )

    def _opened(self, raw: bytes, key: str, what: str, about: Sequence[str]) -> str:
        """The verified text. Raises: NotAuthorised, BadMessage."""
        if len(raw) > (MAX_SIGNED if raw.startswith(SIGNED.encode()) else MAX_SAID):
            raise BadMessage(f"{what} has {len(raw)} B, and the limit is {MAX_SAID} B")
        try:
            said = raw.decode()
        except UnicodeDecodeError as exc:
            raise BadMessage(f"{what} is not text") from exc
        word, _, rest = said.partition(" ")
        if self.secret is None:
            if word == SIGNED:
                raise NotAuthorised(
                    f"{what} is signed with the secret of a job, and this process has no "
                    "secret: set the same DLCPD_JOB_SECRET, or DLCPD_JOB_SECRET_FILE, for all "
                    "ranks"
                )
            return said
        if word != SIGNED:
            raise NotAuthorised(
                f"{what} is not signed: its writer has no DLCPD_JOB_SECRET, or is not a rank "
                "of this job"
            )
        tag, _, text = rest.partition(" ")
        if not self.secret.proves(tag, PURPOSE, self.launch, self._key(key), *about, text):
            raise NotAuthorised(
                f"{what} has a signature for another key, launch or secret: its writer has "
                "another DLCPD_JOB_SECRET, or is not a rank of this job"
            )
        return text
