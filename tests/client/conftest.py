"""A world of two sessions, whose far ends the test plays."""

from collections.abc import Iterator

import pytest

from tests.client.stand_in import StandIn


@pytest.fixture
def world() -> Iterator[StandIn]:
    made = StandIn()
    yield made
    made.close()
