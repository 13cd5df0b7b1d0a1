"""Results are compared by digest: with READYs, and at the end of a session."""

from dlcpd.contract.errors import PeerLost
from dlcpd.core.session.digests import Digest
from dlcpd.core.session.events import Concluded, Stats
from dlcpd.core.session.session import Session
from dlcpd.core.timers import Timer
from dlcpd.core.wire.control import (
    DigestRow,
    body_untrusted,
    pack_digests,
    unpack_digests_untrusted,
)
from dlcpd.core.wire.header import Flag, Header, Kind
from tests.core.operations import NOW, PlainOperation, begun, session

GOOD, BAD = 0x600D, 0xBAD


def finish(of: Session, value: int = GOOD) -> PlainOperation:
    operation = begun(of)
    operation.done = True
    of.done(operation, NOW, stats=Stats(), digest=Digest(value, operation.label))
    return operation


def say(of: Session, rank: int, *rows: DigestRow, flags: Flag = Flag.NONE) -> None:
    """DIGESTS of `rank`."""
    header = Header(Kind.DIGESTS, rank, flags=flags)
    of.replicas.on_digests(of.flows[rank], header, pack_digests(list(rows)))


def said(of: Session, rank: int) -> list[tuple[Flag, list[DigestRow]]]:
    """DIGESTS that wait to go out to `rank`; all control is taken away."""
    outbox = of.flows[rank].outbox
    waiting, outbox.waiting = outbox.waiting, []
    heads = [(Header.unpack_untrusted(each.data), each.data) for each in waiting]
    return [
        (Flag(head.flags), list(unpack_digests_untrusted(body_untrusted(data))))
        for head, data in heads
        if head.kind is Kind.DIGESTS
    ]


def concluded(of: Session) -> list[int]:
    return [e.unconfirmed for e in of.outcomes.take() if isinstance(e, Concluded)]


def test_another_result_breaks_the_session() -> None:
    made = session()
    finish(made)
    say(made, 1, DigestRow(1, True, GOOD))
    assert not made.broken
    say(made, 2, DigestRow(1, True, BAD))
    [code, text] = made.outcomes.broken or ("", "")
    assert code == "replica_divergence" and "rank 2 on host2" in text and "operation 1" in text


def test_a_digest_that_came_first_is_compared_with_the_result() -> None:
    made = session()
    say(made, 1, DigestRow(1, True, BAD))
    assert made.broken is None
    finish(made)
    assert made.broken is not None


def test_a_question_is_answered_with_the_digests_of_finished_operations() -> None:
    made = session()
    finish(made)
    begun(made, 2)
    said(made, 1)
    rows = [DigestRow(number, False, 0) for number in (1, 2, 3)]
    say(made, 1, *rows, flags=Flag.ASK)
    assert said(made, 1) == [(Flag.NONE, [DigestRow(1, True, GOOD)])]


def test_the_end_asks_every_peer_until_all_have_answered() -> None:
    made = session()
    finish(made)
    made.conclude(NOW, NOW + 1.0)
    made.conclude(NOW, NOW + 2.0)  # asked twice, said once
    for rank in (1, 2):
        assert said(made, rank) == [(Flag.ASK, [DigestRow(1, True, GOOD)])]
    say(made, 1, DigestRow(1, True, GOOD))
    assert concluded(made) == [] and made.timers.pending((made, Timer.DIGESTS, None))
    say(made, 2, DigestRow(1, True, GOOD))
    assert concluded(made) == [0] and not made.timers.pending((made, Timer.DIGESTS, None))


def test_the_end_waits_no_longer_than_it_may() -> None:
    made = session()
    finish(made)
    made.conclude(NOW, NOW + 1.0)
    say(made, 1, DigestRow(1, True, GOOD))
    made.handle_timer(Timer.DIGESTS, None, NOW + 0.1)
    assert concluded(made) == []
    made.handle_timer(Timer.DIGESTS, None, NOW + 1.0)
    assert concluded(made) == [1]


def test_ranks_that_are_gone_or_lost_are_not_asked() -> None:
    made = session(4)
    finish(made)
    made.peer_gone(1, PeerLost("rank 1 ended"), NOW)
    made.fail_all(2, PeerLost("rank 2 is silent"))
    made.conclude(NOW, NOW + 1.0)
    assert [bool(said(made, rank)) for rank in (1, 2, 3)] == [False, False, True]
    say(made, 3, DigestRow(1, True, GOOD))
    assert concluded(made) == [0]
