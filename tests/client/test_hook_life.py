"""DDP holds one hook for ever: models are copied, go on after close(), are registered again."""

from pathlib import Path

import numpy as np
import pytest

from tests.client import hook_ranks
from tests.client.test_ddp import on_hosts

EITHER = pytest.mark.parametrize("crossing", [False, True], ids=["ddp", "cross_step"])


@EITHER
def test_a_copy_trains_by_its_group_and_can_be_registered(tmp_path: Path, crossing: bool) -> None:
    for rank in on_hosts(hook_ranks.copied, tmp_path, crossing):
        assert set(rank["apart"].values()) == {0.0}, rank["apart"]
        assert rank["itself"] == 0.0
        assert rank["operations"] > 0
        assert "belongs to a copy of a model, and is closed" in rank["said"]


@EITHER
def test_a_closed_handle_leaves_a_model_that_trains(tmp_path: Path, crossing: bool) -> None:
    for rank in on_hosts(hook_ranks.closed, tmp_path, crossing):
        assert rank["apart"] == 0.0
        assert "already registered" in rank["twice"]
        first, second, third = rank["sent"]
        assert first > 0
        assert second == first
        assert third > second


def test_sparse_gradients_go_by_the_models_own_group(tmp_path: Path) -> None:
    for rank in on_hosts(hook_ranks.sparse, tmp_path):
        assert rank["apart"] == 0.0
        assert len(rank["told"]) == 1
        assert "0.weight are sparse" in rank["told"][0]
        assert rank["steps"] == 4
        assert rank["operations"] > 0


def test_composable_and_compiled_models_are_taken(tmp_path: Path) -> None:
    for rank in on_hosts(hook_ranks.taken, tmp_path):
        assert rank.pop("steps") == 3
        assert set(rank.values()) == {0.0}, rank


def test_an_unforeseen_error_names_the_parameters(tmp_path: Path) -> None:
    for said in on_hosts(hook_ranks.unforeseen, tmp_path):
        assert "the gradients of" in said
        assert "weight" in said or "bias" in said
        assert "ZeroDivisionError: a bug" in said


def test_one_rank_alone_asks_for_all_of_them(tmp_path: Path) -> None:
    ranks = on_hosts(hook_ranks.alone, tmp_path)
    summary, state = ranks[0]["said"][:2]
    assert "all ranks must call summary(all_ranks=True) at the same point" in summary
    assert "all ranks must call state_dict() at the same point" in state
    assert np.array_equal(ranks[0]["weights"], ranks[1]["weights"])
    for rank in ranks:
        assert "all 2 ranks" in rank["summary"]
        assert rank["step"] == 6
