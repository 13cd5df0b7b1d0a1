"""Buckets of parameters on a device wait for copies; what `where` takes and refuses."""

from typing import Any

import pytest
import torch
from torch import nn

from dlcp_client import Session, fused
from dlcp_client.device.registry import extended
from dlcp_client.device.seam import Event
from dlcp_client.fused.device_bucket import DeviceBucket
from dlcp_client.fused.flat_bucket import flat_buckets
from dlcp_client.fused.suitability import trained
from dlcp_lab.device.fake import FakeDevice
from dlcpd.contract.errors import BadConfig, BadTensor
from dlcpd.contract.policy import EXACT
from tests.client.stand_in import StandIn


class Copy:
    """The end of a copy, which is not reached before something waits for it."""

    def __init__(self) -> None:
        self.waited = False

    def wait(self) -> None:
        self.waited = True

    def done(self) -> bool:
        return self.waited


class Copies:
    """The copies of a session whose device is slow: memory is copied at once, ends are later."""

    hosts = 1

    def __init__(self) -> None:
        self.made: list[Copy] = []

    def zeros(self, count: int, dtype: torch.dtype) -> torch.Tensor:
        return torch.zeros(count, dtype=dtype)

    def fetch(self, into: torch.Tensor, array: torch.Tensor) -> Event:
        into.copy_(array.reshape(-1))
        self.made.append(Copy())
        return self.made[-1]

    def deliver(self, array: torch.Tensor, source: torch.Tensor) -> Event:
        array.copy_(source.view(array.shape))
        self.made.append(Copy())
        return self.made[-1]


def bucket_of(parameter: nn.Parameter) -> tuple[DeviceBucket, Copies]:
    copies: Any = Copies()
    [made] = flat_buckets(copies, [{"params": [parameter]}], [parameter], None, DeviceBucket)
    assert isinstance(made, DeviceBucket)
    made.enter()
    return made, copies


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_no_memory_is_used_before_the_end_of_its_copy(dtype: torch.dtype) -> None:
    parameter = nn.Parameter(torch.arange(6.0).view(2, 3).to(dtype))
    bucket, copies = bucket_of(parameter)
    assert bucket.weights.dtype is torch.float32
    bucket.take(0, torch.ones(2, 3, dtype=dtype))
    assert not bucket.taken(wait=False)
    assert bucket.taken(wait=True) and copies.made[0].waited
    assert torch.equal(bucket.gradients[:6], torch.ones(6))
    for use in (bucket.take_changes, bucket.leave):
        bucket.weights.fill_(7.25)
        bucket.apply([parameter])
        assert torch.equal(parameter.detach(), torch.full((2, 3), 7.25, dtype=dtype))
        assert not copies.made[-1].waited
        use()
        assert copies.made[-1].waited
    assert torch.equal(bucket.weights[:6], torch.full((6,), 7.25)), "weights are no change"


def test_a_parameter_with_other_memory_is_noticed() -> None:
    parameter = nn.Parameter(torch.ones(4))
    bucket, _ = bucket_of(parameter)
    assert bucket.in_place(0)
    parameter.data = torch.ones(4)
    assert not bucket.in_place(0)


def test_where_is_named_for_a_model_on_a_device() -> None:
    net = nn.Linear(2, 2).bfloat16()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    with pytest.raises(BadTensor, match=r"is torch.bfloat16: fused updates float32 and float64"):
        trained(net, optimizer, EXACT, "host")  # on the CPU
    with pytest.raises(BadConfig, match=r"where='gpu': give \"host\" or \"device\""):
        trained(net, optimizer, EXACT, "gpu")
    with pytest.raises(BadTensor, match=r"is on the CPU: where=\"device\" is for models"):
        trained(net.float(), optimizer, EXACT, "device")
    with FakeDevice(seed=1).holding_all():
        for where in ("host", "device"):
            assert set(trained(net.bfloat16(), optimizer, EXACT, where)) == {"weight", "bias"}
        with pytest.raises(
            BadTensor, match=r"'weight' is on fake:0: give where=\"host\" .* where=\"device\""
        ):
            fused.register(net, optimizer)


def test_a_model_in_two_places_is_refused() -> None:
    net, device = nn.Linear(2, 2), FakeDevice(seed=1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    try:
        with (
            extended(lambda tensor: device if tensor is net.bias else None),
            pytest.raises(BadTensor, match="'weight' is on the CPU, and 'bias' on a device"),
        ):
            trained(net, optimizer, EXACT, "host")
    finally:
        device.close()


def test_a_copy_needs_a_device_and_the_arena(world: StandIn, device: FakeDevice) -> None:
    session: Session = world.sessions[0]
    there, here = device.tensor(torch.ones(4)), session.zeros(4)
    session.fetch(here, there).wait()
    assert torch.equal(here, torch.ones(4))
    session.deliver(there, here).wait()
    for host, array in ((torch.ones(4), there), (here, torch.ones(4)), (here[:2], there)):
        with pytest.raises(BadTensor, match="give an array of a device, and one"):
            session.fetch(host, array)
