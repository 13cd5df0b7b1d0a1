"""What is held for sessions is counted, and bounded for each and for all."""

import random

import numpy as np
import pytest

from dlcpd.collectives.holdings import Holdings, MemoryBudget
from dlcpd.collectives.loss.accounts import Accounts
from dlcpd.contract.errors import ArenaFull
from dlcpd.numerics.residual import Hole


def test_a_session_has_what_it_is_assured_of_whatever_others_hold() -> None:
    budget = MemoryBudget.of(total=1000, session=400, sessions=10)
    greedy = [Holdings(budget) for _ in range(9)]
    for one in greedy:
        while one.has_room(10):
            one.take(10)
    last = Holdings(budget)
    assert budget.assured == 50 and last.has_room(50) and not last.has_room(60)
    assert sum(one.held for one in greedy) <= 1000 - 50


def test_no_session_holds_more_than_its_own_limit() -> None:
    one = Holdings(MemoryBudget.of(total=1000, session=400, sessions=10))
    one.take(390)
    one.check(10, "a test")
    with pytest.raises(ArenaFull, match=r"a test needs .* max_session_memory_bytes"):
        one.check(11, "a test")


def test_what_is_given_back_can_be_had_again_and_an_end_gives_all_back() -> None:
    budget = MemoryBudget.of(total=1000, session=400, sessions=10)
    draw, sessions = random.Random(1), [Holdings(budget) for _ in range(10)]
    for _ in range(2000):
        one, size = draw.choice(sessions), draw.randrange(60)
        if draw.random() < 0.5 and one.has_room(size):
            one.take(size)
        elif one.held >= size:
            one.give(size)
        assert budget.beyond == sum(max(s.held - budget.assured, 0) for s in sessions)
        assert sum(s.held for s in sessions) <= 1000
    for one in sessions:
        one.close()
    assert budget.beyond == 0


def test_what_is_given_back_after_the_end_is_nobody_elses() -> None:
    budget = MemoryBudget.of(total=100, session=100, sessions=1)
    one = Holdings(budget)
    one.take(90)
    one.close()
    one.give(90)
    assert budget.beyond == 0 and not budget.beyond < 0


def test_residuals_count() -> None:
    accounts, zero = Accounts(), np.zeros(1, np.intp)
    hole = Hole(0, zero, 64, np.zeros(64, np.uint8))
    accounts.residuals.put(("a", "float32", 16), [hole, hole])
    assert accounts.holdings.held == 128
    heir = Accounts()
    heir.residuals.take_over(accounts.residuals)
    assert (accounts.holdings.held, heir.holdings.held) == (0, 128)
    heir.residuals.take(("a", "float32", 16))
    assert heir.holdings.held == 0
