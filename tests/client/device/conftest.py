"""Two sessions of this process, their tensors on a fake device that sees what their engines do."""

from collections.abc import Iterator

import pytest

from dlcp_lab.device.fake import FakeDevice
from tests.client.device.engines import watched
from tests.client.stand_in import StandIn

ARENA = 48 << 20  # bytes


@pytest.fixture
def device() -> Iterator[FakeDevice]:
    with FakeDevice(seed=1).holding() as made:
        yield made


@pytest.fixture
def world(device: FakeDevice) -> Iterator[StandIn]:
    made = StandIn(arena_bytes=ARENA)
    for session in made.sessions:
        watched(session, device)
    yield made
    made.close()
