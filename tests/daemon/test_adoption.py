"""All ranks adopt a network, whatever happens to the messages and to the ranks."""

import random
from collections import defaultdict
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcpd.daemon.peers.peer_messages import MAX_WHY, PlanStep, StreamRow
from dlcpd.daemon.sessions.adoption import (
    GIVE_UP,
    REPEAT_FIRST,
    Follower,
    Hosts,
    Leader,
    Offer,
    Output,
    Settle,
    StepAnswer,
    StepAsk,
)
from dlcpd.io.commands import MAX_BEGUN
from dlcpd.requests.networks import REST, WINDOW, Networks
from dlcpd.schedules.network import HostCapacity, job_network

RANKS, ENGINES = 4, 2
GROUPS = {0: {0, 1, 2, 3}, 1: {0, 1}, 2: {1, 2, 3}}  # stream -> ranks
LATENCY = 0.02  # seconds of a message, at most
STEP = 0.01
DRAIN = 2.0  # seconds in which a rank that leaves delivers its operations


def hosts(rate: int) -> Hosts:
    return [(f"h{rank}", HostCapacity((rate + rank,), (rate + rank,))) for rank in range(RANKS)]


def offer(version: int, rate: int = 10**9) -> StepAsk:
    made = job_network(hosts(rate), version)
    assert made is not None
    return StepAsk(version, PlanStep.OFFER, hosts(rate), made.digest)


def follower(engines: int = 1) -> Follower:
    return Follower([name for name, _ in hosts(1)], engines)


@dataclass
class Rank:
    """A rank with the network tables of its engines."""

    follower: Follower = field(default_factory=lambda: follower(ENGINES))
    engines: list[Networks] = field(default_factory=lambda: [Networks() for _ in range(ENGINES)])
    begun: list[dict[int, int]] = field(default_factory=lambda: [{} for _ in range(ENGINES)])
    here: bool = True
    leaving: bool = False
    goodbye_at: float = 0.0  # at the latest, if it is leaving


class World:
    """Ranks, and a network that loses, repeats and reorders messages; in virtual time."""

    def __init__(self, seed: int, loss: float) -> None:
        self.random, self.loss, self.now = random.Random(seed), loss, 0.0
        self.ranks = [Rank() for _ in range(RANKS)]
        self.leader = Leader(set(range(RANKS)))
        self.wire: list[tuple[float, int, int, Any]] = []  # time, source, target, message
        self.used: dict[tuple[int, int, int], set[int]] = defaultdict(set)
        self.held = 0

    def send(self, source: int, target: int, message: Any, *, safe: bool = False) -> None:
        copies = 1 if safe else self.random.choices((0, 1, 2), (self.loss, 0.8, 0.1))[0]
        for _ in range(copies):
            late = 0.0 if safe else self.random.uniform(0.0, LATENCY)
            self.wire.append((self.now + late, source, target, message))

    def begin(self, rank: int) -> None:
        """A rank begins an operation of one of its groups, if it may."""
        one, engine = self.ranks[rank], self.random.randrange(ENGINES)
        stream = self.random.choice([s for s, ranks in GROUPS.items() if rank in ranks])
        number = one.begun[engine].get(stream, 0) + 1
        if one.engines[engine].waits(stream, number):
            self.held += 1
            return
        one.begun[engine][stream] = number
        network = one.engines[engine].at(stream, number)
        if all(self.ranks[peer].here for peer in GROUPS[stream]):  # else it fails
            self.used[engine, stream, number].add(network.version if network else 1)

    def pass_time(self) -> None:
        self.now += STEP
        for rank, one in enumerate(self.ranks):
            if one.leaving and (self.delivered(rank) or self.now >= one.goodbye_at):
                self.leave(rank)
        if self.ranks[0].here:
            for rank, ask in self.leader.due(self.now):
                self.send(0, rank, ask)
        due = [one for one in self.wire if one[0] <= self.now]
        self.wire = [one for one in self.wire if one[0] > self.now]
        self.random.shuffle(due)
        for _, source, target, message in due:
            if all(self.ranks[r].here and not self.ranks[r].leaving for r in (source, target)):
                self.deliver(source, target, message)

    def deliver(self, source: int, target: int, message: Any) -> None:
        if isinstance(message, StepAsk):
            self.carry_out(target, self.ranks[target].follower.on_ask(message))
        else:
            self.leader.on_answer(source, message, self.now)

    def carry_out(self, rank: int, outputs: list[Output]) -> None:
        one = self.ranks[rank]
        for output in outputs:
            match output:
                case StepAnswer():
                    self.send(rank, 0, output)
                case Offer(version, network):
                    made = job_network(network, version)
                    assert made is not None
                    for number, engine in enumerate(one.engines):
                        limits = engine.promise(made, one.begun[number])
                        why = "" if limits is not None else "too many"
                        rows = [StreamRow(number, *row) for row in (limits or {}).items()]
                        answer = StepAnswer(version, PlanStep.PROMISE, rows, why)
                        self.carry_out(rank, one.follower.on_promised(number, answer))
                case Settle(version, network, firsts, rest):
                    for number, engine in enumerate(one.engines):
                        mine = {r.stream: r.operation for r in firsts if r.engine == number}
                        if network:
                            assert engine.adopt(version, mine, rest)
                        else:
                            engine.cancel(version)

    def delivered(self, rank: int) -> bool:
        """Whether all ranks have begun the operations that a rank has begun."""
        return all(
            other.begun[engine].get(stream, 0) >= number
            for engine, begun in enumerate(self.ranks[rank].begun)
            for stream, number in begun.items()
            for other in (self.ranks[peer] for peer in GROUPS[stream])
        )

    def leave(self, rank: int, *, leaving: bool = False) -> None:
        """A rank leaves, and the others learn of it. `leaving`: after its operations."""
        self.ranks[rank].leaving, self.ranks[rank].goodbye_at = leaving, self.now + DRAIN
        if leaving:
            self.leader.on_gone(rank, self.now, leaving=True)
            return
        self.ranks[rank].here = False
        if rank:
            self.leader.on_gone(rank, self.now)
            return
        if (word := self.leader.last_word()) is not None:
            for other in range(1, RANKS):  # on the connection that carries the goodbye
                if self.ranks[other].here:
                    self.deliver(0, other, word)
        for other, one in enumerate(self.ranks):
            if one.here:
                self.carry_out(other, one.follower.on_leader_gone())


@given(
    seed=st.integers(0, 2**32),
    loss=st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    leaver=st.sampled_from([-1, 0, 1, 1, 3, 3]),
    kindly=st.booleans(),
)
@settings(max_examples=150, deadline=None)
def test_all_ranks_use_the_same_network_for_each_operation(
    seed: int, loss: float, leaver: int, *, kindly: bool
) -> None:
    """`kindly`: the rank that leaves delivers the operations that it has begun."""
    world = World(seed, loss)
    leaves_at = world.random.randrange(1200) if leaver >= 0 else -1
    for step in range(1200):
        if world.random.random() < 0.005:
            world.leader.propose(hosts(world.random.randrange(1, 10**9)), world.now)
        for rank, one in enumerate(world.ranks):
            if one.here and not one.leaving and world.random.random() < 0.7:
                world.begin(rank)
        if step == leaves_at:
            world.leave(leaver, leaving=leaver > 0 and kindly)
            world.leader.propose(hosts(step + 1), world.now)
        world.pass_time()
    world.loss = 0.0
    for _ in range(2000):  # 20 seconds: longer than any repetition
        world.pass_time()
    assert all(len(versions) == 1 for versions in world.used.values())
    assert not world.leader.busy or not world.ranks[0].here
    for rank, one in enumerate(world.ranks):
        for engine, networks in enumerate(one.engines) if one.here else ():
            assert not any(networks.waits(s, 1 << 31) for s in GROUPS), (rank, engine)


def test_offers_come_into_force_and_hold_operations_up_only_meanwhile() -> None:
    """What the property test does not show: something is adopted at all."""
    world = World(7, 0.1)
    world.leader.propose(hosts(10**9), world.now)
    for _ in range(600):
        for rank in range(RANKS):
            world.begin(rank)
        world.pass_time()
    assert {version for versions in world.used.values() for version in versions} == {1, 2}
    last = [engine.at(0, 1 << 31) for one in world.ranks for engine in one.engines]
    assert all(network is not None and network.version == 2 for network in last)


# --- each guard --------------------------------------------------------------------------------


def led(*steps: PlanStep, ranks: int = 2) -> tuple[Leader, StepAsk]:
    """A leader whose ranks have answered these steps, and what it asks then."""
    leader = Leader(set(range(ranks)))
    leader.propose(hosts(1), 0.0)
    for step in steps:
        for rank in range(ranks):
            rows = [StreamRow(0, 5, 10 + rank)] if step is PlanStep.PROMISE else []
            leader.on_answer(rank, StepAnswer(2, step, rows), 0.0)
    return leader, leader.due(0.0)[0][1]


def test_the_first_operation_is_above_the_greatest_limit() -> None:
    _, ask = led(PlanStep.OFFER, PlanStep.PROMISE)
    assert (ask.step, ask.firsts, ask.rest) == (PlanStep.ADOPT, [StreamRow(0, 5, 12)], REST)


def test_a_step_is_repeated_to_those_that_have_not_answered() -> None:
    leader, ask = led()
    leader.on_answer(1, StepAnswer(2, PlanStep.OFFER), 0.0)
    assert leader.due(REPEAT_FIRST / 2) == []
    assert leader.due(REPEAT_FIRST) == [(0, ask)]


@pytest.mark.parametrize("step", [PlanStep.PROMISE, PlanStep.ADOPT])
def test_an_answer_to_another_step_or_offer_is_ignored(step: PlanStep) -> None:
    leader, ask = led()
    for rank in (0, 1):
        leader.on_answer(rank, StepAnswer(2, step), 0.0)
        leader.on_answer(rank, StepAnswer(1, PlanStep.OFFER), 0.0)
        leader.on_answer(rank + 2, StepAnswer(2, PlanStep.OFFER), 0.0)  # no such rank
    assert leader.due(REPEAT_FIRST) == [(0, ask), (1, ask)]


def test_an_older_daemon_that_does_not_answer_leaves_the_old_plan() -> None:
    leader, _ = led()
    leader.on_answer(0, StepAnswer(2, PlanStep.OFFER), 0.0)
    assert leader.due(GIVE_UP) == [] and not leader.busy
    assert leader.take_news() == "no answer of rank(s) 1 in 3 s" and not leader.take_news()


@pytest.mark.parametrize("how", ["refused", "gone", "late"])
def test_what_was_promised_is_cancelled(how: str) -> None:
    leader, _ = led(PlanStep.OFFER, ranks=3)
    if how == "refused":
        leader.on_answer(1, StepAnswer(2, PlanStep.PROMISE, why="no"), 0.0)
    elif how == "gone":
        leader.on_gone(1, 0.0)
    asks = leader.due(GIVE_UP)
    assert {ask.step for _, ask in asks} == {PlanStep.CANCEL}
    assert [rank for rank, _ in asks] == ([0, 2] if how == "gone" else [0, 1, 2])


def test_too_many_groups_cancel_the_offer() -> None:
    leader, _ = led(PlanStep.OFFER)
    for rank in (0, 1):
        rows = [StreamRow(0, rank * MAX_BEGUN // 2 + n, 9) for n in range(MAX_BEGUN // 2 + 1)]
        leader.on_answer(rank, StepAnswer(2, PlanStep.PROMISE, rows), 0.0)
    assert leader.due(0.0)[0][1].step is PlanStep.CANCEL


def test_after_adoption_nothing_cancels() -> None:
    leader, ask = led(PlanStep.OFFER, PlanStep.PROMISE)
    assert leader.due(100.0) == [(0, ask), (1, ask)]
    leader.on_gone(1, 100.0)
    leader.on_answer(0, StepAnswer(2, PlanStep.ADOPT, why="no"), 100.0)
    assert not leader.busy and not leader.news


def test_nothing_is_offered_until_a_rank_that_leaves_has_said_goodbye() -> None:
    leader, _ = led(ranks=3)
    leader.on_gone(1, 0.0, leaving=True)
    assert leader.take_news() == "rank 1 has left" and not leader.busy
    leader.propose(hosts(2), 0.0)
    assert not leader.busy
    leader.on_gone(1, 1.0)
    assert [(rank, ask.version) for rank, ask in leader.due(1.0)] == [(0, 3), (2, 3)]


def test_a_job_that_a_rank_has_left_adopts_again() -> None:
    """What the property test does not show: something is adopted by the others."""
    world = World(7, 0.1)
    world.leave(3, leaving=True)
    world.leave(3)
    world.leader.propose(hosts(10**9), world.now)
    for _ in range(600):
        for rank in range(RANKS - 1):
            world.begin(rank)
        world.pass_time()
    assert {v for (_, stream, _), found in world.used.items() for v in found if stream == 1} == {
        1,
        2,
    }
    last = [engine.at(0, 1 << 31) for one in world.ranks[:3] for engine in one.engines]
    assert all(network is not None and network.version == 2 for network in last)


def test_the_next_offer_follows_the_present_one() -> None:
    leader, _ = led(PlanStep.OFFER, PlanStep.PROMISE)
    leader.propose(hosts(2), 0.0)
    leader.propose(hosts(3), 0.0)
    for rank in (0, 1):
        leader.on_answer(rank, StepAnswer(2, PlanStep.ADOPT), 0.0)
    ask = leader.due(0.0)[0][1]
    assert (ask.version, ask.step, ask.network) == (3, PlanStep.OFFER, hosts(3))


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"digest": b"forged"}, "digest"),
        ({"network": hosts(5)}, "digest"),
        ({"network": hosts(1)[:2]}, "hosts"),
        ({"network": hosts(1)[::-1]}, "hosts"),
        ({"network": [(name, HostCapacity((1,), (1, 2))) for name, _ in hosts(1)]}, "rails"),
    ],
    ids=["digest", "rates", "fewer hosts", "order", "no network"],
)
def test_a_bad_offer_is_refused_and_nothing_is_promised(changed: dict[str, Any], why: str) -> None:
    rank = follower()
    [answer] = rank.on_ask(offer(2)._replace(**changed))
    assert isinstance(answer, StepAnswer) and why in answer.why and len(answer.why) <= MAX_WHY
    assert rank.on_ask(StepAsk(2, PlanStep.PROMISE)) == []


def test_a_rank_that_has_promised_nothing_adopts_nothing() -> None:
    rank = follower()
    order = StepAsk(2, PlanStep.ADOPT, firsts=[StreamRow(0, 0, 99)], rest=REST)
    assert rank.on_ask(order) == []
    rank.on_ask(offer(2))
    assert rank.on_ask(order) == []
    assert rank.on_ask(StepAsk(2, PlanStep.PROMISE)) == [Offer(2, hosts(10**9))]
    assert rank.on_ask(order) == []  # the engine has not answered
    rank.on_promised(0, StepAnswer(2, PlanStep.PROMISE, [StreamRow(0, 0, 9 + WINDOW)]))
    settle = Settle(2, hosts(10**9), order.firsts, REST)
    assert rank.on_ask(order) == [settle, StepAnswer(2, PlanStep.ADOPT)]
    assert rank.on_ask(order) == [StepAnswer(2, PlanStep.ADOPT)]  # repeated


def test_a_cancelled_offer_that_comes_late_is_not_taken() -> None:
    rank = follower()
    assert rank.on_ask(StepAsk(2, PlanStep.CANCEL)) == [StepAnswer(2, PlanStep.CANCEL)]
    assert rank.on_ask(offer(2)) == []


def test_an_offer_is_not_replaced_once_it_is_promised() -> None:
    rank = follower()
    rank.on_ask(offer(2))
    rank.on_ask(StepAsk(2, PlanStep.PROMISE))
    assert rank.on_ask(offer(3)) == []
    assert rank.on_leader_gone() == [Settle(2, ())]
    assert rank.on_leader_gone() == []


def test_an_engine_that_refuses_is_heard() -> None:
    rank = follower(engines=2)
    rank.on_ask(offer(2))
    rank.on_ask(StepAsk(2, PlanStep.PROMISE))
    assert rank.on_promised(1, StepAnswer(2, PlanStep.PROMISE, why="full"))
    assert rank.on_promised(0, StepAnswer(3, PlanStep.PROMISE)) == []  # of another offer


def test_more_groups_than_a_message_holds_are_refused() -> None:
    rank = follower(engines=2)
    rank.on_ask(offer(2))
    rank.on_ask(StepAsk(2, PlanStep.PROMISE))
    for engine in (0, 1):
        rows = [StreamRow(engine, n, 9) for n in range(MAX_BEGUN // 2 + 1)]
        said = rank.on_promised(engine, StepAnswer(2, PlanStep.PROMISE, rows))
    [answer] = said
    assert isinstance(answer, StepAnswer) and answer.why
