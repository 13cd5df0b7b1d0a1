"""What a session remembers is bounded, and what it is told too late changes nothing."""

import numpy as np

from dlcpd.contract.errors import BadPolicy, OperationAborted
from dlcpd.core.events import Stats
from dlcpd.core.sender import TransferSender
from dlcpd.core.session import MAX_AHEAD, MAX_LEDGER, LedgerRow
from dlcpd.core.wire import Kind
from tests.sim.network import SimNetwork
from tests.sim.reference import draw, rank_ordered


def row(number: int) -> LedgerRow:
    return LedgerRow(number, "n", 0, 1, 0, 1, {0: 1})


def test_the_ledger_keeps_the_newest_rows() -> None:
    session = SimNetwork(2).sessions[0]
    for number in range(3 * MAX_LEDGER):
        session.record(row(number))
    assert len(session.ledger) <= MAX_LEDGER
    assert session.ledger[-1] == row(3 * MAX_LEDGER - 1)


def test_failed_operations_are_remembered_up_to_a_bound() -> None:
    net = SimNetwork(2)
    session = net.sessions[0]
    for number in range(1, MAX_AHEAD + 11):
        session.refuse(number, BadPolicy("no"))
    key = (MAX_AHEAD + 10, Kind.PUSH, 0)
    assert session.open_incoming(1, key) == "failed"
    assert session.open_incoming(1, (1, Kind.PUSH, 0)) == "stale"  # forgotten, refused all the same


def test_a_refused_operation_takes_its_number() -> None:
    net = SimNetwork(2)
    parts = draw("float32", 2, 500, 1)
    net.submit(1, 1, parts[1].copy())
    net.run(until=0.1)
    net.sessions[0].refuse(1, BadPolicy("min cannot lose anything"))
    net.abort(1, 1, OperationAborted("rank 0: min cannot lose anything"))
    net.run(until=0.1)
    assert net.failed(0)[1].code == "bad_policy"
    expected = rank_ordered(parts, "float32", "sum")
    net.submit_all(2, parts)
    net.run()
    assert all((part == expected).all() for part in parts)


def test_consent_for_an_operation_that_is_over_keeps_nothing() -> None:
    session = SimNetwork(2).sessions[0]
    sender = TransferSender(
        (9, Kind.PUSH, 0), np.zeros(64, np.uint8), 0, 64, np.zeros(1, np.uint8), np.arange(1)
    )
    assert not len(session.on_given_up(1, sender, np.arange(1)))
    assert session.residuals.size == 0


def test_a_digest_that_came_before_our_own_result_is_compared_with_it() -> None:
    session = SimNetwork(2).sessions[0]
    assert session.digests.check(1, 5, 0xBAD)
    session.done(5, released=True, stats=Stats(), digest=0x600D)
    code, text = session.broken or ("", "")
    assert code == "replica_divergence"
    assert "operation 5" in text
