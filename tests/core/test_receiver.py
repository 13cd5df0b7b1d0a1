"""The stop rule: what may complete a transfer, and everything that may not."""

from collections.abc import Callable
from itertools import count

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.core.transfer.budget import Budget
from dlcpd.core.transfer.permit import MUST_ARRIVE, Permit
from dlcpd.core.transfer.receiver import (
    TRANSITIONS,
    Answer,
    ReceiverInput,
    ReceiverState,
    TransferReceiver,
)
from dlcpd.core.transfer.sender import TransferSender
from dlcpd.core.wire.header import MAX_ROUND, Key

SEGMENTS = 20
QUIET = 1e-3
SOON, LATER, DEADLINE = 1.0, 2.0, 10.0  # seconds; LATER is quiet after SOON


def arrive(
    receiver: TransferReceiver, segments: range | list[int], now: float = SOON, **how: int
) -> int:
    ending, round_ = bool(how.get("ending", 0)), how.get("round_", 0)
    fresh = 0
    if round_ >= receiver.least_round:
        fresh = receiver.mark(np.array(list(segments), np.intp))
    receiver.on_segments(fresh, ending=ending, round_=round_, now=now)
    return fresh


def receiver(budget: int = 2, exempt: list[int] | None = None) -> TransferReceiver:
    bits = np.zeros(SEGMENTS, bool)
    bits[exempt or []] = True
    may = Budget(np.zeros(SEGMENTS, np.uint8), np.array([budget], np.intp), bits)
    return TransferReceiver(SEGMENTS, budget=may if budget else None, deadline=DEADLINE)


def permitting(most: int, must: list[int]) -> Permit:
    costs = np.ones(SEGMENTS, np.uint8)
    costs[must] = MUST_ARRIVE
    return Permit(most, costs)


def receiving() -> TransferReceiver:
    return receiver()


def offered() -> TransferReceiver:
    """Lacks segments 18 and 19, and has said that it would go without."""
    made = receiver()
    arrive(made, range(18), ending=1)
    assert made.evaluate(LATER, QUIET) is Answer.FINAL
    return made


def complete() -> TransferReceiver:
    made = receiver()
    arrive(made, range(SEGMENTS))
    return made


IN: dict[ReceiverState, Callable[[], TransferReceiver]] = {
    ReceiverState.RECEIVING: receiving,
    ReceiverState.OFFERED: offered,
    ReceiverState.COMPLETE: complete,
}


def apply(made: TransferReceiver, event: ReceiverInput) -> None:
    """Bring `event` about by what happens on the wire."""
    match event:
        case ReceiverInput.FILLED:
            arrive(made, range(SEGMENTS), round_=made.round + 1)
        case ReceiverInput.MORE:
            arrive(made, [18], round_=made.round + 1)
        case ReceiverInput.SETTLED:
            arrive(made, range(18), ending=1, round_=made.round)
            made.evaluate(LATER, QUIET)
        case ReceiverInput.AGREED:
            made.on_ack(made.offer)
        case ReceiverInput.PERMITTED:
            made.permit = permitting(2, [])
            if made.state is ReceiverState.RECEIVING:
                arrive(made, range(18), ending=1, round_=made.round)
            made.evaluate(LATER, QUIET)


# --- the machine ---------------------------------------------------------------------


@pytest.mark.parametrize("state", ReceiverState)
def test_each_state_can_be_reached(state: ReceiverState) -> None:
    assert IN[state]().state is state


@pytest.mark.parametrize(("state", "event"), TRANSITIONS)
def test_each_transition_happens_on_the_wire(state: ReceiverState, event: ReceiverInput) -> None:
    made = IN[state]()
    apply(made, event)
    assert made.state is TRANSITIONS[state, event]


@pytest.mark.parametrize(
    ("state", "event"),
    [(s, e) for s in ReceiverState for e in ReceiverInput if (s, e) not in TRANSITIONS],
)
def test_any_other_input_is_ignored(state: ReceiverState, event: ReceiverInput) -> None:
    made = IN[state]()
    apply(made, event)
    assert made.state is state


@pytest.mark.parametrize(
    ("permit", "answer"),
    [
        (permitting(2, []), Answer.WAIVED),
        (permitting(2, [0]), Answer.WAIVED),
        (permitting(1, []), Answer.FINAL),
        (permitting(2, [19]), Answer.FINAL),
        (None, Answer.FINAL),
    ],
)
def test_what_is_permitted_is_waived_without_asking(permit: Permit | None, answer: Answer) -> None:
    made = receiver()
    made.permit = permit
    arrive(made, range(18), ending=1)
    assert made.evaluate(SOON + 0.5 * QUIET, QUIET) is Answer.NOTHING  # data may still be flowing
    assert made.evaluate(LATER, QUIET) is answer
    assert made.waived is (answer is Answer.WAIVED)
    assert arrive(made, [18, 19]) == 0  # it stays waived


def test_no_permit_exceeds_the_budget() -> None:
    made = receiver(budget=2)
    made.permit = permitting(3, [])
    arrive(made, range(17), ending=1)
    assert made.evaluate(LATER, QUIET) is Answer.NACK


def test_nothing_leaves_complete() -> None:
    assert ReceiverState.COMPLETE not in {state for state, _ in TRANSITIONS}


# --- arrivals ---------------------------------------------------------------------------


def test_duplicates_are_not_counted_as_new() -> None:
    made = receiver()
    assert arrive(made, range(10)) == 10
    assert arrive(made, range(5, 12)) == 2
    assert made.missing == SEGMENTS - 12


def test_duplicates_do_not_put_off_the_verdict() -> None:
    made = receiver()
    arrive(made, range(18), now=SOON, ending=1)
    arrive(made, range(18), now=LATER)
    assert made.last_arrival == SOON


def test_an_offer_binds_late_arrivals_do_not_count() -> None:
    made = offered()
    assert arrive(made, [18, 19], now=LATER) == 0
    assert (made.state, made.missing) == (ReceiverState.OFFERED, 2)
    assert np.flatnonzero(~made.received).tolist() == [18, 19]


def test_a_veto_voids_the_offer() -> None:
    made = offered()
    old = made.offer
    assert arrive(made, [18], now=LATER, ending=1, round_=1) == 1
    assert (made.state, made.round, made.ended) == (ReceiverState.RECEIVING, 1, True)
    assert not made.on_ack(old)
    assert made.evaluate(LATER + 1, QUIET) is Answer.FINAL
    assert made.offer == old + 1
    assert np.flatnonzero(~made.received).tolist() == [19]


def test_a_later_round_without_news_leaves_the_offer_standing() -> None:
    made = offered()
    assert arrive(made, [0, 1], now=LATER, ending=1, round_=1) == 0
    assert made.evaluate(LATER, QUIET) is Answer.FINAL
    assert made.on_ack(made.offer)


# --- the stop rule ------------------------------------------------------------------------


def test_full_needs_no_verdict() -> None:
    assert complete().evaluate(LATER, QUIET) is Answer.NOTHING


def test_never_before_the_pass_has_ended() -> None:
    made = receiver()
    arrive(made, range(19))
    assert made.evaluate(LATER, QUIET) is Answer.NOTHING
    assert made.state is ReceiverState.RECEIVING


def test_at_the_deadline_the_end_of_the_pass_is_not_awaited() -> None:
    made = receiver()
    arrive(made, range(19))
    assert made.evaluate(DEADLINE - 1e-6, QUIET) is Answer.NOTHING
    assert made.evaluate(DEADLINE, QUIET) is Answer.FINAL


@pytest.mark.parametrize("now", [LATER, DEADLINE])
def test_never_while_data_flows(now: float) -> None:
    made = receiver()
    arrive(made, range(19), now=now, ending=1)
    assert made.evaluate(now + QUIET / 2, QUIET) is Answer.NOTHING
    assert made.evaluate(now + 1.01 * QUIET, QUIET) is Answer.FINAL


@pytest.mark.parametrize("now", [LATER, DEADLINE, 1e9])
def test_never_with_a_exempt_segment_missing(now: float) -> None:
    made = receiver(exempt=[19])
    arrive(made, range(19), ending=1)
    assert made.evaluate(now, QUIET) is Answer.NACK
    arrive(made, [19], now=now, round_=1)
    assert made.state is ReceiverState.COMPLETE


def test_exempt_segments_that_arrived_do_not_block() -> None:
    made = receiver(exempt=[0, 5])
    arrive(made, range(18), ending=1)
    assert made.evaluate(LATER, QUIET) is Answer.FINAL


@pytest.mark.parametrize("now", [LATER, DEADLINE, 1e9])
@pytest.mark.parametrize(("got", "answer"), [(18, Answer.FINAL), (17, Answer.NACK)])
def test_the_budget_is_the_bound_also_at_the_deadline(now: float, got: int, answer: Answer) -> None:
    made = receiver(budget=2)
    arrive(made, range(got), ending=1)
    assert made.evaluate(now, QUIET) is answer


@pytest.mark.parametrize("now", [LATER, DEADLINE, 1e9])
def test_a_wholly_silent_sender_is_never_gone_without(now: float) -> None:
    made = receiver(budget=SEGMENTS // 2)
    made.on_end(0, 1)
    assert made.evaluate(now, QUIET) is Answer.NACK


def test_exact_never_offers() -> None:
    made = TransferReceiver(SEGMENTS)
    arrive(made, range(19), ending=1)
    for now in (LATER, DEADLINE, 1e9):
        assert made.evaluate(now, QUIET) is Answer.NACK
    assert made.state is ReceiverState.RECEIVING


def test_nothing_completes_without_the_senders_consent() -> None:
    made = offered()
    for now in (LATER, DEADLINE, 1e9):
        assert made.evaluate(now, QUIET) is Answer.FINAL
        assert made.state is ReceiverState.OFFERED


@pytest.mark.parametrize("offer", [-1, 1])
def test_consent_to_another_offer_is_none(offer: int) -> None:
    made = offered()
    assert not made.on_ack(made.offer + offer)
    assert made.state is ReceiverState.OFFERED


def test_consent_without_an_offer_is_none() -> None:
    made = receiver()
    arrive(made, range(19), ending=1)
    assert not made.on_ack(made.offer)
    assert not complete().on_ack(0)


def test_an_offer_is_repeated_under_its_number() -> None:
    made = offered()
    first = made.offer
    made.evaluate(LATER + 1, QUIET)
    assert made.offer == first
    assert made.attempts == 2
    assert made.on_ack(first)
    assert made.state is ReceiverState.COMPLETE


def test_offers_wrap_in_their_byte() -> None:
    made = receiver()
    made.offer = 255
    arrive(made, range(19), ending=1)
    made.evaluate(LATER, QUIET)
    assert made.offer == 0


# --- rounds -------------------------------------------------------------------------------


def nacked() -> TransferReceiver:
    made = receiver(budget=0)
    arrive(made, range(10), ending=1)
    assert made.evaluate(LATER, QUIET) is Answer.NACK
    return made


def test_the_end_of_a_pass_asks_for_the_next_round() -> None:
    made = nacked()
    assert (made.round, made.ended) == (1, False)


def test_a_lost_nack_is_repeated_for_the_same_round() -> None:
    made = nacked()
    assert made.evaluate(LATER + 1, QUIET) is Answer.NACK
    assert (made.round, made.attempts) == (1, 2)


def test_the_end_of_an_old_pass_is_not_the_end_of_this_one() -> None:
    made = nacked()
    made.on_end(0, 1)
    arrive(made, [10], now=LATER, ending=1, round_=0)
    assert not made.ended
    made.on_end(1, 2)
    assert made.ended


def test_hearing_from_the_sender_resets_the_patience() -> None:
    made = nacked()
    assert made.on_end(0, 1)
    assert made.attempts == 0


def test_hearing_the_same_from_somebody_does_not() -> None:
    made = nacked()
    made.on_end(0, 1)
    made.attempts = 3
    assert not made.on_end(0, 1)
    assert made.attempts == 3


@pytest.mark.parametrize("end", ["data", "END"])
def test_a_receiver_follows_a_sender_that_refused_an_offer_twice(end: str) -> None:
    """Data of its first answer came late, and all but the end of the second was lost. The sender
    would ignore a NACK for its present round."""
    made = offered()
    sender = TransferSender(
        Key(0, 1, 0),
        np.zeros(SEGMENTS * 8, np.uint8),
        0,
        8,
        np.zeros(SEGMENTS, np.uint8),
        np.arange(SEGMENTS),
    )
    sender.take(SEGMENTS, 0)
    for _ in range(2):
        sender.on_veto(np.array([18, 19], np.intp))
    sender.take(SEGMENTS, 0)
    made.budget = None  # the offer was refused: 19 must arrive
    arrive(made, [18], now=LATER, round_=1)
    if end == "data":
        arrive(made, [18], now=LATER, round_=2, ending=1)
    else:
        made.on_end(2, 1)
    assert made.evaluate(LATER + 1, QUIET) is Answer.NACK
    assert sender.on_nack(~made.received, made.round)


def test_a_later_end_leaves_an_offer_standing() -> None:
    made = offered()
    made.on_end(2, 1)
    assert (made.round, made.state) == (0, ReceiverState.OFFERED)
    assert arrive(made, [18], now=LATER, round_=1) == 1, "data of the first answer count"


def test_rounds_end_at_their_limit() -> None:
    made = nacked()
    made.round, made.ended = MAX_ROUND, True
    assert made.evaluate(LATER, QUIET) is Answer.NACK
    assert made.round == MAX_ROUND


steps = st.lists(
    st.one_of(
        st.tuples(st.just("data"), st.integers(0, SEGMENTS - 1), st.booleans(), st.integers(0, 3)),
        st.tuples(st.just("end"), st.integers(0, 3)),
        st.tuples(st.just("evaluate")),
        st.tuples(st.just("ack"), st.integers(0, 3)),
    ),
    max_size=80,
)


@given(steps, st.integers(0, 5), st.sets(st.integers(0, SEGMENTS - 1)))
def test_no_order_of_events_breaks_the_bound(
    happenings: list[tuple[object, ...]], budget: int, exempt: set[int]
) -> None:
    made = receiver(budget, sorted(exempt))
    now, agreed, stamps = 0.0, False, count(1)
    for what, *rest in happenings:
        now += 0.5
        if what == "data":
            arrive(made, [rest[0]], now=now, ending=rest[1], round_=rest[2])  # type: ignore[list-item, arg-type]
        elif what == "end":
            made.on_end(rest[0], next(stamps))  # type: ignore[arg-type]
        elif what == "evaluate":
            made.evaluate(now, QUIET)
        else:
            agreed |= made.on_ack(rest[0])  # type: ignore[arg-type]
        lost = np.flatnonzero(~made.received)
        assert made.missing == len(lost)
        if made.state is ReceiverState.COMPLETE:
            assert len(lost) <= budget
            assert not exempt & set(lost.tolist())
            assert agreed or not len(lost)
