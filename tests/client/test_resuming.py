"""Checkpoints hold what a bounded training has yet to bring back."""

from pathlib import Path

import pytest
import torch
from torch import nn

from dlcp_client import PowerSGD, ddp
from dlcp_client.hooks.resumed_gradients import ResumedGradients
from dlcpd.contract.errors import BadConfig
from tests.client import report_ranks
from tests.client.test_ddp import on_each_rank


@pytest.fixture
def lossy(tmp_path: Path) -> Path:
    """Small segments, so that some are waived in every step."""
    file = tmp_path / "dlcpd.toml"
    file.write_text(
        '[daemon]\ncontrol_address = "127.0.0.1"\n'
        '[network]\npaths = [{ address = "127.0.0.1" }]\npeer_timeout = 10.0\nsegment_size = 1280\n'
        "[inject]\nloss = 0.1\nseed = 1\n"
    )
    return file


@pytest.mark.parametrize("how", ["ddp", "cross_step"])
def test_what_was_waived_comes_back_in_both_that_go_on(
    tmp_path: Path, lossy: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLCPD_SHARE", "0")
    ranks = on_each_rank(report_ranks.resumed, tmp_path, how, lossy, True)
    first, second = (rank["state"]["residuals"] for rank in ranks)
    assert first and first.keys() == second.keys() <= {"layers.0.weight", "layers.1.weight"}
    assert all(torch.equal(first[name], second[name]) for name in first)
    for rank in ranks:
        assert rank["left"] == 0 and rank["state"]["step"] == 6 and rank["warmup"] == 4
        assert rank["gone_on"] < 1e-5 and rank["resumed"] < 1e-5
        assert not rank["after"]["residuals"] and rank["after"]["step"] == 7


def test_without_the_state_it_would_be_lost(
    tmp_path: Path, lossy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DLCPD_SHARE", "0")
    for rank in on_each_rank(report_ranks.resumed, tmp_path, "ddp", lossy, False):
        assert rank["gone_on"] < 1e-5
        assert rank["resumed"] > 1e-3


def test_a_state_of_something_else_is_refused_and_changes_nothing(group_of_one: None) -> None:
    handle = ddp.register(nn.parallel.DistributedDataParallel(nn.Linear(2, 2)))
    state = {"format": 1, "step": 3, "scale": 1.0, "residuals": {"weight": torch.ones(2, 2)}}
    for change, said in (
        ({"format": 2}, "format 2"),
        ({"residuals": {"other": torch.ones(2, 2)}}, "no parameter other"),
        ({"residuals": {"weight": torch.ones(3)}}, r"no parameter weight of shape \(3,\)"),
    ):
        with pytest.raises(BadConfig, match=said):
            handle.load_state_dict(state | change)
    assert handle.state_dict() == {"format": 1, "step": 0, "scale": 1.0, "residuals": {}}
    handle.load_state_dict(state)
    assert handle.state_dict()["step"] == 3
    handle.rules.step = 1
    with pytest.raises(BadConfig, match="before the first backward pass"):
        handle.load_state_dict(state)


def test_leftovers_that_are_not_the_daemons_are_refused(group_of_one: None) -> None:
    net = nn.parallel.DistributedDataParallel(nn.Linear(2, 2))
    with pytest.raises(BadConfig, match="low_rank does not support state_dict"):
        ddp.register(net, low_rank=PowerSGD()).state_dict()


def test_leftovers_follow_the_loss_scale_and_are_added_once() -> None:
    parameter = nn.Parameter(torch.zeros(2))
    carried = ResumedGradients({"a": parameter})
    carried.load({"a": torch.tensor([1.0, 2.0])}, scale=4.0)
    carried.rescale(2.0)
    carried.take([(parameter, torch.tensor([0.0, 1.0])), (parameter, torch.zeros(2))])
    gradient = torch.ones(2)
    for _ in range(2):
        carried.add_to([(parameter, gradient)])
    assert gradient.tolist() == [1.5, 3.0] and not carried
