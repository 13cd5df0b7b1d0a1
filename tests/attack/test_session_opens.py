"""What a new session brings or lacks ends that session by name, and nothing else."""

import contextlib
import os
import resource
import socket
from collections.abc import Callable, Iterator

import psutil
import pytest

from dlcpd.io import commands, control_events
from dlcpd.io.clients.memory import create_arena
from dlcpd.io.config import EngineConfig
from tests.attack.test_engine_survives import works
from tests.io.engines import FORKED, Job, token

Jobs = Callable[[str], Job]
LARGE, ROOM = 4 << 30, 1 << 30  # bytes


@pytest.fixture
def job() -> Iterator[Jobs]:
    jobs: list[Job] = []

    def start(address: str) -> Job:
        def configure(rank: int) -> EngineConfig:
            return EngineConfig(host=f"host{rank}", paths=((address, 0),))

        jobs.append(Job(2, configure, FORKED))
        return jobs[-1]

    yield start
    for started in jobs:
        started.close()


def second_session(job: Job, host: str = "", arena_bytes: int = 1 << 20) -> control_events.Event:
    """Open a session of another job at rank 0's engine; what it says about it."""
    arena = create_arena(arena_bytes)
    lane, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    endpoints = [commands.UdpAddress(host, 9)] if host else job.endpoints[1]
    peer = commands.EnginePeer(1, "host1", token(0, 1, 2), token(1, 0, 2), endpoints)
    with lane, theirs:
        command = commands.OpenSession(2, "other", 0, 2, arena_bytes, [peer])
        job.engines[0].send(command, [arena, theirs.fileno()])
        os.close(arena)
        return job.engines[0].receive()


def limited(job: Job, what: int, value: int) -> contextlib.AbstractContextManager[None]:
    """Rank 0's engine may have no more than that."""
    process = psutil.Process(job.engines[0].process.pid)

    @contextlib.contextmanager
    def limit() -> Iterator[None]:
        before = process.rlimit(what)
        process.rlimit(what, (value, before[1]))
        yield
        process.rlimit(what, before)

    return limit()


def descriptors(job: Job) -> set[int]:
    """That rank 0's engine has open."""
    return set(map(int, os.listdir(f"/proc/{job.engines[0].process.pid}/fd")))


def ended_by(event: control_events.Event, code: str, *words: str) -> None:
    assert isinstance(event, control_events.SessionEnded), event
    assert (event.session, event.code, event.trace) == (2, code, "")
    assert all(word in event.text for word in words), event.text


@pytest.mark.check(17, "a peer's address that this host cannot send to: a named join error")
@pytest.mark.parametrize(
    ("mine", "theirs"),
    [("::1", "fe80::1%nowhere0"), ("127.0.0.1", "fd00::1"), ("::1", "10.0.0.1")],
)
def test_a_peers_address_that_cannot_be_sent_to(job: Jobs, mine: str, theirs: str) -> None:
    started = job(mine)
    ended_by(second_session(started, theirs), "address_unavailable", "rank 1 on host1", theirs)
    works(started.ranks, 1)
    assert list(started.engines[0].report()["sessions"]) == ["1"]


@pytest.mark.check(2, "no address space for an arena, or no descriptor, as a session opens")
def test_no_room_for_an_arena(job: Jobs) -> None:
    started = job("127.0.0.1")
    used = psutil.Process(started.engines[0].process.pid).memory_info().vms
    with limited(started, resource.RLIMIT_AS, used + ROOM):
        ended_by(second_session(started, arena_bytes=LARGE), "arena_full", str(LARGE))
    works(started.ranks, 1)


@pytest.mark.check(2, "no address space for an arena, or no descriptor, as a session opens")
@pytest.mark.parametrize(
    ("left", "code"),
    [(0, "too_many"), (1, "too_many"), (2, "arena_full")],  # mmap keeps one of its own
)
def test_no_descriptor_left(job: Jobs, left: int, code: str) -> None:
    started = job("127.0.0.1")
    works(started.ranks, 1)
    before = descriptors(started)
    free = [number for number in range(max(before) + 8) if number not in before]
    with limited(started, resource.RLIMIT_NOFILE, free[left]):
        ended_by(second_session(started), code)
        works(started.ranks, 2)
    assert descriptors(started) == before
