"""What is said of operations that wait for long: once, and for whom."""

import logging
import time

import pytest
import torch

from dlcp_client.arena.tensors import TENSORS
from dlcp_client.operations.patience import BETWEEN, FACTOR, LEAST, MOST, Pace, Patience
from dlcp_client.operations.work import Work
from tests.client.real import connected, each_rank
from tests.client.stand_in import StandIn

LOGGER = "dlcp_client"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every operation has waited for long as soon as somebody looks."""
    monkeypatch.setattr("dlcp_client.operations.patience.MOST", 0.0)
    monkeypatch.setenv("DLCPD_WARN_AFTER", "0.01")
    monkeypatch.setattr("dlcp_client.operations.lanes.MAX_POLL", 0.01)


def until_warned(caplog: pytest.LogCaptureFixture) -> str:
    while not caplog.messages:
        time.sleep(0.001)
    return caplog.messages[0]


# --- what is long ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("took", "long"), [([], MOST), ([0.01] * 9, LEAST), ([2.0] * 9, FACTOR * 2.0), ([60.0], MOST)]
)
def test_long_is_relative_to_the_pace_of_the_job(took: list[float], long: float) -> None:
    pace = Pace()
    for seconds in took:
        pace.took(seconds)
    assert pace.long == pytest.approx(long)


def test_the_pace_follows_the_job_and_forgets() -> None:
    pace = Pace()
    for seconds in [60.0] + [0.1] * 100:
        pace.took(seconds)
    assert pace.usual == pytest.approx(0.1, abs=0.01)


def test_what_is_configured_is_the_least() -> None:
    never, late = Pace(0.0), Pace(100.0)
    assert never.long == float("inf") and late.long == 100.0
    never.took(1.0)
    late.took(1.0)
    assert never.long == float("inf") and late.long == 100.0


class Clock:
    """Of the module, and the warnings by their time."""

    def __init__(self, patch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
        self.now, self.told, self._caplog = 1000.0, [], caplog
        patch.setattr("dlcp_client.operations.patience.time.monotonic", lambda: self.now)
        pace = Pace()
        pace.took(0.02)
        self.patience = Patience(lambda: "rank(s) 1 to submit operation 7", pace)

    told: list[float]

    def stall(self, begun: float, ends: float) -> None:
        """An operation that waits, and is looked at every second."""
        work = Work.over(None, TENSORS.block(torch.ones(1)))  # type: ignore[arg-type]
        object.__setattr__(work, "begun", begun)
        for at in range(int(begun), int(ends)):
            self.now, before = float(at), len(self._caplog.messages)
            self.patience.look((7, work))
            self.told += [self.now] * (len(self._caplog.messages) - before)


def test_a_stall_is_told_early_and_once_and_seldom(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    clock = Clock(monkeypatch, caplog)
    clock.stall(1000.0, 1004.0)
    assert clock.told == [], "shorter than the least"
    clock.stall(1010.0, 1030.0)
    assert clock.told == [1015.0]
    clock.stall(1030.0, 1050.0)
    assert clock.told == [1015.0], "one a minute"
    clock.stall(1040.0, 1200.0)
    assert clock.told == [1015.0, 1015.0 + BETWEEN]
    clock.stall(1070.0, 1200.0)
    assert len(clock.told) == 2, "it began before it was told"
    assert "has waited for 5 s, where 0.02 s are usual, for rank(s) 1 to submit" in caplog.text


# --- of whom --------------------------------------------------------------------------------------


@pytest.mark.usefixtures("impatient")
@pytest.mark.processes
def test_a_rank_that_is_late_is_named_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rank 0 waits for two operations that rank 1 has not submitted yet."""
    # On a busy host the probe within connect may have been the first that was told of.
    monkeypatch.setattr("dlcp_client.operations.patience.BETWEEN", 0.0)
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
    monkeypatch.setattr("dlcp_client.operations.lanes.MAX_POLL", 0.001)
    world.answering = False
    works = [session.all_reduce(torch.ones(4)) for session in world.sessions]
    with pytest.raises(TimeoutError):
        works[0].wait(timeout=0.05)
    world.answer(1)
    assert works[0].wait()
    assert caplog.messages == []
