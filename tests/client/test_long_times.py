"""Times that are too long to count are told once."""

import logging
from datetime import timedelta

import pytest

from dlcp_client import long_times
from dlcp_client.joining.sessions import checked_timeout
from dlcpd.contract.errors import BadConfig
from dlcpd.contract.times import MAX_TIME


def test_a_capped_time_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    long_times._say.cache_clear()  # noqa: SLF001  # another test may have made it say so
    with caplog.at_level(logging.WARNING):
        assert checked_timeout(timedelta(days=19)) == 19 * 86_400
        for _ in range(3):
            assert checked_timeout(timedelta(days=365)) == MAX_TIME
    [said] = caplog.records
    assert said.getMessage() == "a time above 20 days counts as 20 days"


def test_what_is_no_time_to_join_is_refused() -> None:
    for time in (0, -1.0, timedelta(0), "60", None):
        with pytest.raises(BadConfig, match="use seconds above 0, or a timedelta"):
            checked_timeout(time)
