"""`transport=` over real daemons and Gloo, a process for each rank."""

from pathlib import Path

import numpy as np
import torch

from dlcp_client.auto.calibration import TURNS
from dlcp_client.auto.turns import TURN
from tests.client import auto_ranks
from tests.client.auto_ranks import DECIDED, FIRST, LARGE
from tests.client.test_ddp import on_each_rank, on_hosts


def test_ranks_that_measure_differently_decide_alike_and_train_as_ever(tmp_path: Path) -> None:
    ranks = on_hosts(auto_ranks.ranks_that_measure_differently, tmp_path)
    for rank in ranks:
        assert rank["apart"] < 1e-5
        assert rank["before"].startswith("no decision yet")
        chosen = dict(rank["rows"])
        assert {way for size, way in chosen.items() if size >= LARGE} == {"dlcp"}
        assert {way for size, way in chosen.items() if size < LARGE} == {"backend"}
        for step, way, size in rank["seen"]:
            if FIRST <= step < DECIDED:
                assert way == TURNS[(step - FIRST) // TURN]
            else:
                assert way == (chosen[size] if step >= DECIDED else "backend")
    assert ranks[0]["seen"] == ranks[1]["seen"]
    assert ranks[0]["table"] == ranks[1]["table"]
    assert np.array_equal(ranks[0]["weights"], ranks[1]["weights"])


def test_gradients_are_the_average_by_both_ways(tmp_path: Path) -> None:
    dtypes = [torch.float32, torch.bfloat16, torch.float16]
    for rank in on_hosts(auto_ranks.gradients_of_every_step, tmp_path, dtypes):
        for wrong, kept, ways, sizes in rank:
            assert not wrong
            assert kept
            assert ways == {"dlcp", "backend"}
            assert [one.chosen for one in sizes] == ["dlcp", "backend"]


def test_what_was_waived_comes_home_before_the_backend_takes_over(tmp_path: Path) -> None:
    """Neither lost nor added twice: the sums over all steps are exact."""
    file = tmp_path / "dlcpd.toml"
    file.write_text(
        '[daemon]\ncontrol_address = "127.0.0.1"\n'
        '[network]\npaths = [{ address = "127.0.0.1" }]\npeer_timeout = 10.0\n'
        "[inject]\nloss = 0.05\nseed = 1\n"
    )
    for rank in on_each_rank(auto_ranks.residuals, tmp_path, str(file)):
        assert rank["waived"] > 0
        assert rank["reapplied"] == rank["waived"]
        assert rank["short"]  # while some of it was under way
        assert set(rank["short"]) <= set(range(FIRST, DECIDED))
        [(way, mode, name)] = [row[1:] for row in rank["seen"] if row[0] == DECIDED]
        assert (way, mode) == ("dlcp", "exact")
        assert {row[3] for row in rank["seen"] if row[2] == "bounded"} == {name}
        assert {row[1] for row in rank["seen"] if row[0] > DECIDED} == {"backend"}


def test_by_the_backend_there_is_no_dlcpd(tmp_path: Path) -> None:
    for rank in on_each_rank(auto_ranks.by_the_backend, tmp_path):
        assert rank == {"equal": True, "started": 0, "session": None, "warnings": [], "table": ()}


def test_ranks_that_ask_for_different_transports_are_told(tmp_path: Path) -> None:
    for rank in on_each_rank(auto_ranks.asking_for_different_things, tmp_path):
        assert rank["error"] == (
            "BadConfig: rank 1 has transport 'auto', and rank 0 has 'dlcp': give all ranks the "
            "same transport="
        )
        assert rank["children"] == 0
