"""What goes wrong under operations on tensors of a device: each has a name, and nothing hangs."""

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from dlcp_client import exact
from dlcp_client.arena import submitter
from dlcp_lab.device import fake
from dlcp_lab.device.fake import FakeDevice
from dlcpd.contract.errors import (
    ArenaFull,
    BadTensor,
    DaemonLost,
    DeviceFailed,
    DlcpError,
    PeerLost,
    SessionClosed,
)
from tests.client.device.conftest import ARENA
from tests.client.device.engines import reduce_all
from tests.client.stand_in import StandIn

# torch waits for a Future in C++, where no signal is looked at: only a thread can end a hang.
pytestmark = pytest.mark.timeout(60, method="thread")


def failures(world: StandIn, device: FakeDevice, cause: Callable[[], None]) -> list[Exception]:
    """What two works, waited for or with a Future, raise after `cause`."""
    world.answering = False
    tensors = [device.tensor(torch.ones(4)) for _ in range(2)]
    first, second = reduce_all(world, tensors)
    future = second.then(lambda t: t)
    world.wait_for(1)
    cause()
    found: list[Exception] = []
    for wait in (first.wait, future.wait):
        with pytest.raises((DlcpError, RuntimeError)) as caught:
            wait()
        found.append(caught.value)
    return found


def test_a_lost_peer_is_named(world: StandIn, device: FakeDevice) -> None:
    first, second = failures(world, device, lambda: world.fail(0, "peer_lost", "rank 1 is silent"))
    assert isinstance(first, PeerLost)
    assert "PeerLost: rank 1 is silent" in str(second)


def test_the_end_of_the_daemon_is_named(world: StandIn, device: FakeDevice) -> None:
    def end() -> None:
        for far in world.far:
            far.close()

    first, second = failures(world, device, end)
    assert isinstance(first, DaemonLost)
    assert "DaemonLost" in str(second)


def test_what_waits_for_the_device_ends_with_the_session(
    world: StandIn, device: FakeDevice
) -> None:
    computed = threading.Event()
    tensor = device.tensor(torch.ones(4))
    device.launch(computed.wait, writes=[tensor])
    work = world.sessions[0].all_reduce(tensor)
    future = work.then(lambda t: t)
    world.fail(0, "peer_lost", "rank 1 is silent")
    with pytest.raises(PeerLost):
        work.wait()
    with pytest.raises(RuntimeError, match="PeerLost"):
        future.wait()
    computed.set()


def test_a_kernel_that_does_not_end_is_named_at_the_deadline(
    world: StandIn, device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlcp_client.operations.submission.MARGIN", 0.0)
    computed = threading.Event()
    tensor = device.tensor(torch.ones(4))
    device.launch(computed.wait, writes=[tensor])
    work = world.sessions[0].all_reduce(tensor, policy=exact(deadline=0.05))
    with pytest.raises(DlcpError, match="did not come from the device: a kernel does not end"):
        work.wait()
    computed.set()


def test_a_tensor_larger_than_the_arena_is_named(world: StandIn, device: FakeDevice) -> None:
    session = world.sessions[0]
    given = device.tensor(torch.ones(ARENA // 4))
    output = device.tensor(torch.ones(2 * ARENA // 4))
    work = session.world.all_gather(output, given)
    future = work.then(lambda t: t)
    with pytest.raises(ArenaFull, match="has no room for"):
        work.wait()
    with pytest.raises(RuntimeError, match="ArenaFull"):
        future.wait()
    with pytest.raises(ArenaFull):  # its peers count that operation, so this rank is out
        session.all_reduce(torch.ones(1))


class Broken(FakeDevice):
    """A device that fails to copy, as where a kernel before has ruined its context."""

    which = "fetch"

    def fetch(self, *args: Any) -> fake.Event:
        if self.which == "fetch":
            raise RuntimeError("an illegal memory access was encountered")
        return super().fetch(*args)

    def deliver(self, *args: Any) -> fake.Event:
        if self.which == "deliver":
            raise RuntimeError("an illegal memory access was encountered")
        return super().deliver(*args)


@pytest.mark.parametrize("which", ["fetch", "deliver"])
def test_a_device_that_fails_is_named(which: str) -> None:
    world = StandIn(arena_bytes=ARENA)
    with Broken(seed=1).holding() as device:
        device.which = which  # type: ignore[attr-defined]
        text = "between the device fake:0 and the arena failed: RuntimeError: an illegal memory"
        tensors = [device.tensor(torch.ones(4)) for _ in range(2)]
        with pytest.raises(DeviceFailed, match=text):
            all(work.wait() for work in reduce_all(world, tensors))
        world.close()


def test_an_error_on_the_thread_of_the_staging_is_named(
    world: StandIn, device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("a bug")

    session = world.sessions[0]
    monkeypatch.setattr(session._connection.engines, "of", broken)  # noqa: SLF001
    work = session.all_reduce(device.tensor(torch.ones(4)))
    with pytest.raises(DeviceFailed, match="ZeroDivisionError: a bug"):
        work.wait()


def test_close_ends_what_waits_for_the_device(
    world: StandIn, device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the kernel before never ends: memory stays locked that it may be copied to."""
    monkeypatch.setattr(submitter, "JOIN_TIMEOUT", 0.1)
    computed = threading.Event()
    tensor = device.tensor(torch.ones(4))
    device.launch(computed.wait, writes=[tensor])
    work = world.sessions[0].all_reduce(tensor)
    world.sessions[0].close()
    with pytest.raises(SessionClosed):
        work.wait()
    assert device.pinned
    computed.set()


def test_tensors_of_two_devices_are_refused(world: StandIn, device: FakeDevice) -> None:
    group = world.sessions[0].world
    with pytest.raises(BadTensor, match="all_gather between fake:0 and the CPU"):
        group.all_gather(device.tensor(torch.ones(8)), torch.ones(4))
