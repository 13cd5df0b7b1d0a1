"""What is said of operations that wait for long: once, and for whom."""

import logging
import time

import pytest
import torch

from dlcp_client.operations.patience import WARN_AFTER
from tests.client.real import connected, each_rank
from tests.client.stand_in import StandIn

LOGGER = "dlcp_client"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every operation has waited for long as soon as somebody looks."""
    monkeypatch.setattr("dlcp_client.operations.patience.WARN_AFTER", 0.0)
    monkeypatch.setattr("dlcp_client.ipc.lanes.MAX_POLL", 0.01)


def until_warned(caplog: pytest.LogCaptureFixture) -> str:
    while not caplog.messages:
        time.sleep(0.001)
    return caplog.messages[0]


def test_a_minute_is_long() -> None:
    assert WARN_AFTER == 60.0


@pytest.mark.usefixtures("impatient")
def test_a_rank_that_is_late_is_named_once(caplog: pytest.LogCaptureFixture) -> None:
    """Rank 0 waits for two operations that rank 1 has not submitted yet."""
    sessions = connected()
    caplog.clear()
    with caplog.at_level(logging.WARNING, LOGGER):
        works = [sessions[0].all_reduce(torch.ones(4)) for _ in range(2)]
        for work in works:
            with pytest.raises(TimeoutError):
                work.wait(timeout=0.5)
        [text] = caplog.messages
        assert text.startswith("operation 2 (all_reduce of 4 float32) has waited for ")
        assert "for rank(s) 1 to submit operation 2; rank(s) 1 to submit operation 3" in text
        assert text.endswith(" s, by deadline= of its policy")
    for _ in works:
        sessions[1].all_reduce(torch.ones(4)).wait()
    for work in works:
        work.wait()
    each_rank(lambda rank: sessions[rank].close())


@pytest.mark.usefixtures("impatient")
def test_a_future_that_nobody_waits_for_is_looked_after(
    world: StandIn, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in DDP, whose backward pass waits in C++; here the daemon does not say for whom."""
    monkeypatch.setattr("dlcp_client.ipc.handshake.STATUS_TIMEOUT", 0.01)
    world.answering = False
    works = [session.all_reduce(torch.ones(4)) for session in world.sessions]
    future = works[0].get_future()
    assert "what this host's dlcpd does not say" in until_warned(caplog)
    world.answer(1)
    assert future.wait()[0].tolist() == [2.0] * 4


def test_who_is_answered_soon_hears_nothing(
    world: StandIn, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlcp_client.ipc.lanes.MAX_POLL", 0.001)
    world.answering = False
    works = [session.all_reduce(torch.ones(4)) for session in world.sessions]
    with pytest.raises(TimeoutError):
        works[0].wait(timeout=0.05)
    world.answer(1)
    assert works[0].wait()
    assert caplog.messages == []
