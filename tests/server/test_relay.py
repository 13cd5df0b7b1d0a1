"""A store through the process that has one: what a shard without torch sees of the job's."""

import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from torch._C._distributed_c10d import HashStore, PrefixStore

from dlcp_client import lifetimes
from dlcp_client.job.signed_store import ABSENT, SignedStore
from dlcp_client.job.store import Store
from dlcp_client.ps.relay import LineSocket, RelayedStore, StoreRelay

FIRST = "what is said first"


class Pair:
    """Both ends; `ended` is set when the trainer's hears of the end of the other."""

    def __init__(self, store: Store) -> None:
        ours, theirs = socket.socketpair()
        self.ended = threading.Event()
        self.relay = StoreRelay(ours, store, lambda _: self.ended.set())
        self.lines = LineSocket(theirs)
        self.store = RelayedStore(self.lines)
        self.relay.start(FIRST)
        assert self.lines.receive() == FIRST


@pytest.fixture
def job() -> PrefixStore:
    return PrefixStore("job", HashStore())


@pytest.fixture
def pair(job: PrefixStore) -> Iterator[Pair]:
    made = Pair(job)
    yield made
    made.relay.close()
    made.lines.close()


def test_every_call_is_that_of_the_store(pair: Pair, job: PrefixStore) -> None:
    pair.store.set("a", "ä")
    assert job.get("a") == "ä".encode() == pair.store.get("a")
    assert pair.store.add("count", 2) == 2 and pair.store.add("count", 3) == 5
    assert pair.store.check(["a", "count"]) and not pair.store.check(["a", "b"])
    assert pair.store.compare_set("b", "", "new") == b"new"
    assert pair.store.compare_set("b", "other", "newer") == b"new"
    assert pair.store.compare_set("c", ABSENT, ABSENT) == ABSENT.encode()
    pair.store.wait(["a", "b"], timedelta(seconds=10))


def test_bytes_that_are_no_text_come_as_they_are(pair: Pair, job: PrefixStore) -> None:
    job.set("a", b"\xff\x00\xfe")  # type: ignore[arg-type]  # as a stranger may
    assert pair.store.get("a") == b"\xff\x00\xfe"
    assert SignedStore(pair.store).peek("a") == b"\xff\x00\xfe"


def test_a_wait_in_vain_and_an_error_of_the_store_are_runtime_errors(pair: Pair) -> None:
    with pytest.raises(RuntimeError, match="did not appear in the store"):
        pair.store.wait(["never"], timedelta(seconds=0.05))
    pair.store.set("text", "x")
    with pytest.raises(RuntimeError):
        pair.store.add("text", 1)
    assert pair.store.check(["text"]), "it answers still"


def test_threads_ask_in_turn(pair: Pair) -> None:
    threads = [
        threading.Thread(target=lambda: [pair.store.add("n", 1) for _ in range(50)])
        for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert pair.store.add("n", 0) == 200


def test_a_store_of_python_without_a_clone_is_asked_itself() -> None:
    class Plain:
        def check(self, keys: Any, /) -> bool:
            return list(keys) == ["there"]

    pair = Pair(Plain())  # type: ignore[arg-type]
    assert pair.store.check(["there"])
    with pytest.raises(RuntimeError, match="AttributeError"):
        pair.store.set("a", "b")
    pair.relay.close()
    pair.lines.close()


def test_the_end_of_the_shard_is_heard_once(pair: Pair) -> None:
    assert not pair.ended.is_set()
    pair.lines.close()
    assert pair.ended.wait(30)
    pair.relay.close()  # again


def test_who_closes_the_relay_hears_of_no_end_and_the_shard_knows(pair: Pair) -> None:
    assert not pair.store.gone
    pair.relay.close()
    assert pair.store.gone and not pair.ended.is_set()
    with pytest.raises(RuntimeError, match="has ended"):
        pair.store.check(["a"])
    assert pair.relay not in lifetimes._open  # noqa: SLF001
