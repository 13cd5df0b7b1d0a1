"""Operations in which clients compute, over bad networks, with slow, mute and lost clients."""

from typing import Any

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import draw_whole
from dlcpd.contract.errors import OperationAborted, PeerLost
from dlcpd.core.session.events import OperationDue
from dlcpd.numerics.elements import narrow, widen
from dlcpd.schedules.builders.hierarchical import Hosts
from dlcpd.schedules.model import Compute, Send
from dlcpd.schedules.proof.interpreter import Bytes, interpret
from tests.collectives.computing import SimClients
from tests.collectives.test_conservation import kept_by_all
from tests.collectives.test_divergence import FlipResult
from tests.collectives.test_divergence import network as flipping
from tests.collectives.test_random_schedules import (
    CASES,
    EACH,
    assert_nothing_left,
    network,
    submit,
)
from tests.schedules.computations import backwards
from tests.schedules.random_schedules import random_schedule

COUNT = 3000  # elements
BAD = SimLink(loss=0.1, duplicate=0.05, jitter=1e-3)


def doubled(rank: int, step: Compute, source: Bytes, target: Bytes) -> None:
    target.view(np.float32)[:] = 2 * source.view(np.float32)


def copied(rank: int, step: Compute, source: Bytes, target: Bytes) -> None:
    target[:] = source


def rounded(values: np.ndarray) -> np.ndarray:
    """To bfloat16."""
    given = np.asarray(values, np.float32)
    return widen(narrow(given, "bfloat16"), "bfloat16").astype(given.dtype)


def clients(world: int = 3, link: SimLink = BAD, *, seed: int = 1, **options: Any) -> SimClients:
    net = SimNetwork(world, link, seed=seed, segment_size=64, chunk_segments=20)
    return SimClients(net, doubled, seed, **options)


def run(seed: int) -> int:
    """One random schedule; returns the steps that clients computed."""
    net = network(seed)
    made = random_schedule(seed, net.world_size, most=1 << 10 + seed % 4, computes=True)
    compute = backwards(made.dtype)
    expected = interpret(
        made.programs,
        made.inputs,
        outputs=made.outputs,
        dtype=made.dtype,
        op=made.op,
        compute=compute,
    )
    operations = submit(net, made, 1, in_place=bool(seed % 2))
    trainers = SimClients(net, compute, seed)
    trainers.operations = {(rank, 1): operation for rank, operation in enumerate(operations)}
    trainers.run()
    for rank, operation in enumerate(operations):
        assert operation.memory[1].tobytes() == expected[rank].tobytes(), f"schedule {seed}"
        assert set(net.done(rank)) == net.released(rank) == {1}
        assert_nothing_left(net, rank, operation)
    assert not trainers.due
    return trainers.computed


@pytest.mark.parametrize("first", CASES)
def test_random_schedules(first: int) -> None:
    assert sum(map(run, range(first, first + EACH))) > 2 * EACH


@pytest.mark.parametrize(
    ("world", "hosts"),
    [(1, ()), (2, ()), (3, ()), (5, ()), (4, ((0, 2), (1, 3))), (5, ((3, 0, 1), (4, 2)))],
)
def test_all_ranks_get_what_the_owners_compute(world: int, hosts: Hosts) -> None:
    trainers = clients(world)
    held = {}
    for number in (1, 2, 3):
        parts = draw_whole(world, COUNT, number)
        held[number] = 2 * np.sum(parts, axis=0), trainers.submit_all(number, parts, hosts=hosts)
    trainers.run()
    for expected, outputs in held.values():
        assert all(np.array_equal(output, expected) for output in outputs)
    assert all(session.broken is None for session in trainers.net.sessions)


def test_what_is_lost_before_a_computation_comes_back_in_the_next() -> None:
    trainers = clients(link=SimLink(loss=0.2, jitter=1e-3))
    trainers.compute = copied
    net, produced, delivered = trainers.net, np.zeros(COUNT), np.zeros(COUNT)
    for number in (1, 2, 3):
        parts = draw_whole(3, COUNT, number)
        produced += np.sum(parts, axis=0)
        outputs = trainers.submit_all(number, parts, max_loss=0.25, name="layer")
        trainers.run()
        delivered += outputs[0]
        assert all(np.array_equal(outputs[0], other) for other in outputs)
        assert (delivered + kept_by_all(net, "layer", COUNT) == produced).all()
    assert sum(done.stats.waived for done in net.done(0).values()) > 0


@pytest.mark.parametrize("hosts", [(), ((0, 2), (1, 3))])
def test_results_travel_rounded_and_contributions_as_they_are(hosts: Hosts) -> None:
    """What a bound waives comes back whole; what rounding takes stays with the client."""
    world = 4
    trainers = clients(world, SimLink(loss=0.2, jitter=1e-3))
    trainers.compute = copied
    net, produced, delivered = trainers.net, np.zeros(COUNT), np.zeros(COUNT)
    bounds = {} if hosts else {"max_loss": 0.25}
    for number in (1, 2, 3):
        parts = draw_whole(world, COUNT, number)
        produced += np.sum(parts, axis=0)
        outputs = trainers.submit_all(
            number, parts, hosts=hosts, name="layer", codec="bf16", **bounds
        )
        trainers.run()
        sums = trainers.sums(number)
        delivered += sums
        for output in outputs:
            assert np.array_equal(output, rounded(sums)), "on its owner, too"
    assert (rounded(delivered) != delivered).any()
    assert (delivered + kept_by_all(net, "layer", COUNT) == produced).all()
    assert bool(hosts) or sum(done.stats.waived for done in net.done(0).values()) > 0


@pytest.mark.parametrize("codec", ["", "bf16"])
def test_results_yield_to_contributions(codec: str) -> None:
    trainers = clients(link=SimLink())
    trainers.submit_all(1, draw_whole(3, COUNT, 1), codec=codec)
    trainers.run()
    for operation in trainers.operations.values():
        steps, senders = operation.program.steps, operation.sends.senders
        results = {at for at, step in enumerate(steps) if isinstance(step, Send) and step.after}
        assert {at for at, sender in senders.items() if sender.yields} == results
        assert 0 < len(results) < len(senders)


@pytest.mark.parametrize("wrong", [(), (1,)])
def test_a_computed_result_that_differs_on_one_rank_breaks_the_session(wrong: tuple[int]) -> None:
    tamper = FlipResult(*wrong)
    trainers = SimClients(flipping(2, tamper=tamper), doubled)
    for number in (1, 2):
        trainers.submit_all(number, draw_whole(2, COUNT, number))
        trainers.run()
    assert bool(tamper.flipped) == bool(wrong)
    for session in trainers.net.sessions:
        code, text = session.broken or ("", "chunk 0 (bytes 0 to")
        assert (code == "replica_divergence") == bool(wrong)
        assert "chunk 0 (bytes 0 to" in text


def test_a_client_that_never_answers_is_named_and_other_groups_go_on() -> None:
    trainers = clients(3, SimLink(), mute=frozenset({1}))
    net = trainers.net
    trainers.submit_all(1, draw_whole(3, COUNT, 1), deadline=1.0)
    net.run(until=0.1)
    net.submit_all(2, [np.ones(COUNT, np.float32) for _ in range(3)])
    for _ in range(100):
        net.run(until=0.02)
        net.now += 0.02
        trainers.look()
        for rank, due in [pair for pair in trainers.due if pair[0] != 1]:
            trainers.due.remove((rank, due))
            trainers.answer(rank, due)
    for rank in range(3):
        assert 2 in net.done(rank) and 1 not in net.done(rank)
    assert net.failed(1)[1].code == "deadline_exceeded"
    assert "waiting for this rank's trainer to compute bytes 4032.." in net.failed(1)[1].text
    for rank in (0, 2):
        assert "waiting for data of rank(s) 1 for operation 1" in net.failed(rank)[1].text


def test_an_answer_that_is_too_late_or_of_no_step_changes_nothing() -> None:
    trainers = clients(2, SimLink())
    trainers.submit_all(1, draw_whole(2, COUNT, 1))
    operation = trainers.operations[0, 1]
    assert not operation.on_computed(0, trainers.net.now), "a send is no step of the client"
    assert not operation.on_computed(1 << 20, trainers.net.now)
    computes = [at for at, step in enumerate(operation.program.steps) if isinstance(step, Compute)]
    assert not any(operation.on_computed(at, trainers.net.now) for at in computes), "not reduced"
    trainers.net.run()
    trainers.look()
    due = next(event for rank, event in trainers.due if not rank)
    trainers.net.abort(0, 1, OperationAborted("rank 1 aborted"))
    before = list(trainers.net.events[0])
    trainers.answer(0, due)
    trainers.net.run()
    assert trainers.net.events[0] == before


def test_a_rank_lost_between_due_and_computed_is_named_at_once() -> None:
    trainers = clients(3, SimLink())
    net = trainers.net
    trainers.submit_all(1, draw_whole(3, COUNT, 1))
    net.run(until=0.1)
    trainers.look()
    assert {rank for rank, _ in trainers.due} == {0, 1, 2}
    for rank in (0, 2):  # as control does when it hears that the client of rank 1 has ended
        session = net.sessions[rank]
        session.peer_gone(1, PeerLost("rank 1 is gone", session.peer(1)), net.now)
        net.run(until=0.0)
        assert net.failed(rank)[1].peer.rank == 1


def test_a_recording_shows_when_a_step_was_due_and_computed() -> None:
    trainers = clients(2, SimLink())
    for endpoint in trainers.net.endpoints:
        endpoint.trace.start()
    trainers.submit_all(1, draw_whole(2, COUNT, 1))
    trainers.run()
    for rank, endpoint in enumerate(trainers.net.endpoints):
        events = endpoint.trace.take(10_000)
        due = [event[6:] for event in events if event[1] == "due"]
        assert due == [
            (e.start, e.size) for e in trainers.net.events[rank] if isinstance(e, OperationDue)
        ]
        assert sorted(due) == sorted(event[6:] for event in events if event[1] == "computed")
