"""Steps whose updates happen in the next forward pass, over real daemons."""

from pathlib import Path

import numpy as np
import pytest

from tests.client import cross_step_ranks
from tests.client.test_ddp import on_each_rank, on_hosts


@pytest.mark.parametrize("view", [False, True], ids=["copies", "views"])
def test_every_training_equals_the_frameworks(tmp_path: Path, view: bool) -> None:
    first, second = on_hosts(cross_step_ranks.compared, tmp_path, view)
    assert {n: t["apart"] for n, t in first.items() if t["apart"] >= 1e-6} == {}
    for name, training in first.items():
        assert training["moved"] > 1e-3, name
        assert training["said"][0] == pytest.approx(training["said"][1], abs=1e-5), name
        assert np.array_equal(training["weights"], second[name]["weights"]), name


def test_bounded_training_loses_only_where_it_may(tmp_path: Path) -> None:
    file = tmp_path / "dlcpd.toml"
    file.write_text(
        '[daemon]\ncontrol_address = "127.0.0.1"\n'
        '[network]\npaths = [{ address = "127.0.0.1" }]\n[inject]\nloss = 0.05\nseed = 1\n'
    )
    ranks = on_each_rank(cross_step_ranks.bounded_training, tmp_path, str(file))
    assert np.array_equal(ranks[0]["weights"], ranks[1]["weights"])
    assert ranks[0]["waived"] + ranks[1]["waived"] > 0
    asked = ranks[0]["asked"]
    assert asked == ranks[1]["asked"]
    assert {mode for number, mode, *_ in asked if number <= 3} == {"exact"}
    late = [row for row in asked if row[0] > 3]
    assert {mode for _, mode, *_ in late} == {"exact", "bounded"}  # small pieces stay exact
    lossy = [row for row in late if row[1] == "bounded"]
    assert len(lossy) > 5 * len({name for _, _, name, *_ in lossy})  # the same ones at each step
    assert all(exempt >= 600 * 4 for *_, exempt, _ in lossy)


def test_a_codec_rounds_on_all_ranks_alike(tmp_path: Path) -> None:
    first, second = on_hosts(cross_step_ranks.coded_training, tmp_path)
    assert 0 < first["apart"] < 1e-3  # int8 rounds, and what it left comes with the next step
    assert np.array_equal(first["weights"], second["weights"])


def test_losing_a_daemon_raises_in_training_on_every_rank(tmp_path: Path) -> None:
    first, second = on_each_rank(cross_step_ranks.losing_a_daemon, tmp_path)
    assert len(first) >= 3 and len(second) >= 3
    assert first[0].startswith("PeerLost: rank 1")
    assert second[0].startswith("DaemonLost")
    assert "killed by SIGKILL" in second[0]


def test_without_a_daemon_all_fall_back_and_say_so(tmp_path: Path) -> None:
    ranks = on_each_rank(cross_step_ranks.without_a_daemon, tmp_path)
    for rank in ranks:
        [text] = rank["warnings"]
        assert "dlcpd is NOT in use, and gloo averages the gradients" in text
        assert rank["session"] is None
    assert np.array_equal(ranks[0]["weights"], ranks[1]["weights"])
