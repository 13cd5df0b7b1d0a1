"""What the peer is owed waits for company, but not for long; what it asks for goes everywhere."""

from collections import Counter

import pytest

from dlcpd.core.paths.paths import Paths
from dlcpd.core.paths.rtt import MIN_RTO
from dlcpd.core.session.outbox import ANSWER_DELAY, COMPANY, LONGEST_DELAY, Outbox
from dlcpd.core.wire.control import MAX_LISTED, body_untrusted, unpack_transfers_untrusted
from dlcpd.core.wire.header import Header, Key, Kind

TOKEN, GRANT = 0xABC, 1 << 20


def outbox(paths: int = 1) -> Outbox:
    return Outbox(1, TOKEN, Paths.new(paths))


def taken(box: Outbox, now: float) -> list[tuple[Kind, int]]:
    """(kind, path) of what leaves."""
    return [(Header.unpack_untrusted(c.data).kind, c.path) for c in box.take(now, GRANT)]


def test_what_is_owed_waits_at_most_the_delay() -> None:
    box = outbox()
    box.complete.append(Key(0, 1, 0))
    assert taken(box, 5.0) == []
    assert box.answer_at == 5.0 + ANSWER_DELAY
    box.answer(box.answer_at, GRANT)
    assert taken(box, 5.1) == [(Kind.COMPLETE, 0)]
    assert box.answer_at is None


def test_it_goes_along_with_what_leaves_once_that_is_worth_it() -> None:
    box = outbox()
    box.heard_ready.add((0, 7))
    taken(box, 5.0)
    box.put(Header(Kind.PING, TOKEN))
    assert taken(box, 5.0 + COMPANY / 2) == [(Kind.PING, 0)]
    box.put(Header(Kind.PING, TOKEN))
    assert taken(box, 5.0 + COMPANY) == [(Kind.PING, 0), (Kind.READY_ACK, 0)]


@pytest.mark.parametrize(
    ("margin", "delay"),
    [(0.0, ANSWER_DELAY), (3e-3, ANSWER_DELAY), (16e-3, 8e-3), (1.0, LONGEST_DELAY)],
)
def test_an_answer_waits_half_of_the_margin_of_timers(margin: float, delay: float) -> None:
    """On a slow link datagrams come alone: each of them would have an answer of its own."""
    box = outbox()
    rtt = box.paths.space(0, 4).rtt
    rtt.smoothed, rtt.variation, rtt.measured = MIN_RTO - 3e-3, margin / 4, margin > 0
    assert box.paths.tx[0].margin == margin
    box.complete.append(Key(0, 1, 0))
    assert taken(box, 5.0) == []
    assert box.answer_at == 5.0 + delay
    box.put(Header(Kind.PING, TOKEN))
    assert taken(box, 5.0 + COMPANY) == [(Kind.PING, 0), (Kind.COMPLETE, 0)]


def test_a_peer_that_asks_is_answered_at_once() -> None:
    box = outbox()
    box.paths.rx.on_arrival(0, 4, 3, 3, 0.0)
    box.paths.rx.on_ask(0, 4)
    assert taken(box, 5.0) == [(Kind.CREDIT, 0)]
    assert taken(box, 5.1) == []


def test_credit_takes_all_routes_alike_also_for_a_peer_whose_bursts_take_turns() -> None:
    box, seen = outbox(paths=4), [Counter[int]() for _ in range(4)]
    for number in range(1, 401):
        box.paths.rx.on_arrival(0, 4, 1, number, 0.0)
        box.paths.rx.on_ask(0, 4)
        seen[number % 4].update(path for _, path in taken(box, float(number)))
    for answers in seen:  # 25 on each route, give or take three times their deviation
        assert set(answers) == {0, 1, 2, 3}
        assert all(12 <= count <= 38 for count in answers.values())


def test_the_answer_to_a_ping_goes_out_on_every_route() -> None:
    box = outbox(paths=3)
    box.pinged = True
    box.complete.append(Key(0, 1, 4))
    box.paths.rx.on_ask(1, 0)
    answers = taken(box, 5.0)
    for kind in (Kind.CREDIT, Kind.COMPLETE):
        assert sorted(path for k, path in answers if k is kind) == [0, 1, 2]
    assert not box.pinged


def test_what_all_must_hear_leaves_once_per_route() -> None:
    box = outbox(paths=4)
    for path, spine in enumerate("abab"):
        box.paths.routes.learn(path, [spine])
    box.paths.regroup()
    box.put_everywhere(Header(Kind.READY, TOKEN, 1), b"")
    assert sorted(path for _, path in taken(box, 5.0)) == [0, 1]


def test_an_answer_is_expected_where_it_was_asked_for() -> None:
    box = outbox(paths=2)
    box.put(Header(Kind.PING, TOKEN), path=1)
    assert [path.expecting for path in box.paths.tx] == [False, True]


def test_a_ready_says_that_its_operation_is_complete() -> None:
    box = outbox()
    box.complete += [Key(0, 1, 0), Key(0, 2, 0), Key(5, 1, 0)]
    box.imply_complete(0, 1)
    assert box.complete == [Key(0, 2, 0), Key(5, 1, 0)]


def test_a_ready_says_that_the_peers_ready_of_its_operation_has_come() -> None:
    box = outbox()
    box.heard_ready |= {(0, 1), (0, 2), (5, 1)}
    box.imply_complete(0, 1)
    assert box.heard_ready == {(0, 2), (5, 1)}
    box.imply_complete(0, 9)  # no such
    assert box.heard_ready == {(0, 2), (5, 1)}


def complete_lists(box: Outbox) -> list[tuple[int, int, list[int]]]:
    """(stream, operation, transfers) of what COMPLETE tells."""
    told = []
    for sent in box.take(5.0, GRANT):
        header = Header.unpack_untrusted(sent.data)
        if header.kind is Kind.COMPLETE:
            transfers = unpack_transfers_untrusted(body_untrusted(sent.data))
            told.append((header.stream, header.operation, transfers))
    return told


def test_complete_tells_of_one_operation_of_one_stream_at_a_time() -> None:
    box = outbox()
    box.complete += [Key(1, 2, 0), Key(0, 2, 7), Key(1, 2, 3), Key(0, 1, 1)]
    box.answer(5.0, GRANT)
    assert complete_lists(box) == [(0, 1, [1]), (0, 2, [7]), (1, 2, [0, 3])]


def test_a_long_list_of_what_is_complete_goes_in_parts() -> None:
    box = outbox()
    box.complete += [Key(0, 1, transfer) for transfer in range(2 * MAX_LISTED + 1)]
    box.answer(5.0, GRANT)
    told = complete_lists(box)
    assert [len(transfers) for _, _, transfers in told] == [MAX_LISTED, MAX_LISTED, 1]
    assert [t for _, _, part in told for t in part] == list(range(2 * MAX_LISTED + 1))


def test_ready_is_acknowledged_by_stream() -> None:
    box = outbox()
    box.heard_ready |= {(1, 7), (0, 7)}
    box.answer(5.0, GRANT)
    told = [Header.unpack_untrusted(sent.data) for sent in box.take(5.0, GRANT)]
    acks = [(h.stream, h.operation) for h in told if h.kind is Kind.READY_ACK]
    assert acks == [(0, 7), (1, 7)]


def test_complete_leaves_twice_on_a_long_path_that_loses() -> None:
    box = outbox()
    space = box.paths.space(0, 4)
    space.rtt.update(0.02)
    box.complete.append(Key(0, 1, 0))
    box.answer(5.0, GRANT)
    assert (taken(box, 5.0), box.answer_at) == ([(Kind.COMPLETE, 0)], None)
    space.sent = space.acked = 1000
    space.lost = 10
    box.complete.append(Key(0, 1, 1))
    box.answer(6.0, GRANT)
    assert (taken(box, 6.0), box.answer_at) == ([(Kind.COMPLETE, 0)], 6.0 + ANSWER_DELAY)
    box.answer(6.1, GRANT)
    assert (taken(box, 6.1), box.answer_at) == ([(Kind.COMPLETE, 0)], None)
