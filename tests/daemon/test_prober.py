"""Rank 0 repeats rounds of a probe that a rank could not finish, and few of them."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dlcpd.contract.errors import ProbeFailed
from dlcpd.daemon.peers.membership import Link, LinkState, Membership
from dlcpd.daemon.peers.peer_messages import LinkProbeAnswer, LinkProbeAsk, ProbeStep
from dlcpd.daemon.sessions.prober import MOST_REPEATED, ProbeLeader, ProbeResult
from dlcpd.daemon.sessions.session import LocalSession

HOSTS = 3
RATE = 100 * 10**6
LATE = "message 58 of group probe missed its deadline"


class Job:
    """A session of rank 0, whose ranks answer at once. In the rounds of `failed` rank 1 is too
    late; `leaves` in the first of them."""

    def __init__(self, failed: set[int], *, leaves: bool = False) -> None:
        self.failed, self.leaves, self.rounds = failed, leaves, 0
        links = {
            rank: Link(rank, f"h{rank}", f"tcp://h{rank}", "", rank) for rank in range(1, HOSTS)
        }
        membership = Membership("job", 0, 7, "h0", [], {"world_size": HOSTS}, links)
        self.session = LocalSession(7, membership, cast("Any", None), 0, 1.0, cast("Any", None))
        peers = SimpleNamespace(send=lambda address, ask: self.asked(ask, address.endpoint))
        here = SimpleNamespace(begin=id, asked=lambda _, ask: self.asked(ask, ""))
        self.leader = ProbeLeader(
            asyncio.get_running_loop(),
            cast("Any", None),
            peers=cast("Any", peers),
            engines=cast("Any", None),
        )
        self.leader.parts = cast("Any", here)
        self.leader.begin(self.session, held=False)

    def asked(self, ask: LinkProbeAsk, endpoint: str) -> None:
        rank = next((n for n, link in self.links.items() if link.endpoint == endpoint), 0)
        self.rounds += ask.step is ProbeStep.ROUND and not rank
        late = ask.step is ProbeStep.ROUND and rank == 1 and self.rounds in self.failed
        if late and self.leaves:
            self.links[2].state = LinkState.GONE
        why, bps = (LATE, 0) if late else ("", RATE)
        names = self.session.membership.job, 0, 0, 1, 0
        answer = LinkProbeAnswer(*names, ask.serial, ask.step, bps, [], "", why)
        self.leader.answered(self.session, rank, answer)

    @property
    def links(self) -> dict[int, Link]:
        return self.session.membership.links


def probed(failed: set[int], *, leaves: bool = False) -> tuple[ProbeResult, int]:
    async def run() -> tuple[ProbeResult, int]:
        job = Job(failed, leaves=leaves)
        return await job.leader.measure(job.session), job.rounds

    return asyncio.run(run())


def test_rounds_that_a_rank_could_not_finish_are_repeated() -> None:
    undisturbed, rounds = probed(set())
    found, carried_out = probed({2, 5})
    assert MOST_REPEATED == 2
    assert carried_out == rounds + MOST_REPEATED
    assert (found.hosts, found.rounds) == (undisturbed.hosts, undisturbed.rounds)


def test_a_host_that_stays_too_busy_is_named() -> None:
    with pytest.raises(ProbeFailed, match=f"rank 1 on h1: {LATE}"):
        probed(set(range(1, 100)))
    with pytest.raises(ProbeFailed, match="missed"):
        probed({1, 3, 5})  # not at once: of all rounds of a probe


def test_no_round_is_repeated_without_a_rank() -> None:
    with pytest.raises(ProbeFailed, match="missed"):
        probed({2}, leaves=True)
