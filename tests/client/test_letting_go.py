"""An error that is kept somewhere keeps no memory of the arena: a session that ends gives it back
at once, and not when the garbage collector comes by."""

import gc
import os
import socket
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import HashStore

from dlcp_client.job.rendezvous import Member
from dlcp_client.joining.data_path import prove
from dlcp_client.session import Session
from dlcpd.contract.errors import BadTensor, DeadlineExceeded, DlcpError
from dlcpd.contract.policy import exact
from dlcpd.ipc.seqpacket import send_now
from tests.client.stand_in import StandIn


def arenas() -> int:
    """Descriptors of memfds that this process has open; a mapping has one of its own."""
    found = 0
    for entry in os.scandir("/proc/self/fd"):
        try:
            found += os.readlink(entry.path).startswith("/memfd:arena")
        except FileNotFoundError:  # the folder's own
            continue
    return found


@pytest.fixture
def alone() -> Iterator[StandIn]:
    """A session of one rank, and no garbage collector."""
    gc.collect()
    gc.disable()
    world = StandIn(1, arena_bytes=16 << 20)
    world.answering = False
    yield world
    world.close()
    gc.enable()


def let_go(world: StandIn, fails: Callable[[Session[Any]], object], kind: type[DlcpError]) -> None:
    """The call fails; its error and all else is dropped, and the session closed."""
    before = arenas()
    with pytest.raises(kind):
        fails(world.sessions[0])
    world.sessions[0].close()
    assert arenas() == before - 2, "the descriptor and the mapping"


def test_a_data_path_that_could_not_be_proved(alone: StandIn) -> None:
    def fails(session: Session[Any]) -> None:
        member = Member(HashStore(), 0, 1)
        threading.Timer(0.05, alone.fail, (0, "internal", "a bug")).start()
        prove(session, member, 1e12)

    let_go(alone, fails, DlcpError)


def test_a_result_for_which_there_is_no_room_any_more(alone: StandIn) -> None:
    def fails(session: Session[Any]) -> None:
        tensor = torch.ones(4)
        work = session.all_reduce(tensor)
        tensor.resize_(5)
        alone.answer(1)
        work.wait()

    let_go(alone, fails, BadTensor)


def test_an_operation_that_one_engine_of_two_takes(alone: StandIn) -> None:
    second, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def fails(session: Session[Any]) -> None:
        def late(lane: socket.socket, until: float) -> None:
            raise DeadlineExceeded("late")

        while send_now(second, b"x"):
            pass
        lanes = session._connection.lanes  # noqa: SLF001
        lanes._wait_writable = late  # type: ignore[method-assign]  # noqa: SLF001
        lanes._lanes = (*lanes._lanes, second)  # noqa: SLF001
        session._connection.engines.count = 2  # noqa: SLF001
        session.all_reduce(torch.ones(1 << 20), policy=exact(deadline=5.0))

    let_go(alone, fails, DeadlineExceeded)
    far.close()
