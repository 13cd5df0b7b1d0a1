"""Codecs over real daemons that lose datagrams: every rank has the same, and all comes back."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from dlcp_client import Session, bounded, exact
from dlcp_client.hooks.rules import Rules
from dlcpd.contract.errors import BadPolicy, OperationAborted, RanksDisagree
from dlcpd.ledger.reader import find, runs
from dlcpd.ledger.replay import ReplayVerdict, replay
from tests.client import ddp_ranks
from tests.client.test_ddp import on_hosts
from tests.ledger.jobs import WORLD, config, run

COUNT, STEPS = 700_000, 3  # elements: enough for two engines to share
CODECS = ("bf16", "int8", "topk:0.05")


def contribution(rank: int, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randn(COUNT, generator=generator)


def train(session: Session) -> dict[str, Any]:
    """Some steps of each codec, and one without it, which brings home what is left."""
    delivered: dict[str, torch.Tensor] = {}
    for codec in CODECS:
        policy = bounded(0.2, codec=codec)
        steps = [contribution(session.rank, step) for step in range(STEPS + 1)]
        for tensor in steps[:-1]:
            session.all_reduce(tensor, name=codec, policy=policy).wait()
        session.all_reduce(steps[-1], name=codec).wait()
        delivered[codec] = torch.stack(steps).double().sum(0)
    overflow = contribution(session.rank, 0)
    overflow[session.rank] = float("inf")
    session.all_reduce(overflow, name="overflow", policy=exact(codec="int8")).wait()
    return {
        "delivered": delivered,
        "overflow": overflow,
        "ledger": session.ledger,
        "alone": _alone(session),
        "disagree": _disagree(session),
    }


def _alone(session: Session) -> str:
    """What cannot have a codec costs nothing but an error."""
    with pytest.raises(BadPolicy) as caught:
        session.world.broadcast(torch.ones(4), 0, policy=exact(codec="int8"))
    return str(caught.value)


def _disagree(session: Session) -> str:
    """Rank 0 has another codec than the others. A rank may hear first that a peer aborted."""
    policy = exact(codec="bf16" if session.rank else "fp16", fill="zero")
    with pytest.raises((RanksDisagree, OperationAborted)) as caught:
        session.all_reduce(torch.ones(COUNT), policy=policy).wait()
    return str(caught.value)


def test_all_ranks_have_the_same_and_all_comes_back(tmp_path: Path) -> None:
    ranks = run([config(tmp_path, rank) for rank in range(WORLD)], train)
    steps = [contribution(rank, step) for rank in range(WORLD) for step in range(STEPS + 1)]
    produced = torch.stack(steps).double().sum(0)
    for codec in CODECS:
        assert all(torch.equal(r["delivered"][codec], ranks[0]["delivered"][codec]) for r in ranks)
        torch.testing.assert_close(ranks[0]["delivered"][codec], produced, rtol=0, atol=5e-5)
    for rank in ranks:
        assert torch.equal(rank["overflow"].isfinite(), torch.arange(COUNT) >= WORLD)
        assert "only all_reduce and reduce_scatter support" in rank["alone"]
    disagree = [set(rank["disagree"].split(", ")) for rank in ranks]
    assert any({"codec bf16", "codec fp16"} <= said for said in disagree)
    ledgers = [rank["ledger"] for rank in ranks]
    assert sum(ledger.waived for ledger in ledgers) > 0
    assert sum(ledger.waived for ledger in ledgers) == sum(one.reapplied for one in ledgers)
    for one in runs(find([tmp_path])):
        found = replay(one)
        assert not found.different
        assert len(found.of(ReplayVerdict.CODED)) == len(CODECS) * STEPS + 1  # the overflow
        assert len(found.of(ReplayVerdict.UNKNOWN)) == len(CODECS)


def test_in_a_model_warm_up_and_small_buckets_have_no_codec(tmp_path: Path) -> None:
    rules = Rules(torch.nn.Linear(4, 4), exact(codec="int8"), warmup_steps=3)
    rules.step = 3
    assert rules.policy_now(1 << 20).is_plain
    rules.step = 4
    assert rules.policy_now(1 << 20).codec == "int8"
    assert rules.policy_now((1 << 20) - 4).is_plain
    rules.close()  # else its hook sees the forward passes of all that follows
    ranks = on_hosts(ddp_ranks.coded_training, tmp_path)
    assert np.array_equal(ranks[0]["weights"], ranks[1]["weights"])
    for rank in ranks:
        assert 0 < rank["apart"] < 1e-3
        assert {codec for number, codec, _ in rank["asked"] if number <= 3} == {""}
        late = [(codec, name) for number, codec, name in rank["asked"] if number > 3]
        assert {codec for codec, _ in late} == {"", "int8"}
        assert all(bool(codec) == bool(name) for codec, name in late)
