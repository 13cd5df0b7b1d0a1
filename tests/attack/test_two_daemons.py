"""Two daemons start at once over the file of one that was killed: one serves, one ends by name."""

import itertools
import os
import random
import select
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from dlcpd.contract.errors import AddressUnavailable
from dlcpd.daemon.clients import server
from dlcpd.daemon.clients.access import Access
from tests.checks import Measured

STARTS: Final = 200
LONGEST: Final = 0.005  # seconds between two steps
OWN: Final = Access.configured(())
CALLS: Final = (
    (os, "open"), (os, "stat"), (os, "unlink"), (os, "chmod"), (os, "chown"), (os, "mkdir"),
    (socket.socket, "bind"), (socket.socket, "connect"), (socket.socket, "listen"),
)  # fmt: skip


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name)


def stale(path: Path) -> None:
    """What a killed daemon leaves behind."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        sock.bind(str(path))


def delays(patch: pytest.MonkeyPatch, seed: int) -> None:
    """Put a pause before and after each call that looks at or changes a file or socket."""
    drawn, ended = random.Random(seed), threading.Event()
    most = drawn.choice([0.0, 0.0005, LONGEST])

    def slowed(call: Callable[..., Any]) -> Callable[..., Any]:
        def later(*args: Any, **more: Any) -> Any:
            ended.wait(drawn.uniform(0.0, most))
            try:
                return call(*args, **more)
            finally:
                ended.wait(drawn.uniform(0.0, most))

        return later

    for owner, name in CALLS:
        patch.setattr(owner, name, slowed(getattr(owner, name)))


def starts(path: Path, seed: int, go: int, said: int, stop: int) -> None:
    """In a child: listen at `path` and say how it went; keep what it has until `stop`."""
    os.read(go, 1)
    with pytest.MonkeyPatch.context() as patch:
        delays(patch, seed)
        try:
            listening = server.listen(path, OWN)
        except AddressUnavailable as exc:
            answer = str(exc)
            listening = None
        else:
            answer = "ready"
    os.write(said, answer.encode())
    os.read(stop, 1)
    if listening is not None:
        listening.close()


def both(path: Path, number: int) -> list[str]:
    """What two that start together say."""
    with ExitStack() as undo:

        def pipe() -> tuple[int, int]:
            ends = os.pipe()
            for end in ends:
                undo.callback(os.close, end)
            return ends

        go, stop, answers = pipe(), pipe(), [pipe(), pipe()]
        children = []
        for which, answer in enumerate(answers):
            child = os.fork()
            if not child:
                try:
                    starts(path, 2 * number + which, go[0], answer[1], stop[0])
                finally:
                    os._exit(0)
            children.append(child)
        os.write(go[1], b"go")
        told = []
        for reading, _ in answers:
            assert select.select([reading], [], [], 60.0)[0], "one says nothing"
            told.append(os.read(reading, 1 << 12).decode())
        os.write(stop[1], b"ab")
        for child in children:
            os.waitpid(child, 0)
    return told


@pytest.mark.check(122, f"{STARTS} starts of two daemons at once over a stale socket: one is ready")
def test_one_of_two_daemons_over_a_stale_socket_serves(folder: Path, measured: Measured) -> None:
    path, said = folder / "s.sock", []
    for number in range(STARTS):
        stale(path)
        told = both(path, number)
        assert told.count("ready") == 1, f"start {number}: {told}"
        said += [text for text in told if text != "ready"]
    assert all("another daemon answers" in text and str(path) in text for text in said)
    measured(f"{STARTS} ready, {len(said)} ended by name")


def test_what_a_killed_daemon_locked_is_free(folder: Path) -> None:
    path = folder / "s.sock"
    for _ in itertools.repeat(None, 3):
        child = os.fork()
        if not child:
            server.listen(path, OWN)
            os._exit(0)
        os.waitpid(child, 0)
        assert path.exists()
    listening = server.listen(path, OWN)
    with pytest.raises(AddressUnavailable, match="another daemon answers"):
        server.listen(path, OWN)
    path.unlink()
    with pytest.raises(AddressUnavailable, match="another daemon answers"):  # though its file went
        server.listen(path, OWN)
    listening.close()
    assert not list(folder.iterdir()), "the lock's file goes with the daemon"
