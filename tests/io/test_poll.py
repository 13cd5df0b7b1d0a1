"""A pause lets datagrams wait, and ends where another source can be read."""

import select
import socket
import time
from collections import Counter
from collections.abc import Iterator
from errno import EBADF

import pytest

from dlcpd.io import poll as poll_module
from dlcpd.io.config import EngineConfig
from dlcpd.io.engine import Engine
from dlcpd.io.poll import Poll

Pair = tuple[socket.socket, socket.socket]
LONG = 60.0  # seconds: a test that waits for so long fails


@pytest.fixture
def pairs() -> Iterator[list[Pair]]:
    made = [socket.socketpair() for _ in range(2)]
    yield made
    for pair in made:
        for each in pair:
            each.close()


def watching(pairs: list[Pair]) -> Poll:
    """The second source pauses."""
    made = Poll(Counter())
    made.watch(pairs[0][0], lambda *_: None)
    made.watch(pairs[1][0], lambda *_: None, pauses=True)
    return made


def test_a_source_that_pauses_does_not_end_a_pause(pairs: list[Pair]) -> None:
    poll = watching(pairs)
    pairs[1][1].send(b"x")
    begin = time.monotonic()
    poll.pause(0.02)
    assert time.monotonic() - begin >= 0.02
    assert len(list(poll.wait(LONG))) == 1, "the wait that follows is for it too"


def test_another_source_ends_a_pause(pairs: list[Pair]) -> None:
    poll = watching(pairs)
    pairs[0][1].send(b"x")
    begin = time.monotonic()
    poll.pause(LONG)
    assert time.monotonic() - begin < LONG
    assert len(list(poll.wait(LONG))) == 1


def test_a_source_that_is_forgotten_ends_no_pause(pairs: list[Pair]) -> None:
    poll = watching(pairs)
    poll.forget(pairs[0][0])
    pairs[0][1].send(b"x")
    begin = time.monotonic()
    poll.pause(0.02)
    assert time.monotonic() - begin >= 0.02


def test_no_pause_where_the_kernel_cannot(
    pairs: list[Pair], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A failed call is counted, and descriptors beyond select's are not given to it."""
    poll, calls = watching(pairs), list[float]()

    def refused(*_: object) -> None:
        calls.append(0.0)
        raise OSError(EBADF, "injected")

    with monkeypatch.context() as patched:
        patched.setattr(select, "select", refused)
        poll.pause(LONG)
        assert len(calls) == 1
        patched.setattr(poll_module, "MOST_SELECTED", pairs[0][0].fileno())
        poll.pause(LONG)
        assert len(calls) == 1


@pytest.fixture
def engine() -> Iterator[Engine]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        made = Engine(EngineConfig(host="a", paths=(("127.0.0.1", 0),)), ours)
        yield made
        made.close()


@pytest.mark.parametrize(
    ("wait", "due", "paused"),
    [(0.0, -1.0, []), (1e-3, -1.0, [1e-3]), (1e-3, 5e-4, [5e-4]), (1e-3, 0.0, [])],
    ids=["nothing waits", "no timer", "a timer is due before", "there is more to do"],
)
def test_an_engine_pauses_while_data_may_wait_and_nothing_else_is_due(
    engine: Engine,
    monkeypatch: pytest.MonkeyPatch,
    wait: float,
    due: float,
    paused: list[float],
) -> None:
    """It does so before each wake-up of `run`."""
    seen: list[float] = []
    monkeypatch.setattr(type(engine.endpoint), "pause", lambda _endpoint, _now: wait)
    monkeypatch.setattr(engine, "timeout", lambda _now: due)
    monkeypatch.setattr(Poll, "pause", lambda _poll, seconds: seen.append(seconds))
    monkeypatch.setattr(engine, "step", lambda: engine._stop(0.0))  # noqa: SLF001  # ends `run`
    engine.run()
    assert seen == paused


def test_sockets_pause_and_control_does_not(engine: Engine) -> None:
    poll = engine._poll  # noqa: SLF001  # the engine's own
    ends = poll._ends_pause  # noqa: SLF001  # likewise
    assert ends == {engine.control.fileno()}
    assert all(path.fileno() in poll._handlers for path in engine.network.paths)  # noqa: SLF001
