"""Our hooks for FSDP2 over real daemons."""

from pathlib import Path

import numpy as np
import pytest

from tests.c10d import fsdp_programs, programs
from tests.c10d.worlds import over


@pytest.mark.parametrize("size", [2, 3])
def test_exact_hooks_change_no_bit(size: int, tmp_path: Path) -> None:
    over("dlcp", fsdp_programs.exact_hooks, size, tmp_path)


def test_reductions_overlap_the_backward_pass_and_end_with_it(tmp_path: Path) -> None:
    over("dlcp", fsdp_programs.overlapped, 2, tmp_path)


def test_hooks_on_parameters_see_whole_gradients(tmp_path: Path) -> None:
    over("dlcp", fsdp_programs.seen_by_hooks, 2, tmp_path)


def test_bounded_hooks_lose_only_where_they_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "dlcpd.toml"
    file.write_text(
        '[daemon]\ncontrol_address = "127.0.0.1"\n'
        '[network]\npaths = [{ address = "127.0.0.1" }]\n[inject]\nloss = 0.05\nseed = 1\n'
    )
    ranks = over(
        "dlcp", fsdp_programs.bounded_hooks, 2, tmp_path, environment={"DLCPD_CONFIG": str(file)}
    )
    assert sum(rank["waived"] for rank in ranks) > 0
    asked = ranks[0]["asked"]
    assert asked == ranks[1]["asked"]
    assert {mode for step, mode, *_ in asked if step <= 2} == {"exact"}
    late = [(mode, name, exempt, layers) for step, mode, name, exempt, layers in asked if step > 2]
    assert {mode for mode, *_ in late} == {"exact", "bounded"}  # the embedding is too small
    assert len({name for mode, name, *_ in late if mode == "bounded"}) == 2  # two large blocks
    assert all(exempt >= 600 * 4 for mode, _, exempt, _ in late if mode == "bounded")
    assert all(layers for *_, layers in late)
    for name, weights in ranks[0]["weights"].items():
        assert np.array_equal(weights, ranks[1]["weights"][name])


def test_hooks_with_a_codec_round_on_all_ranks_alike(tmp_path: Path) -> None:
    first, second = over("dlcp", fsdp_programs.coded_hooks, 2, tmp_path)
    assert 0 < first["apart"] < 1e-4  # int8 rounds, and what it left comes with the next step
    for name, weights in first["weights"].items():
        assert np.array_equal(weights, second["weights"][name])


def test_a_guard_looks_at_what_is_scattered_and_tightens_on_all_ranks(tmp_path: Path) -> None:
    file = tmp_path / "dlcpd.toml"
    file.write_text(
        '[daemon]\ncontrol_address = "127.0.0.1"\n'
        '[network]\npaths = [{ address = "127.0.0.1" }]\n[inject]\nloss = 0.1\nseed = 1\n'
    )
    first, second = over(
        "dlcp", fsdp_programs.watched, 2, tmp_path, environment={"DLCPD_CONFIG": str(file)}
    )
    assert first == second
    assert first[1]["samples"] == 0
    assert 0 < first[-1]["error"] < 0.5 and 0.8 < first[-1]["cosine"] <= 1.0
    assert [report["bound"] for report in first][-1] == 0.0
    assert first[-1]["excesses"] == 1 and first[-1]["samples"] <= 3


def test_exact_steps_are_compared_with_bounded_ones(tmp_path: Path) -> None:
    first, second = over("dlcp", fsdp_programs.compared, 2, tmp_path)
    assert first == second
    assert first["exact"] == [5, 10, 15, 20, 25]
    assert (first["compared"], first["bounded"]) == (5, 20)  # of 21, one is sampled


def test_what_does_not_fit_is_refused_by_name(tmp_path: Path) -> None:
    over("dlcp", fsdp_programs.refused, 2, tmp_path)


def test_hybrid_sharding_reduces_twice(tmp_path: Path) -> None:
    ours = over("dlcp", fsdp_programs.replicated, 4, tmp_path)
    theirs = over("gloo", programs.hsdp, 4, tmp_path)
    for found, expected in zip(ours, theirs, strict=True):
        for name in expected:
            np.testing.assert_allclose(found[name], expected[name], rtol=1e-4, atol=1e-5)
