"""Whoever can write the job's store: what it takes to become a rank of a job (H4)."""

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec import structs
from torch._C._distributed_c10d import HashStore, Store, TCPStore

from dlcp_client import Session, connect
from dlcp_client.environment import Environment
from dlcpd.contract.errors import NotAuthorised
from dlcpd.contract.messages import Joined
from dlcpd.daemon.config.effective import default_address
from tests.checks import Measured
from tests.client.real import TIMEOUT, each_rank
from tests.daemon.kit import Client, Daemon, configuration, joins

SECRET, OTHER = "0123456789abcdef" * 2, "fedcba9876543210" * 2
PROOF, GUESS = "p" * 64, "g" * 64

Launch = Callable[[list[Store], list[str]], list[Any]]


@pytest.fixture
def launch(monkeypatch: pytest.MonkeyPatch) -> Launch:
    """connect() of two ranks, each with a secret of its own; the sessions, or errors instead."""
    mine, read = threading.local(), Environment.read
    monkeypatch.setattr(
        "dlcp_client.joining.sessions.Environment.read",
        lambda: replace(read(), secret=mine.secret, master="localhost"),
    )

    def run(stores: list[Store], secrets: list[str]) -> list[Any]:
        def rank(number: int) -> Session:
            mine.secret = secrets[number]
            return connect(stores[number], number, 2, timeout=TIMEOUT, arena_bytes=1 << 20)

        return each_rank(rank)

    return run


def close(sessions: list[Any]) -> None:
    for session in sessions:
        assert isinstance(session, Session), session
        session.close()


@pytest.mark.check(8, "introductions: who knows the store's address, and no secret, is refused")
@pytest.mark.parametrize("guess", ["", OTHER], ids=["none", "a guess"])
def test_a_stranger_in_the_store_becomes_no_rank(
    launch: Launch, guess: str, measured: Measured
) -> None:
    """It knows where the store is, and how ranks behave; rank 0 has a secret."""
    store = TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
    stranger = TCPStore("127.0.0.1", store.port, is_master=False)
    errors = launch([store, stranger], [SECRET, guess])
    assert all(isinstance(error, NotAuthorised) for error in errors), errors
    assert "the entry of rank 1 in the job's store" in str(errors[0])
    assert SECRET not in "".join(map(str, errors))
    measured(f"rank 0 is told: {str(errors[0])[:90]}...")


@pytest.mark.executed
@pytest.mark.check(8, "ranks with the secret train; it is on no command line and in no child")
def test_ranks_with_the_secret_join_and_nobody_else_learns_it(
    launch: Launch,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    measured: Measured,
) -> None:
    monkeypatch.setenv("DLCPD_JOB_SECRET", SECRET)
    store = HashStore()
    sessions = launch([store, store], [SECRET, SECRET])
    tensors = [torch.full((1000,), rank + 1.0) for rank in range(2)]
    for work in [s.all_reduce(t) for s, t in zip(sessions, tensors, strict=True)]:
        work.wait()
    assert all((tensor == 3).all() for tensor in tensors)
    looked = 0
    for session in sessions:
        for pid in (session.daemon_pid, *children(session.daemon_pid)):
            for what in ("cmdline", "environ"):
                assert SECRET.encode() not in Path(f"/proc/{pid}/{what}").read_bytes()
                looked += 1
    assert looked == 8
    close(sessions)
    assert all(SECRET not in text for text in capfd.readouterr())
    assert all(SECRET.encode() not in store.get(key) for key in store_keys(store))
    measured(f"{looked} files of /proc, the store and what was printed do not have it")


def children(pid: int) -> list[int]:
    return [int(n) for n in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def store_keys(store: Store) -> list[str]:
    subjects = ("job", "joined", "data path")
    keys = [f"dlcp/{each}/{n}/{rank}" for each in subjects for n in (1, 2) for rank in (0, 1)]
    found = [key for key in keys if store.check([key])]
    assert len(found) == 8, found
    return found


@pytest.mark.check(8, "introductions of an earlier launch of the same job are refused")
def test_a_replayed_introduction_is_refused(
    launch: Launch, monkeypatch: pytest.MonkeyPatch, measured: Measured
) -> None:
    """Somebody recorded the store when rank 1 was there, and plays it again without rank 1."""
    before = HashStore()
    close(launch([before, before], [SECRET, SECRET]))
    store = HashStore()
    for number in (1, 2):
        key = f"dlcp/job/{number}/1"
        store.set(key, before.get(key).decode())
    began = time.monotonic()
    monkeypatch.undo()
    monkeypatch.setenv("DLCPD_JOB_SECRET", SECRET)
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    with pytest.raises(
        NotAuthorised,
        match="the entry of rank 1 in the job's store has a signature for another key",
    ):
        connect(store, 0, 2, timeout=TIMEOUT)
    measured(f"named after {time.monotonic() - began:.1f} s")


# --- at the daemons ------------------------------------------------------------------------------


@pytest.fixture
def elsewhere() -> str:
    address = default_address()
    if address == "127.0.0.1":
        pytest.skip("this host has no address but loopback's")
    return address


def pair_joins(clients: list[Client], proofs: list[str]) -> None:
    requests = joins("job", [client.greet() for client in clients])
    for client, request, proof in zip(clients, requests, proofs, strict=True):
        client.send(structs.replace(request, proof=proof))


def warnings(daemon: Daemon) -> list[Any]:
    return [event for event in daemon.events if event["event"] == "peers_unproved"]


@pytest.mark.check(8, "without a secret, beyond loopback: a warning, once a job, and in the status")
def test_without_a_secret_there_is_a_warning(
    tmp_path: Path, elsewhere: str, measured: Measured
) -> None:
    remote = configuration(tmp_path, "host-b", elsewhere)
    with Daemon(configuration(tmp_path)) as a, Daemon(remote) as b:
        assert b.wait_for("any_key")["level"] == "warning"
        assert not [event for event in a.events if event["event"] == "any_key"], "on loopback"
        with a.client() as first, a.client() as second, b.client() as third:
            clients = [first, second, third]
            pair_joins(clients, ["", "", ""])
            for client in clients:
                client.expect(Joined)
            [said] = warnings(a)
            assert said["level"] == "warning" and "DLCPD_JOB_SECRET" in said["text"]
            assert first.status()["sessions"][0]["proof"] == "the job's store alone"
        with a.client() as first, b.client() as third:
            pair_joins([first, third], [PROOF, PROOF])
            for client in (first, third):
                client.expect(Joined)
            assert first.status()["sessions"][0]["proof"] == "the job's secret"
        assert len(warnings(a)) == 1
    measured(said["text"])


@pytest.mark.check(8, "the same where the operator refuses such jobs")
def test_jobs_without_a_proof_can_be_refused(tmp_path: Path, elsewhere: str) -> None:
    strict = configuration(tmp_path, more='[security]\nunproved = "refuse"\n')
    remote = configuration(tmp_path, "host-b", elsewhere)
    with Daemon(strict) as a, Daemon(remote) as b, a.client() as first, b.client() as second:
        pair_joins([first, second], ["", ""])
        assert "docs/security.md" in first.refused("not_authorised")
        assert first.counters()["refused_not_authorised"] == 1


@pytest.mark.check(8, "a user of a peer's daemon who takes a rank's place there is found out")
@pytest.mark.parametrize("squatters", ["", GUESS], ids=["no secret", "a guess"])
def test_who_takes_a_place_at_a_shared_daemon_is_found_out(tmp_path: Path, squatters: str) -> None:
    """The daemon is the right one, and its key too; its client is another job's."""
    remote = configuration(tmp_path, "host-b", "127.0.0.2")
    with (
        Daemon(configuration(tmp_path)) as a,
        Daemon(remote) as b,
        a.client() as rank,
        b.client() as squatter,
    ):
        pair_joins([rank, squatter], [PROOF, squatters])
        text = rank.refused("not_authorised")
        assert "rank 1 on host-b" in text and "does not know the secret" in text
        squatter.refused("not_authorised")
        assert PROOF not in a.text + b.text + str(rank.status()) + str(squatter.status())
