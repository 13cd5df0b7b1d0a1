"""The store in a folder: whole values, exact counts, and what it refuses."""

import fcntl
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path

import pytest

from dlcp_client.job.store import Store
from dlcp_client.numpy import file_store
from dlcp_client.numpy.file_store import FileStore
from dlcpd.contract.errors import BadConfig, BadMessage

SOON = timedelta(seconds=0.05)


def test_values_are_what_was_written(tmp_path: Path) -> None:
    store: Store = FileStore(tmp_path / "a" / "b")
    long = "dlcp/group/" + ".".join(map(str, range(256)))
    store.set(long, "one")
    store.set("other", "two")
    store.set(long, "three")
    assert (store.get(long), store.get("other")) == (b"three", b"two")
    assert store.check([long, "other"]) and not store.check([long, "neither"])


def test_counts_are_exact_across_threads_and_objects(tmp_path: Path) -> None:
    stores = [FileStore(tmp_path) for _ in range(4)]
    with ThreadPoolExecutor(4) as pool:
        seen = list(pool.map(lambda i: stores[i % 4].add("count", 1), range(100)))
    assert sorted(seen) == list(range(1, 101))


def test_one_of_two_is_the_first(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    assert store.compare_set("roll", "", "a") == b"a"
    assert store.compare_set("roll", "", "b") == b"a"
    assert store.compare_set("roll", "a", "b") == b"b"


def test_waiting_ends_with_the_value_or_with_the_time(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(store.wait, ["a", "b"], timedelta(seconds=60))
        store.set("a", "1")
        assert not waiting.done()
        FileStore(tmp_path).set("b", "2")
        waiting.result(60)
    with pytest.raises(RuntimeError, match=r"did not appear within 0\.1 s"):
        store.wait(["a", "never"], timedelta(seconds=0.1))
    with pytest.raises(RuntimeError, match="has no key never"):
        store.get("never")


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    with pytest.raises(BadConfig, match=r"others may write to it .* chmod go-w"):
        FileStore(tmp_path)
    tmp_path.chmod(0o1777)  # as /tmp: nobody exchanges what is in it, but all may add to it
    with pytest.raises(BadConfig, match=r"others may write to it .* chmod go-w"):
        FileStore(tmp_path)
    assert FileStore(tmp_path / "new").folder.stat().st_mode & 0o777 == 0o700


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(BadConfig, match=r"file: "):
        FileStore(tmp_path / "file")


def test_a_place_is_taken_once(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.claim(0)
    store.claim(0)  # a second session of the same job
    store.claim(1)
    with pytest.raises(BadConfig, match="rank 1 has already connected with it"):
        FileStore(tmp_path).claim(1)


def test_what_is_no_count_or_too_long_is_refused(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    store.set("count", "x")
    with pytest.raises(BadMessage, match="count is not a count"):
        store.add("count", 1)
    store.set("long", "x" * (file_store.MAX_VALUE + 1))
    with pytest.raises(BadMessage, match="has more than"):
        store.get("long")


def test_a_lock_that_nobody_lets_go_of_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_store, "LOCK_TIMEOUT", SOON.total_seconds())
    store = FileStore(tmp_path)
    store.set("a", "1")
    held = os.open(tmp_path / "lock", os.O_RDWR)
    fcntl.flock(held, fcntl.LOCK_EX)
    with pytest.raises(BadConfig, match=r"held the lock for 0\.05 s"):
        store.set("a", "2")
    os.close(held)
    store.set("a", "2")
    assert store.get("a") == b"2"
