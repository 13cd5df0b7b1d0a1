"""One transfer on its way out: every input in every state."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from dlcpd.contract.traffic import DROP_PRECEDENCES
from dlcpd.core.transfer.budget import Budget
from dlcpd.core.transfer.packetizer import BLOCK, by_tag
from dlcpd.core.transfer.sender import ENDING_RUN, SenderState, TransferSender
from dlcpd.core.wire.header import MAX_ROUND, Key

SEGMENTS = 100


TAG = 16  # class 4, protected


def transfer(order: list[int] | None = None) -> TransferSender:
    segments = np.arange(SEGMENTS) if order is None else np.array(order, np.intp)
    payload, tags = np.zeros(SEGMENTS * 64, np.uint8), np.full(SEGMENTS, TAG, np.uint8)
    return TransferSender(Key(0, 1, 0), payload, 0, 64, tags, segments)


def missing(*segments: int) -> np.ndarray:
    bits = np.zeros(SEGMENTS, bool)
    bits[list(segments)] = True
    return bits


def sending() -> TransferSender:
    sender = transfer()
    sender.take(10, 0)
    return sender


def awaiting() -> TransferSender:
    sender = transfer()
    sender.take(SEGMENTS, 0)
    return sender


def done() -> TransferSender:
    sender = awaiting()
    sender.on_done()
    return sender


IN = {SenderState.SENDING: sending, SenderState.AWAITING: awaiting, SenderState.DONE: done}


@pytest.mark.parametrize("state", SenderState)
def test_each_state_can_be_reached(state: SenderState) -> None:
    assert IN[state]().state is state


def test_a_pass_takes_every_segment_once_in_its_order() -> None:
    order = list(range(50, SEGMENTS)) + list(range(50))
    sender, taken = transfer(order), []
    while sender.remaining:
        taken += sender.take(33, 0)[0].tolist()
    assert taken == order
    assert sender.state is SenderState.AWAITING
    assert (sender.sent, sender.retransmitted) == (SEGMENTS, 0)
    assert sender.take(10, 0)[0].tolist() == []


@pytest.mark.parametrize("batch", [9, 33, 60, SEGMENTS])
def test_only_the_batch_that_ends_the_pass_is_marked(batch: int) -> None:
    """A mark before a wait for credit would make the peer take the rest for lost."""
    sender = transfer()
    while sender.remaining:
        taken, _, ending = sender.take(batch, 0)
        assert ending == (0 if sender.remaining else min(len(taken), ENDING_RUN))


def test_a_short_pass_is_all_ending() -> None:
    sender = transfer([1, 0])
    assert sender.take(10, 0)[2] == 2


def test_the_path_of_every_segment_is_remembered() -> None:
    sender = transfer()
    sender.take(60, 2)
    sender.take(40, 1)
    assert (sender.path_of[:60] == 2).all()
    assert (sender.path_of[60:] == 1).all()


@pytest.mark.parametrize("state", [SenderState.SENDING, SenderState.AWAITING])
def test_a_nack_starts_the_round_it_asks_for(state: SenderState) -> None:
    sender = IN[state]()
    assert sender.on_nack(missing(7, 99), 1)
    assert (sender.state, sender.round, sender.remaining) == (SenderState.SENDING, 1, 2)
    sent = sender.sent
    assert sender.take(10, 0)[0].tolist() == [7, 99]
    assert (sender.state, sender.sent, sender.retransmitted) == (SenderState.AWAITING, sent, 2)


def test_a_nack_may_skip_rounds_whose_nacks_were_lost() -> None:
    assert awaiting().on_nack(missing(1), 5)
    assert awaiting().on_nack(missing(1), MAX_ROUND)


@pytest.mark.parametrize(
    ("make", "bits", "round_"),
    [
        pytest.param(done, missing(1), 1, id="done"),
        pytest.param(awaiting, missing(1), 0, id="stale round"),
        pytest.param(awaiting, missing(1), MAX_ROUND + 1, id="no such round"),
        pytest.param(awaiting, missing(), 1, id="nothing missing"),
    ],
)
def test_a_nack_that_asks_for_nothing_changes_nothing(
    make: Callable[[], TransferSender], bits: np.ndarray, round_: int
) -> None:
    sender = make()
    before = (sender.state, sender.round, sender.remaining, sender.retransmitted)
    assert not sender.on_nack(bits, round_)
    assert (sender.state, sender.round, sender.remaining, sender.retransmitted) == before


def test_a_nack_again_does_not_repeat_the_retransmission() -> None:
    sender = awaiting()
    sender.on_nack(missing(1, 2), 1)
    sender.take(10, 0)
    assert not sender.on_nack(missing(1, 2), 1)
    assert sender.retransmitted == 2


@pytest.mark.parametrize("state", [SenderState.SENDING, SenderState.AWAITING])
def test_a_veto_sends_in_a_new_round(state: SenderState) -> None:
    sender = IN[state]()
    sender.on_veto(np.array([5, 6], np.intp))
    assert (sender.state, sender.round) == (SenderState.SENDING, 1)
    assert sender.take(10, 0)[0].tolist() == [5, 6]


def test_rounds_do_not_outgrow_their_byte() -> None:
    sender = awaiting()
    sender.on_nack(missing(1), MAX_ROUND)
    sender.on_veto(np.array([1], np.intp))
    assert sender.round == MAX_ROUND


def test_retransmission_goes_on_when_the_numbers_of_rounds_have_run_out() -> None:
    sender = awaiting()
    sender.on_nack(missing(1), MAX_ROUND)
    assert not sender.on_nack(missing(1), MAX_ROUND)  # still being sent
    sender.take(1, 0)
    assert not sender.on_nack(missing(1), MAX_ROUND - 1)
    assert sender.on_nack(missing(1), MAX_ROUND)


def test_probes_count_from_the_last_thing_sent() -> None:
    sender = awaiting()
    sender.probes = 4
    sender.on_nack(missing(1), 1)
    assert sender.probes == 0


@pytest.mark.parametrize("state", SenderState)
def test_done_is_told_once(state: SenderState) -> None:
    sender = IN[state]()
    assert sender.on_done() is (state is not SenderState.DONE)
    assert sender.state is SenderState.DONE
    assert not sender.on_done()


def test_a_restart_sends_the_first_pass_again() -> None:
    sender = awaiting()
    sender.restart()
    assert (sender.state, sender.round, sender.remaining) == (SenderState.SENDING, 0, SEGMENTS)
    assert sender.take(SEGMENTS, 0)[0].tolist() == list(range(SEGMENTS))


# --- tags -------------------------------------------------------------------------------------

FRONT, BACK, LIGHT = 4, 12, 14  # tags: class 1; class 3; class 3 and dropped first


def mixed(**options: Any) -> TransferSender:
    """Segments 0..9 are BACK, the even ones LIGHT; 10..14 are FRONT."""
    tags = np.array([LIGHT, BACK] * 5 + [FRONT] * 5, np.uint8)
    order = by_tag(np.roll(np.arange(15), 2), tags)
    return TransferSender(Key(0, 1, 0), np.zeros(960, np.uint8), 0, 64, tags, order, **options)


def test_a_pass_goes_by_class_and_a_batch_has_one() -> None:
    sender = mixed()
    seen: list[tuple[int, list[int]]] = []
    while sender.remaining:
        assert sender.traffic_class == (1 if len(seen) < 2 else 3)
        run = sender.run
        segments, tags, ending = sender.take(3, 0)
        assert (sender.tags[segments] == tags).all()
        assert len(segments) == min(3, run)
        assert bool(ending) == (not sender.remaining)
        [traffic_class] = set((tags // DROP_PRECEDENCES).tolist())
        seen.append((traffic_class, segments.tolist()))
    assert seen == [
        (1, [13, 14, 10]),
        (1, [11, 12]),
        (3, [1, 3, 5]),
        (3, [7, 9, 0]),
        (3, [2, 4, 6]),
        (3, [8]),
    ]


def test_drop_precedences_come_by_turns_so_that_a_queue_can_choose() -> None:
    ranks = np.repeat([0, 1, 2], [10 * BLOCK, 5 * BLOCK, 5 * BLOCK]).astype(np.uint8)
    order = by_tag(np.arange(20 * BLOCK), ranks)
    assert sorted(order.tolist()) == list(range(20 * BLOCK))
    blocks = ranks[order].reshape(-1, BLOCK)[:-2]
    assert (blocks == blocks[:, :1]).all()
    assert blocks[:, 0].tolist() == ([0, 1, 2, 0] * 5)[:-2]
    assert order[-1] == 20 * BLOCK - 1  # it may be short


def test_a_short_segment_is_the_last_of_its_class() -> None:
    tags = np.array([FRONT, LIGHT, BACK, BACK, FRONT], np.uint8)
    order = by_tag(np.arange(5), tags)
    assert order.tolist() == [0, 4, 2, 3, 1]


def test_a_retransmission_is_protected_and_the_heaviest_go_first() -> None:
    weight = np.arange(15, dtype=np.float32)
    sender = mixed(weight=weight)
    while sender.remaining:
        sender.take(5, 0)
    bits = np.zeros(15, bool)
    bits[[0, 2, 3, 11, 14]] = True
    assert sender.on_nack(bits, 1)
    assert sender.take(9, 0)[0].tolist() == [11, 14]  # 14 may be short: last
    assert sender.take(9, 0)[0].tolist() == [3, 2, 0]


def test_what_may_be_waived_is_not_sent_again() -> None:
    keys = np.full(15, 3 << 32 | 200_000)  # 20 % of 15: three
    sender = mixed(weight=np.arange(15, dtype=np.float32), budget=Budget.new(keys, None))
    while sender.remaining:
        sender.take(5, 0)
    bits = np.zeros(15, bool)
    bits[[0, 1, 2, 3, 11]] = True
    assert sender.on_nack(bits, 1)
    assert sorted(sender.order.tolist()) == [3, 11]
    assert sender.weight is not None
    assert sender.weight[14] == 14  # sorting left it alone


def test_a_nack_of_what_may_be_waived_is_answered_all_the_same() -> None:
    """Else the peer would wait for the end of a round that never begins."""
    keys = np.full(15, 3 << 32 | 200_000)
    sender = mixed(budget=Budget.new(keys, None))
    while sender.remaining:
        sender.take(5, 0)
    bits = np.zeros(15, bool)
    bits[[0, 1]] = True
    assert sender.on_nack(bits, 1)
    assert len(sender.order) == 2


def test_a_late_offer_is_none() -> None:
    """Numbers wrap in their byte."""
    sender = awaiting()
    for number in (1, 2, 2, 100, 200, 255, 0):
        assert sender.on_offer(number)
    for late in (255, 200, 129):
        assert not sender.on_offer(late)
    assert sender.on_offer(0)
