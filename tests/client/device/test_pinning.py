"""Memory that is locked for a device: how much, when, and what follows where there is none."""

import logging

import pytest
import torch

from dlcp_client.arena import pinning
from dlcp_client.device.registry import device_of
from dlcp_client.environment import Environment
from dlcp_lab.device.fake import FakeDevice
from dlcp_lab.device.happens import UseBeforeEvent
from dlcpd.contract.errors import ArenaFull, BadConfig, BadTensor
from tests.client.device.conftest import ARENA
from tests.client.device.engines import reduce_all, seen
from tests.client.stand_in import StandIn

SLAB = 1 << 20  # bytes


@pytest.fixture(autouse=True)
def _small_slabs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinning, "SLAB", SLAB)


def a_sum(world: StandIn, device: FakeDevice, elements: int = 1000) -> None:
    tensors = [device.tensor(torch.ones(elements)) for _ in range(2)]
    for work in reduce_all(world, tensors):
        work.wait()
    assert all(bool((seen(device, tensor) == 2).all()) for tensor in tensors)


def test_an_arena_is_locked_as_far_as_it_is_used_and_once(
    world: StandIn, device: FakeDevice
) -> None:
    assert device.pinned == 0
    for _ in range(3):
        a_sum(world, device)
        assert device.pinned == 2 * SLAB  # one of each rank
    a_sum(world, device, 5 * SLAB // 8)  # 2.5 slabs, and so across the ends of two
    assert device.pinned == 2 * 3 * SLAB
    for session in world.sessions:
        session.close()
    assert device.pinned == 0


def test_without_enough_it_goes_on_and_says_so_once(
    world: StandIn, device: FakeDevice, caplog: pytest.LogCaptureFixture
) -> None:
    device.lockable = 0
    for _ in range(3):
        a_sum(world, device)
    said = [record for record in caplog.records if record.levelno == logging.WARNING]
    assert len(said) == 2  # each session
    assert "cannot be locked for fake:0 (0 B of lockable memory are left)" in said[0].message


def test_where_it_is_required_its_lack_is_an_error(
    monkeypatch: pytest.MonkeyPatch, device: FakeDevice
) -> None:
    monkeypatch.setenv("DLCPD_PINNED", "require")
    world = StandIn(arena_bytes=ARENA)
    device.lockable = 0
    work = world.sessions[0].all_reduce(device.tensor(torch.ones(4)))
    with pytest.raises(ArenaFull, match="DLCPD_PINNED=require demands it"):
        work.wait()
    world.close()


def test_who_wants_none_gets_none(monkeypatch: pytest.MonkeyPatch, device: FakeDevice) -> None:
    monkeypatch.setenv("DLCPD_PINNED", "never")
    world = StandIn(arena_bytes=ARENA)
    a_sum(world, device)
    assert device.pinned == 0
    world.close()


def test_a_wish_that_is_none() -> None:
    with pytest.raises(
        BadConfig, match="DLCPD_PINNED=maybe is not valid: use one of prefer, require, never"
    ):
        Environment.read({"DLCPD_PINNED": "maybe"})


def test_unlocking_under_a_copy_is_found(device: FakeDevice) -> None:
    host, there = memoryview(bytearray(64)), device.tensor(torch.zeros(16))
    address = torch.frombuffer(host, dtype=torch.uint8).data_ptr()
    device.pin(address, 64)
    device.fetch(host, there, device.mark(), [])
    with pytest.raises(UseBeforeEvent, match="unlocking memory"):
        device.unpin(address)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this torch has CUDA")
def test_cuda_without_cuda_is_one_clear_error() -> None:
    from dlcp_client.device.cuda import cuda  # noqa: PLC0415

    with pytest.raises(BadTensor, match=r"a tensor is on cuda:0, and torch .* of this process"):
        cuda(0)


def test_other_devices_are_refused_by_name() -> None:
    with pytest.raises(
        BadTensor, match="the tensor is on meta, and dlcpd supports the CPU and CUDA"
    ):
        device_of(torch.empty(1, device="meta"))
