"""Who is in the next epoch: the rule on a virtual clock, and the agreement in a store."""

import threading
import time
from collections.abc import Collection
from concurrent.futures import ThreadPoolExecutor

import pytest
from torch._C._distributed_c10d import HashStore

from dlcp_client.job.epochs import MAX_BIDS, EpochAgreement, EpochMembers
from dlcp_client.job.next_members import (
    LOST_GRACE,
    NEW,
    Bid,
    NextMembersRule,
    gone,
    in_order,
    majority,
)
from dlcpd.contract.errors import BadMessage, PeerLost

GRACE = 20.0


def bids(*seats: int, lost: Collection[int] = ()) -> list[Bid]:
    return [
        Bid(number, seat, frozenset(lost), f"of {number}")
        for number, seat in enumerate(seats, start=1)
    ]


# --- when the roll is called -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("came", "lost", "quorum", "waited", "called"),
    [
        ((0, 1, 2), set(), 2, 0.0, True),  # all are there: at once
        ((0, 1, 2, NEW), set(), 2, 0.0, True),  # and whoever else is
        ((0, 1), set(), 2, GRACE - 0.1, False),  # rank 2 may be busy
        ((0, 1), set(), 2, GRACE, True),
        ((0, 1), {2}, 2, LOST_GRACE - 0.1, False),  # its process may live
        ((0, 1), {2}, 2, LOST_GRACE, True),
        ((0, 1, 2), {2}, 2, 0.0, True),  # it does: the others were wrong
        ((0,), {1}, 1, LOST_GRACE, False),  # nobody has lost rank 2
        ((0,), {1, 2}, 1, LOST_GRACE, True),
        ((0,), {1, 2}, 2, 1e9, False),  # too few, for ever
        ((0, NEW, NEW), {1, 2}, 2, 1e9, False),  # newcomers make no quorum
        ((0, 0, 0), {1, 2}, 2, 1e9, False),  # nor does one that asks again
        ((0, 1, 7), set(), 3, 1e9, False),  # there is no seat 7
        ((), {0, 1, 2}, 1, 1e9, False),
    ],
)
def test_the_roll_is_called_when_those_that_count_are_there(
    came: tuple[int, ...], lost: set[int], quorum: int, waited: float, called: bool
) -> None:
    assert NextMembersRule(3, quorum, GRACE).complete(bids(*came, lost=lost), waited) is called


@pytest.mark.parametrize(("size", "least"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (256, 129)])
def test_two_majorities_share_a_member(size: int, least: int) -> None:
    assert majority(size) == least
    assert 2 * majority(size) > size


def test_members_keep_their_order_and_newcomers_follow() -> None:
    ordered = in_order(bids(NEW, 3, 0, NEW, 2))
    expected = [(0, 3), (2, 5), (3, 2), (NEW, 1), (NEW, 4)]
    assert [(bid.seat, bid.number) for bid in ordered] == expected
    assert gone(4, [bid.seat for bid in ordered]) == [1]


def test_of_two_bids_for_a_seat_the_last_counts() -> None:
    assert [(b.seat, b.number) for b in in_order(bids(1, 0, 1))] == [(0, 2), (1, 3)]


# --- the agreement ---------------------------------------------------------------------------


def test_all_read_the_same_roll_though_each_would_call_it() -> None:
    store = HashStore()
    rounds = [EpochAgreement(store, "job", 1, 0) for _ in range(8)]
    meet = threading.Barrier(8)

    def agree(seat: int) -> EpochMembers:
        number = rounds[seat].bid(seat)
        meet.wait()
        return rounds[seat].agree(number, NextMembersRule(8, 5, GRACE), frozenset, 1e9)

    with ThreadPoolExecutor(8) as pool:
        rolls = list(pool.map(agree, range(8)))
    assert len(set(rolls)) == 1
    assert rolls[0].seats == tuple(range(8)) and rolls[0].epoch == 1


def test_the_first_member_list_stands() -> None:
    one = EpochAgreement(HashStore(), "job", 1, 0)
    first = one.call(bids(0, 1))
    assert one.call(bids(2)) == first == one.members()


def test_what_a_member_has_lost_is_told_to_the_others() -> None:
    store = HashStore()
    mine, yours = (EpochAgreement(store, "job", 1, 0) for _ in range(2))
    mine.bid(0)
    number = yours.bid(1)
    with pytest.raises(PeerLost):
        yours.agree(number, NextMembersRule(3, 2, GRACE), lambda: frozenset({2}), 0.0)
    assert mine.bids() == [Bid(1, 0), Bid(2, 1, frozenset({2}))]


def test_who_comes_from_another_epoch_has_no_seat() -> None:
    store = HashStore()
    EpochAgreement(store, "job", 3, 1).bid(0)
    here = EpochAgreement(store, "job", 3, 2)
    here.bid(1, frozenset({0}))
    assert here.bids() == [Bid(1, NEW), Bid(2, 1, frozenset({0}))]


def test_who_is_missing_is_named() -> None:
    alone = EpochAgreement(HashStore(), "job", 1, 0)
    number = alone.bid(1)
    with pytest.raises(
        PeerLost, match=r"rank\(s\) 0, 2 are missing after .* s, and at least 2 of the 3 ranks"
    ):
        alone.agree(number, NextMembersRule(3, 2, GRACE), frozenset, 0.0)
    with pytest.raises(PeerLost, match="the job did not admit this process"):
        alone.agree(number, None, frozenset, 0.0)


@pytest.mark.parametrize(
    "text",
    ["", "{}", "[1]", "[0, 1]", "[0, 1, 2]", '[0, 1, ["a"]]', "[0, true, []]", "[" * 10000],
)
def test_what_is_no_bid_keeps_nobody_from_agreeing(text: str) -> None:
    store = HashStore()
    one = EpochAgreement(store, "job", 1, 0)
    own = one.bid(0)
    one.bid(1)
    store.set(f"dlcp/epochs/job/1/bid/{own.number}", text)
    assert one.bids() == [Bid(2, 1)]
    roll = one.agree(own, NextMembersRule(2, 2, GRACE), frozenset, time.monotonic() + 60)
    assert roll.rank_of(own) == 0, "it is written again"


@pytest.mark.parametrize("text", ["x", "{}", "[1]", "[[1]]", '[[0, "a"]]', "[[0, 1.5]]", "[]"])
def test_an_invalid_member_list_is_refused(text: str) -> None:
    store = HashStore()
    store.set("dlcp/epochs/job/1/members", text)
    with pytest.raises(BadMessage, match="member list of epoch 1"):
        EpochAgreement(store, "job", 1, 0).members()


def test_a_flood_of_bids_is_not_read_to_its_end() -> None:
    one = EpochAgreement(HashStore(), "job", 1, 0)
    for _ in range(MAX_BIDS + 10):
        one.bid(NEW)
    assert len(one.bids()) == MAX_BIDS
    assert len(one.call(one.bids()).seats) == 256
