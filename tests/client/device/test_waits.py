"""Each wait is needed: without it, the fake device names what comes too early."""

import time
from contextlib import suppress
from functools import partial
from typing import Any

import pytest
import torch

from dlcp_client.arena.pending_copies import PendingCopies
from dlcp_lab.device import fake
from dlcp_lab.device.fake import IN, OUT, FakeDevice
from dlcp_lab.device.happens import HOST, History, UseBeforeEvent
from tests.client.device.conftest import ARENA
from tests.client.device.engines import reduce_all, watched
from tests.client.stand_in import StandIn


class WithoutAfter(FakeDevice):
    """Copies from the device begin at once, whatever the current stream does."""

    def fetch(self, host: Any, array: Any, after: Any, cuts: Any) -> fake.Event:
        with self._lock:
            now = self._event(OUT)
        now.reached.set()
        return super().fetch(host, array, now, cuts)


class WithoutFollowing(FakeDevice):
    """The current stream goes on while the result is on its way."""

    def follow(self, event: fake.Event) -> None:
        pass


def one_step(world: StandIn, device: FakeDevice) -> None:
    """As a training: kernels, a reduction, kernels, each rank's twice."""
    for session in world.sessions:
        watched(session, device)
    for _ in range(2):
        tensors = [device.tensor(torch.zeros(1000)) for _ in range(2)]
        for tensor in tensors:
            device.launch(partial(tensor.fill_, 1), writes=[tensor])
        for work, tensor in zip(reduce_all(world, tensors), tensors, strict=True):
            work.wait()
            device.launch(partial(tensor.mul_, 2), writes=[tensor])


def misses(kind: type[FakeDevice], text: str) -> None:
    world = StandIn(arena_bytes=ARENA)
    with kind(seed=1).holding() as device:
        with pytest.raises(UseBeforeEvent, match=text):
            one_step(world, device)
        with suppress(UseBeforeEvent):  # of what was begun
            world.sessions[0].close()
        with suppress(UseBeforeEvent):
            world.sessions[1].close()
    world.close()


def test_a_copy_that_does_not_wait_for_the_kernel_is_found() -> None:
    misses(WithoutAfter, "to the arena .stream out. does not wait for: a kernel .current stream.")


def test_a_kernel_that_does_not_wait_for_the_result_is_found() -> None:
    misses(WithoutFollowing, "a kernel .current stream. does not wait for: a copy of 4000 B to the")


def test_a_submission_that_does_not_wait_for_the_copy_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(fake.Event, "wait", lambda self: None)
    misses(FakeDevice, "operation 1 of all_reduce .engine .. does not wait for: a copy of 4000 B")


def test_memory_that_is_given_away_under_a_copy_to_the_device_is_found(
    world: StandIn, device: FakeDevice, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PendingCopies, "add", lambda self, event, kept: None)
    reduce_all(world, [device.tensor(torch.ones(1000)) for _ in range(2)])
    while device.copied[IN] < 2 * 4000:  # nobody waits, so nobody knows when that is over
        time.sleep(0.001)
    text = "to the arena .stream out. does not wait for: a copy of 4000 B to the device"
    with pytest.raises(UseBeforeEvent, match=text):
        reduce_all(world, [device.tensor(torch.ones(1000)) for _ in range(2)])
    for session in world.sessions:
        with suppress(UseBeforeEvent):
            session.close()


# --- the rule itself --------------------------------------------------------------------------

PLACE, BESIDE = (100, 200), (200, 300)


def test_the_same_stream_is_in_order() -> None:
    history = History()
    history.use("a", [], [PLACE], "first")
    history.use("a", [PLACE], [PLACE], "second")


def test_two_streams_are_not_unless_one_waits() -> None:
    history = History()
    history.use("a", [], [PLACE], "first")
    history.use("b", [BESIDE], [], "elsewhere")
    seen = history.now("a")
    with pytest.raises(UseBeforeEvent, match=r"second \(b\) does not wait for: first \(a\)"):
        history.use("b", [(199, 250)], [], "second")
    history.learn("b", seen)
    history.use("b", [PLACE], [], "third")


def test_reading_twice_needs_no_order_and_writing_after_it_does() -> None:
    history = History()
    history.use("a", [PLACE], [], "one")
    history.use("b", [PLACE], [], "other")
    with pytest.raises(UseBeforeEvent):
        history.use("a", [], [PLACE], "third")


def test_what_the_host_knows_all_know_that_it_gives_work_to() -> None:
    history = History()
    history.use("a", [], [PLACE], "first")
    with pytest.raises(UseBeforeEvent):
        history.use(HOST, [PLACE], [], "too early")
    history.learn(HOST, history.now("a"))
    history.use("b", [], [PLACE], "second")
    assert len(history) == 1  # what the host knows to be over is forgotten


def test_an_event_knows_of_those_that_its_stream_has_waited_for() -> None:
    history = History()
    history.use("a", [], [PLACE], "first")
    history.learn("b", history.now("a"))
    history.learn("c", history.now("b"))
    history.use("c", [PLACE], [], "second")
