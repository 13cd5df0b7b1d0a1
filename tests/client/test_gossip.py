"""Exchanges with neighbours over real daemons, beside the same mixing by matrices."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from dlcp_client.gossip import exponential, ring
from dlcp_client.gossip.graphs import Graph
from tests.client import gossip_ranks
from tests.client.gossip_ranks import STEPS, Drift, model
from tests.client.test_ddp import on_each_rank

WORLD = 4
FLOATS = {"ring": 1e-6, "exponential": 1e-6, "own start": 1e-6, "float64": 1e-13}


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder = tmp_path_factory.mktemp("gossip")
    found: list[Any] = on_each_rank(gossip_ranks.exchanges, folder, WORLD, world=WORLD)
    return found


def column(ranks: list[Any], run: str, what: str) -> NDArray[np.float64]:
    return np.stack([rank[run][what] for rank in ranks])


def expected(graph: Graph, start: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    """What all ranks hold after each step: the drift, then the mixing matrix."""
    drifts = [Drift(model(), rank) for rank in range(WORLD)]
    held, out = start.copy(), []
    for step in range(STEPS):
        for rank, drift in enumerate(drifts):
            drift.number = step
            moved = torch.cat([part.flatten() for part in drift.drawn()]).double().numpy()
            held[rank] -= 0.1 * moved
        held = graph.matrix(step) @ held
        out.append(held.copy())
    return out


@pytest.mark.parametrize("run", FLOATS)
def test_every_step_is_the_one_of_the_mixing_matrix(ranks: list[Any], run: str) -> None:
    graph = ring(WORLD) if run in ("ring", "float64") else exponential(WORLD)
    wanted = expected(graph, column(ranks, run, "start"))
    for step in range(STEPS):
        ours = np.stack([rank[run]["held"][step] for rank in ranks])
        assert np.abs(ours - wanted[step]).max() < FLOATS[run]
        assert np.abs(ours - wanted[step].mean(0)).max() > 1e-4  # ranks are not simply equal


@pytest.mark.parametrize("run", ["bf16", "top-k"])
def test_what_a_codec_leaves_out_is_not_lost(ranks: list[Any], run: str) -> None:
    wanted = expected(ring(WORLD), column(ranks, run, "start"))[-1]
    ours = np.stack([rank[run]["held"][-1] for rank in ranks])
    assert np.abs(ours.mean(0) - wanted.mean(0)).max() < 1e-6  # the mean of the ranks is kept
    apart = np.linalg.norm(ours - ours.mean(0), axis=1)
    uncoupled = 0.1 * np.sqrt(STEPS * ours.shape[1])  # of independent walks
    assert 0 < apart.max() < 0.9 * uncoupled


def test_codecs_send_fewer_bytes(ranks: list[Any]) -> None:
    sent = {run: ranks[0][run]["sent"] for run in ("ring", "exponential", "bf16", "top-k")}
    size = 4 * ranks[0]["ring"]["start"].size
    exchanged = STEPS + 1
    assert sent["ring"] == 2 * exchanged * size
    told = ranks[0]["ring"]["metrics"]
    assert told["bytes"] == sent["ring"] and told["exposed_s"] > 0 and told["step_s"] > 0
    assert sent["exponential"] == exchanged * size
    assert sent["bf16"] == 2 * (size + exchanged * size // 2)  # the first time as they are
    assert sent["top-k"] == 2 * (size + exchanged * size // 2)  # a quarter, with places


def test_bfloat16_is_averaged_in_float32_and_rounded_once(ranks: list[Any]) -> None:
    held = [torch.from_numpy(rank["bfloat16"]["start"]) for rank in ranks]
    drifts = [Drift(model(dtype=torch.bfloat16), rank) for rank in range(WORLD)]
    moved = []
    for start, drift in zip(held, drifts, strict=True):
        drawn = torch.cat([part.flatten() for part in drift.drawn()])
        moved.append(start.bfloat16().add(drawn, alpha=-0.1).float())
    mine, left, right = moved[1], moved[0], moved[2]
    average = mine + ((left - mine) / 3 + (right - mine) / 3)
    ours = torch.from_numpy(ranks[1]["bfloat16"]["held"][0])
    # All but those in which the optimizer itself rounds otherwise than this test.
    assert (ours.bfloat16() == average.bfloat16()).float().mean() > 0.98


@pytest.mark.parametrize("run", ["ring", "exponential", "bf16", "top-k", "float64", "bfloat16"])
def test_ranks_begin_with_the_parameters_of_rank_0(ranks: list[Any], run: str) -> None:
    for rank in ranks:
        assert np.array_equal(rank[run]["start"], ranks[0][run]["begun"])
        assert np.array_equal(rank[run]["frozen"], ranks[0][run]["frozen"])


def test_without_broadcast_each_rank_begins_with_its_own(ranks: list[Any]) -> None:
    for rank in ranks:
        assert np.array_equal(rank["own start"]["start"], rank["own start"]["begun"])
    assert not np.array_equal(ranks[0]["own start"]["start"], ranks[1]["own start"]["start"])


def test_average_makes_ranks_equal_and_steps_go_on_from_there(ranks: list[Any]) -> None:
    for run in ("ring", "exponential", "bf16", "top-k", "float64", "bfloat16"):
        of = [rank[run] for rank in ranks]
        assert all(np.array_equal(one["mean"], of[0]["mean"]) for one in of)
        held = np.stack([one["held"][-1] for one in of])
        assert np.abs(of[0]["mean"] - held.mean(0)).max() < (1e-2 if run == "bfloat16" else 1e-6)
        distance = np.sqrt(np.square(held - held.mean(0)).sum(1).mean())
        assert all(one["apart"] == of[0]["apart"] for one in of)
        assert of[0]["apart"] == pytest.approx(distance, rel=1e-3) and distance > 0.1
        assert of[0]["together"] < 1e-3 * distance
        assert [one["buffer"] for one in of] == [1.5] * WORLD  # the mean of the ranks' numbers
        assert [one["counted"] for one in of] == list(range(WORLD))  # whole numbers are left alone
        assert [one["steps"] for one in of] == [STEPS + 1] * WORLD
        after = np.stack([one["after"] for one in of])
        drift = 0.1 * np.sqrt(held.shape[1])
        assert np.linalg.norm(after - of[0]["mean"], axis=1).max() < 1.2 * drift


def test_nothing_is_exchanged_once_it_is_closed(ranks: list[Any]) -> None:
    for rank in ranks:
        assert rank["ring"]["alone"] > 0.1  # the whole drift, of this rank alone


def test_losing_a_neighbour_raises_in_the_step_and_leaves_the_model(tmp_path: Path) -> None:
    of = on_each_rank(gossip_ranks.losing_a_neighbour, tmp_path, world=3)
    for rank, one in enumerate(of):
        assert one["said"][:2] == ["fine", "fine"] and one["steps"] == 2
        assert one["said"][2].startswith("DaemonLost" if rank == 2 else "PeerLost")
        assert rank == 2 or "rank 2 on" in one["said"][2]
        assert one["said"][3].startswith("SessionClosed: exchange 3 failed")
        assert one["kept"] == [True, True]
