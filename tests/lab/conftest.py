from pathlib import Path

import pytest

from dlcp_lab.ranks.hosts import Hosts
from tests.lab.ranks.without_daemons import three_hosts


@pytest.fixture
def hosts(tmp_path: Path) -> Hosts:
    """Three, on loopback, without daemons."""
    return three_hosts(tmp_path)
