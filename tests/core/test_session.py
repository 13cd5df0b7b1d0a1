"""What a session remembers is bounded, and what it is told too late changes nothing."""

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimNetwork
from dlcp_lab.simulation.reference import draw, rank_ordered
from dlcpd.collectives.loss.accounts import MAX_LEDGER, Accounts, LedgerRow
from dlcpd.contract.errors import BadPolicy, MalformedDatagram, OperationAborted
from dlcpd.core.session.digests import Digest
from dlcpd.core.session.events import OperationDone, OperationFailed, Stats
from dlcpd.core.session.stream import MAX_AHEAD, MAX_HELD, MAX_STREAMS
from dlcpd.core.session.stream_ids import EVERYBODY, MESSAGES, UPWARD
from dlcpd.core.transfer.sender import TransferSender
from dlcpd.core.wire.control import Ready
from dlcpd.core.wire.header import Header, Key, Kind


def row(number: int) -> LedgerRow:
    return LedgerRow(number, "n", 0, 1, 0, 1, 9, {0: 1})


def test_the_ledger_keeps_the_newest_rows() -> None:
    accounts = Accounts()
    for number in range(3 * MAX_LEDGER):
        accounts.record(row(number))
    assert len(accounts.ledger) <= MAX_LEDGER
    assert accounts.ledger[-1] == row(3 * MAX_LEDGER - 1)


def test_failed_operations_are_remembered_up_to_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlcpd.core.session.stream.MAX_FAILED", MAX_AHEAD)
    net = SimNetwork(2)
    session = net.sessions[0]
    for number in range(1, MAX_AHEAD + 11):
        session.refuse(number, 0, (0, 1), BadPolicy("no"))
    assert session.callbacks.open_incoming(1, Key(0, MAX_AHEAD + 10, 0)) == "failed"
    oldest = session.callbacks.open_incoming(1, Key(0, 1, 0))
    assert oldest == "stale"  # forgotten, refused all the same


def test_a_refused_operation_takes_its_number() -> None:
    net = SimNetwork(2)
    parts = draw("float32", 2, 500, 1)
    net.submit(1, 1, parts[1].copy())
    net.run(until=0.1)
    net.sessions[0].refuse(1, 0, (0, 1), BadPolicy("min cannot lose anything"))
    net.abort(1, 1, OperationAborted("rank 0: min cannot lose anything"))
    net.run(until=0.1)
    assert net.failed(0)[1].code == "bad_policy"
    assert net.failed(0)[1].ranks == (1,)
    expected = rank_ordered(parts, "float32", "sum")
    net.submit_all(2, parts)
    net.run()
    assert all((part == expected).all() for part in parts)


def test_consent_for_an_operation_that_is_over_keeps_nothing() -> None:
    net = SimNetwork(2)
    sender = TransferSender(
        Key(0, 9, 0), np.zeros(64, np.uint8), 0, 64, np.zeros(1, np.uint8), np.arange(1)
    )
    assert not len(net.sessions[0].callbacks.on_waived(1, sender, np.arange(1), told=False))
    assert net.accounts[0].residuals.size == 0


def test_a_digest_that_came_before_our_own_result_is_compared_with_it() -> None:
    net = SimNetwork(2)
    session = net.sessions[0]
    session.submit(net.operation(0, 1, np.ones(8, np.float32)), 0, net.now)
    operation = net.open(0, 1)
    assert session.streams.open(0, EVERYBODY).digests.check(1, 1, 0xBAD)
    session.done(operation, net.now, stats=Stats(), digest=Digest(0x600D, operation.label))
    code, text = session.broken or ("", "")
    assert code == "replica_divergence"
    assert "operation 1" in text


# --- streams that a peer names ------------------------------------------------------------


def hear(net: SimNetwork, stream: int, number: int = 1, *, rank: int = 1) -> None:
    """READY of `rank` at rank 0."""
    session, ready = net.sessions[0], Ready("x", 0, 128)
    header = Header(Kind.READY, net.token(0, rank), number, stream)
    session.rendezvous.on_ready(session.flows[rank], header, ready.pack(), net.now)


def test_a_stream_that_cannot_be_is_refused() -> None:
    net = SimNetwork(2)
    with pytest.raises(MalformedDatagram) as caught:
        hear(net, MESSAGES)
    assert caught.value.reason == "stream"
    assert not net.sessions[0].streams


def test_a_peer_can_make_us_remember_so_many_streams() -> None:
    net = SimNetwork(2)
    for number in range(MAX_STREAMS):
        hear(net, number)
    with pytest.raises(MalformedDatagram) as caught:
        hear(net, UPWARD)
    assert caught.value.reason == "stream"
    hear(net, MAX_STREAMS - 1, 2)  # of one that is known
    assert len(net.sessions[0].streams) == MAX_STREAMS
    net.sessions[0].abort(1, UPWARD, 1, OperationAborted("no"), net.now)
    assert len(net.sessions[0].streams) == MAX_STREAMS


def test_a_peer_can_make_us_remember_so_many_operations() -> None:
    """Over all streams. One that is not remembered is not answered either, so it comes again."""
    net = SimNetwork(3)
    for number in range(MAX_HELD):
        hear(net, number % 3, 1 + number // 3)
    [flow, other] = [net.sessions[0].flows[rank] for rank in (1, 2)]
    flow.outbox.heard_ready.clear()
    hear(net, 0, 900)
    assert not flow.outbox.heard_ready
    hear(net, 0, 1)  # known
    hear(net, 0, 900, rank=2)  # of another peer
    assert flow.outbox.heard_ready == {(0, 1)}
    assert other.outbox.heard_ready == {(0, 900)}
    assert net.sessions[0].streams[0, EVERYBODY].take(1, 1) is not None
    hear(net, 0, 900)
    assert (0, 900) in flow.outbox.heard_ready


def test_aborts_that_come_early_are_remembered_up_to_a_bound() -> None:
    net, error = SimNetwork(2), OperationAborted("no")
    session = net.sessions[0]
    for number in range(MAX_HELD + 10):
        session.abort(1, number % 4, 1 + number // 4, error, net.now)
    streams = [session.streams[wire, EVERYBODY] for wire in range(4)]
    last = MAX_HELD // 4
    assert [s.aborted_ahead(last) for s in streams] == [error] * 4
    assert [s.aborted_ahead(last + 1) for s in streams] == [None] * 4
    session.abort(1, 0, last + 1, error, net.now)  # there is room again
    assert streams[0].aborted_ahead(last + 1) is error


def test_what_is_aborted_of_a_stream_that_cannot_be_is_not_remembered() -> None:
    net = SimNetwork(2)
    net.sessions[0].abort(1, MESSAGES, 1, OperationAborted("no"), net.now)
    assert not net.sessions[0].streams


def test_messages_of_two_ranks_have_streams_of_their_own() -> None:
    """Both call theirs alike: it is the pair that tells them apart."""
    net = SimNetwork(3)
    stream = UPWARD | 5
    for rank in (1, 2):
        hear(net, stream, rank=rank)
    assert set(net.sessions[0].streams) == {(stream, 1), (stream, 2)}


def test_a_message_the_wrong_way_is_not_offered_to_a_receiver() -> None:
    """Rank 0 itself numbers the messages upward; a READY of that stream from rank 1 is none."""
    net = SimNetwork(2)
    hear(net, UPWARD)
    assert not net.sessions[0].mailbox.messages


def test_only_its_members_hear_of_what_a_group_cannot_begin() -> None:
    session = SimNetwork(3).sessions[0]
    session.refuse(1, 5, (0, 2), BadPolicy("no"))
    [failed] = session.outcomes.take()
    assert isinstance(failed, OperationFailed)
    assert (failed.stream, failed.number, failed.ranks) == (5, 1, (2,))


def test_operations_count_over_all_streams() -> None:
    net = SimNetwork(2)
    for group in (0, 1, 1):
        net.sessions[0].refuse(1, group, (0, 1), BadPolicy("no"))
    assert net.sessions[0].begun == 3


def test_the_number_of_a_ready_far_ahead_is_not_acknowledged() -> None:
    net = SimNetwork(2)
    heard = net.sessions[0].flows[1].outbox.heard_ready
    hear(net, 0, MAX_AHEAD)
    assert heard == {(0, MAX_AHEAD)}
    hear(net, 0, MAX_AHEAD + 1)
    assert heard == {(0, MAX_AHEAD)}
    assert len(net.sessions[0].streams.open(0, EVERYBODY).announced[1]) == 1


def test_a_ready_of_what_is_over_is_acknowledged() -> None:
    net = SimNetwork(2)
    net.submit_all(1, draw("float32", 2, 100, 1))
    net.run()
    assert isinstance(net.events[0][0], OperationDone)
    hear(net, 0, 1)
    assert net.sessions[0].flows[1].outbox.heard_ready == {(0, 1)}


def test_accounts_add_up_losses_by_peer_and_by_path() -> None:
    accounts = Accounts()
    accounts.record(LedgerRow(1, "w", 0, 2, 0, 5, 100, {0: 3, 1: 2}))  # this rank sent them
    accounts.record(LedgerRow(2, "w", 0, 2, 0, 1, 100, {1: 1}))
    accounts.record(LedgerRow(1, "w", 2, 0, 0, 7, 100, {}))  # this rank went without them
    assert accounts.waived == {(2, 0): 3, (2, 1): 3}
    assert accounts.lost == {2: 7}
