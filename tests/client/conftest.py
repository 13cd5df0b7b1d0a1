"""A world of two sessions, whose far ends the test plays; a process group of this process alone."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore

from tests.client.stand_in import StandIn


@pytest.fixture
def world() -> Iterator[StandIn]:
    made = StandIn()
    yield made
    made.close()


@pytest.fixture
def group_of_one() -> Iterator[None]:
    dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


@pytest.fixture
def lossy(tmp_path: Path) -> Path:
    """The configuration of a daemon that loses a tenth of the datagrams."""
    file = tmp_path / "dlcpd.toml"
    file.write_text(
        '[daemon]\ncontrol_address = "127.0.0.1"\n'
        '[network]\npaths = [{ address = "127.0.0.1" }]\npeer_timeout = 10.0\n'
        "[inject]\nloss = 0.1\nseed = 1\n"
    )
    return file
