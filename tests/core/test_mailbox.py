"""Messages meet receivers by group, tag and source, the oldest first, each once."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.core.session.mailbox import ANY, Announced, Mailbox, Wanted

MESSAGE = Announced(rank=1, stream=9, number=1, group=2, tag=7)


def wanted(name: str, rank: int = 1, *, group: int = 2, tag: int = 7) -> Wanted[str]:
    return Wanted(group, rank, tag, name)


@pytest.mark.parametrize("rank", [1, ANY])
def test_a_message_goes_to_the_receiver_that_waits(rank: int) -> None:
    box = Mailbox[str]()
    assert box.on_receiver(wanted("a", rank)) is None
    assert box.on_message(MESSAGE) == "a"
    assert box.on_message(replace(MESSAGE, number=2)) is None  # the receiver has got its own
    assert not box.receivers


@pytest.mark.parametrize("rank", [1, ANY])
def test_a_receiver_gets_the_message_that_waits(rank: int) -> None:
    box = Mailbox[str]()
    assert box.on_message(MESSAGE) is None
    assert box.on_receiver(wanted("a", rank)) is MESSAGE
    assert box.on_receiver(wanted("b", rank)) is None
    assert not box.messages


@pytest.mark.parametrize("change", [{"rank": 3}, {"group": 0}, {"tag": 8}], ids=str)
def test_nothing_else_goes_to_it(change: dict[str, int]) -> None:
    box = Mailbox[str]()
    box.on_receiver(wanted("a"))
    assert box.on_message(replace(MESSAGE, **change)) is None
    assert box.messages == [replace(MESSAGE, **change)]
    assert [w.receiver for w in box.receivers] == ["a"]


def test_receivers_are_served_in_order() -> None:
    box = Mailbox[str]()
    for name, rank in (("a", 3), ("b", ANY), ("c", 1)):
        box.on_receiver(wanted(name, rank))
    got = [box.on_message(replace(MESSAGE, number=n)) for n in (1, 2, 3)]
    assert got == ["b", "c", None]


def test_messages_are_taken_in_order_of_arrival_per_tag() -> None:
    box = Mailbox[str]()
    arrived = [replace(MESSAGE, number=n, tag=7 + n % 2) for n in (2, 1, 4, 3)]
    for message in arrived:
        box.on_message(message)
    taken = [box.on_receiver(wanted("r", tag=tag)) for tag in (8, 7, 8, 7)]
    assert [m.number if m else 0 for m in taken] == [1, 2, 3, 4]


def test_what_its_sender_aborted_is_not_delivered() -> None:
    box = Mailbox[str]()
    others = [replace(MESSAGE, rank=3), replace(MESSAGE, stream=8), replace(MESSAGE, number=2)]
    for message in (MESSAGE, *others):
        box.on_message(message)
    box.withdraw(1, 9, 1)
    assert box.messages == others


def test_a_receiver_that_was_cancelled_gets_nothing() -> None:
    box = Mailbox[list[int]]()
    one, other = list[int](), list[int]()  # equal, and not the same
    box.on_receiver(Wanted(2, 1, 7, one))
    box.on_receiver(Wanted(2, 1, 7, other))
    box.cancel(one)
    assert box.on_message(MESSAGE) is other


steps = st.lists(st.tuples(st.booleans(), st.integers(1, 2), st.integers(0, 1)), max_size=30)


@given(steps)
def test_each_message_meets_one_receiver_and_none_waits_for_what_is_there(
    order: list[tuple[bool, int, int]],
) -> None:
    box, met = Mailbox[int](), set[int]()
    for number, (arrives, rank, tag) in enumerate(order):
        if arrives:
            receiver = box.on_message(Announced(rank, rank, number, 0, tag))
            pair = {number, receiver} if receiver is not None else set[int]()
        else:
            message = box.on_receiver(Wanted(0, rank if number % 2 else ANY, tag, number))
            pair = {number, message.number} if message else set[int]()
        assert not pair & met
        met |= pair
        assert not any(w.takes(m) for w in box.receivers for m in box.messages)
    assert len(met) + len(box.receivers) + len(box.messages) == len(order)
