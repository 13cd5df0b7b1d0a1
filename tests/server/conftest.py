"""One daemon for all workers and servers of a module: what they exchange stays in its memory."""

from collections.abc import Iterator

import pytest

from dlcp_client.ps.home import Home


@pytest.fixture(scope="module")
def home() -> Iterator[Home]:
    made = Home()
    yield made
    made.close()
