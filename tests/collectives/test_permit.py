"""Segments that a receiver waives without asking, under the sender's PERMIT: the sender learns of
it before it is done, whatever the network loses (P2 to P5)."""

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import copies, draw_whole
from dlcpd.core.wire.header import FLAGS, HEADER_SIZE, KIND, Flag, Kind
from dlcpd.numerics.returning import add_back

COUNT = 6000
NAME = "layer"
ROUND_TRIP = 20e-3


def network(**more: object) -> SimNetwork:
    link = SimLink(loss=0.05, delay=ROUND_TRIP / 2)
    return SimNetwork(3, link, seed=3, segment_size=64, chunk_segments=200, **more)  # type: ignore[arg-type]  # fields of SimNetwork


def is_told(data: bytes) -> bool:
    """Whether it says what its sender has waived."""
    return data[KIND] == Kind.FINAL and bool(data[FLAGS] & Flag.WAIVED)


def is_asked(data: bytes) -> bool:
    return data[KIND] == Kind.FINAL and not data[FLAGS] & Flag.WAIVED


def sent(net: SimNetwork, what: Kind) -> int:
    return sum(each.data[KIND] == what for each in net.recorded or ())


def run(net: SimNetwork, number: int = 1, *, until: float = 30.0) -> list[np.ndarray]:
    held = copies(draw_whole(net.world_size, COUNT, number))
    net.submit_all(number, held, max_loss=0.2, name=NAME, deadline=20.0)
    net.run(until=until, enough=lambda: net.ended(number))
    return held


def is_conserved(net: SimNetwork, held: list[np.ndarray], number: int = 1) -> bool:
    """Whether result and residuals are what was produced, and all ranks hold the same result."""
    net.run()
    owed = np.zeros(COUNT, np.float32)
    for accounts in net.accounts:
        key = (NAME, "float32", COUNT)
        holes = accounts.residuals.take(key)
        add_back(owed.view(np.uint8), holes, "float32")
        accounts.residuals.put(key, holes)
    produced = np.sum(draw_whole(net.world_size, COUNT, number), axis=0)
    same = len({tensor.tobytes() for tensor in held}) == 1
    return same and bool((held[0] + owed == produced).all())


def test_what_a_permit_covers_is_not_asked_for_and_a_round_trip_is_saved() -> None:
    times, asked = [], []
    for lost in (None, Kind.PERMIT):
        net = network(recorded=[])
        net.tamper = lambda _s, _t, data, lost=lost: [] if data[KIND] == lost else [data]
        begun = net.now
        held = run(net)
        times.append(net.now - begun)
        asked.append(sum(is_asked(each.data) for each in net.recorded or ()))
        assert any(is_told(each.data) for each in net.recorded or ()) is (lost is None)
        assert net.done(0)[1].stats.lost
        assert is_conserved(net, held)
    assert times[0] < times[1] - ROUND_TRIP / 2
    assert 3 * asked[0] < asked[1]  # only where the network lost the PERMIT


def test_an_operation_is_not_done_before_its_rank_knows_what_was_waived() -> None:
    """The results arrive, but no FINAL: they wait beside their place."""
    net = network()
    silent = [True]
    net.tamper = lambda _s, t, data: [] if silent[0] and t == 1 and is_told(data) else [data]
    held = run(net, until=3.0)
    assert 1 in net.done(0)
    assert 1 in net.done(2)
    assert not net.done(1)
    assert not net.failed(1)
    assert net.done(0)[1].stats.lost or net.done(2)[1].stats.lost
    silent[0] = False
    net.run(until=3.0)
    assert 1 in net.done(1)
    assert is_conserved(net, held)


def test_without_any_final_it_fails_at_its_deadline_and_names_the_rank() -> None:
    net = network()
    net.tamper = lambda s, t, data: [] if (s, t) == (2, 1) and is_told(data) else [data]
    run(net)
    net.run()
    failed = net.failed(1)[1]
    assert failed.code == "deadline_exceeded"
    assert "rank(s) 2 to take their data" in failed.text


def test_a_lost_ack_is_asked_for_again_and_booked_once() -> None:
    net = network(recorded=[])
    lost = [0]

    def tamper(_source: int, _target: int, data: bytes) -> list[bytes]:
        lost[0] += data[KIND] == Kind.ACK
        return [] if data[KIND] == Kind.ACK and lost[0] <= 20 else [data]

    net.tamper = tamper
    held = run(net)
    assert is_conserved(net, held)
    assert sent(net, Kind.ACK) > 20
    assert not any(session.operations for session in net.sessions)


def test_a_rank_that_waives_without_a_permit_is_named() -> None:
    """It claims 96 segments of a transfer."""

    def tamper(source: int, _target: int, data: bytes) -> list[bytes]:
        greedy = source == 2 and is_told(data)
        return [
            data[:HEADER_SIZE] + bytes([0xFF] * 12) + data[HEADER_SIZE + 12 :] if greedy else data
        ]

    net = network(tamper=tamper)
    run(net)
    failed = [net.failed(rank)[1] for rank in (0, 1) if net.failed(rank)]
    assert failed
    assert {each.code for each in failed} == {"ranks_disagree"}
    assert all("rank 2 went without data" in each.text for each in failed)


def test_a_repeated_final_after_the_end_changes_nothing() -> None:
    net = network(recorded=[])
    held = run(net)
    assert is_conserved(net, held)
    residuals = [accounts.residuals.size for accounts in net.accounts]
    for each in [each for each in net.recorded or () if each.data[KIND] == Kind.FINAL]:
        net.inject(each.target, each.data)
    net.run()
    assert [accounts.residuals.size for accounts in net.accounts] == residuals
    assert is_conserved(net, held)


@pytest.mark.parametrize("size", [0, 1, 400])
def test_a_permit_of_another_size_is_refused(size: int) -> None:
    net = network()

    def tamper(_source: int, _target: int, data: bytes) -> list[bytes]:
        return [data[:40] + bytes(size)] if data[KIND] == Kind.PERMIT else [data]

    net.tamper = tamper
    held = run(net)
    assert is_conserved(net, held)
    assert net.counted("length")


def test_a_rank_that_dies_before_it_books_takes_its_residual_with_it() -> None:
    net = network(peer_timeout=1.0)
    net.tamper = lambda _s, t, data: [] if t == 1 and is_told(data) else [data]
    run(net, until=1.0)
    owners = {row.owner for rank in (0, 2) for row in net.accounts[rank].ledger if row.sender == 1}
    assert owners == {0, 2}  # counted there
    assert not any(row.sender == 1 for row in net.accounts[1].ledger)
    net.cut.add(1)
    net.run()
    for rank in (0, 2):
        code, text = net.sessions[rank].broken or ("", "")
        assert code == "peer_lost"
        assert "waiting for rank(s) 1 to take their data of operation 1" in text
