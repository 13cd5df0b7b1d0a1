"""One daemon for all workers and servers of a module: what they exchange stays in its memory."""

from collections.abc import Iterator

import pytest

from dlcp_client.ps.host_daemon import HostDaemon


@pytest.fixture(scope="module")
def host_daemon() -> Iterator[HostDaemon]:
    made = HostDaemon()
    yield made
    made.close()
