"""Relays the job's store to a process without torch, through the process that started it.

The stores of torch.distributed need torch, which a shard does not have. Questions and answers are
lines of JSON, one question at a time.
"""

import json
import select
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from dlcp_client import lifetimes
from dlcp_client.job.signed_store import ERRORS
from dlcp_client.job.store import Store, look_until
from dlcpd.contract.errors import DlcpError

CHUNK: Final = 1 << 16  # bytes per read; the longest text of a store
_BYTES: Final = ("get", "compare_set")  # calls whose result is bytes


class LineSocket:
    """Lines of text through a socket, which `close` closes."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        # Not sock.makefile: it holds its lock while it reads, and a forked child could not close
        # it.
        self._read = bytearray()

    def send(self, text: str) -> None:
        """Send a line. Raises: OSError."""
        self.socket.sendall(text.encode() + b"\n")

    def receive(self) -> str:
        """Receive a line. Raises: OSError; EOFError if the other end is closed."""
        while b"\n" not in self._read:
            more = self.socket.recv(CHUNK)
            if not more:
                raise EOFError
            self._read += more
        line, _, rest = self._read.partition(b"\n")
        self._read = rest
        return line.decode()

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


class RelayedStore:
    """A Store whose calls go through `lines`. A call that fails, also because the other process has
    ended, raises a RuntimeError."""

    def __init__(self, lines: LineSocket) -> None:
        self._lines = lines
        self._asking = threading.Lock()

    @property
    def gone(self) -> bool:
        """Whether the other process has ended, or closed its end."""
        if not self._asking.acquire(blocking=False):
            return False  # a call is in progress, and will fail
        try:
            return bool(select.select([self._lines.socket], [], [], 0)[0])  # no call is open
        except (OSError, ValueError):  # the socket is closed here
            return True
        finally:
            self._asking.release()

    def set(self, key: str, value: str, /) -> None:
        """Write."""
        self._ask("set", key, value)

    def get(self, key: str, /) -> bytes:
        """Read an existing key."""
        return _bytes(self._ask("get", key))

    def add(self, key: str, amount: int, /) -> int:
        """Add to a counter, which begins at 0. Returns the new value."""
        return int(self._ask("add", key, amount))

    def wait(self, keys: Sequence[str], timeout: timedelta, /) -> None:
        """Block until all `keys` exist. Polls, so that other threads can call meanwhile."""
        late = f"the keys did not appear in the store within {timeout.total_seconds():.1f} s"
        look_until(lambda: self.check(keys), timeout, late)

    def check(self, keys: Sequence[str], /) -> bool:
        """Whether all `keys` exist."""
        return bool(self._ask("check", list(keys)))

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        """Write if the key holds `expected` or does not exist. Returns its new value."""
        return _bytes(self._ask("compare_set", key, expected, desired))

    def _ask(self, call: str, *arguments: Any) -> Any:
        with self._asking:
            try:
                self._lines.send(json.dumps([call, *arguments]))
                done, value = json.loads(self._lines.receive())
            except (OSError, EOFError) as exc:
                raise RuntimeError("the trainer that relays it has ended") from exc
        if not done:
            raise RuntimeError(value)
        return value


class StoreRelay:
    """Answers calls at `sock` from `store`, on a thread, until the process at the other end has
    ended. It then calls `ended` with the thread's store. The relay ends before the interpreter: a
    thread in a store of torch would then abort the process."""

    def __init__(self, sock: socket.socket, store: Store, ended: Callable[[Store], object]) -> None:
        self._lines, self._ended = LineSocket(sock), ended
        self._store = _own(store)
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="dlcp-store-relay", daemon=True)

    def start(self, first: str) -> None:
        """Send `first`, then answer calls."""
        lifetimes.opened(self)
        with suppress(OSError):  # the other end is gone, and `ended` handles it
            self._lines.send(first)
        self._thread.start()

    def close(self) -> None:
        """Stop answering; `ended` is not called."""
        self._closing = True
        with suppress(OSError):  # already closed
            self._lines.socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()

    def abandon(self) -> None:
        """In a forked child: the relay belongs to the parent."""
        self._lines.close()

    def _run(self) -> None:
        with suppress(OSError, EOFError):
            while True:
                question = json.loads(self._lines.receive())
                self._lines.send(json.dumps(_answer(self._store, *question)))
        if not self._closing:
            self._ended(self._store)
        lifetimes.closed(self)
        self._lines.close()


def _own(store: Any) -> Any:
    """A store with its own connection: a waiting thread locks that of a torch store."""
    try:
        return store.clone()
    except (AttributeError, *ERRORS):  # not every store has `clone`
        return store


def _answer(store: Any, call: str, *arguments: Any) -> tuple[bool, Any]:
    try:
        value = getattr(store, call)(*arguments)
    except (*ERRORS, AttributeError, DlcpError) as exc:
        return False, f"{type(exc).__name__}: {exc}"
    return True, value.decode(errors="surrogateescape") if call in _BYTES else value


def _bytes(value: str) -> bytes:
    return value.encode(errors="surrogateescape")
