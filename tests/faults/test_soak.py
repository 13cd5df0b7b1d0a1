"""The soak, for a moment; `make soak` takes its time."""

from typing import Final

import pytest

from dlcp_lab.faults.soak import Soak

SECONDS: Final = 20.0
PEER_TIMEOUT: Final = 3.0  # seconds; see test_matrix


@pytest.mark.timeout(400)
def test_no_promise_is_broken() -> None:
    books = Soak(seed=7, peer_timeout=PEER_TIMEOUT).run(SECONDS)
    assert not books.violations
    assert books.looks
    assert books.faults
    assert min(books.operations["exact"], books.operations["bounded"]) > 0
