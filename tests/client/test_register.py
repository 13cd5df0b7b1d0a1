"""What `register` takes for granted, refuses and leaves behind."""

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch._C._distributed_c10d import HashStore
from torch.nn.parallel import DistributedDataParallel

from dlcp_client import bounded, connect, cross_step, ddp
from dlcpd.contract.errors import BadConfig
from tests.client import register_ranks
from tests.client.stand_in import StandIn
from tests.client.test_ddp import on_each_rank, on_hosts

WIDTH = 600  # a layer has more than 1 MiB


@pytest.fixture
def far(group_of_one: None) -> Iterator[StandIn]:
    made = StandIn(world=1, arena_bytes=64 << 20)
    yield made
    made.close()


def register(call: str, net: DistributedDataParallel, *policy: Any, **options: Any) -> Any:
    if call == "ddp":
        return ddp.register(net, *policy, **options)
    return cross_step.register(net, torch.optim.SGD(net.parameters(), lr=0.1), *policy, **options)


@pytest.mark.parametrize("call", ["ddp", "cross_step"])
@pytest.mark.parametrize("policy", [(), (bounded(0.01),)], ids=["default", "bounded"])
def test_only_who_asks_for_it_gets_bounded(far: StandIn, call: str, policy: tuple[Any]) -> None:
    net = DistributedDataParallel(nn.Linear(WIDTH, WIDTH))
    handle = register(call, net, *policy, session=far.sessions[0], warmup_steps=2)
    for _ in range(4):
        net(torch.ones(1, WIDTH)).sum().backward()
        net.zero_grad()
    bounds = {submit.max_loss for submit in far.far[0].submits.values()}
    assert bounds == {0.0, *(one.max_loss for one in policy)}
    handle.close()


@pytest.mark.parametrize("call", ["ddp", "cross_step"])
def test_gradients_say_the_loss_scale_that_they_carry(far: StandIn, call: str) -> None:
    """The second step overflows, and the scaler halves its scale after it."""
    net = DistributedDataParallel(nn.Linear(WIDTH, WIDTH))
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    options: dict[str, Any] = {"session": far.sessions[0], "scaler": scaler}
    if call == "ddp":
        handle: Any = ddp.register(net, **options)
    else:
        handle = cross_step.register(net, sgd, **options)
    for step in range(3):
        sgd.zero_grad()
        loss = net(torch.ones(1, WIDTH)).sum() * (float("inf") if step == 1 else 1.0)
        scaler.scale(loss).backward()
        scaler.step(sgd)
        scaler.update()
    scales = [submit.scale for _, submit in sorted(far.far[0].submits.items())]
    assert set(scales) == {1024.0, 512.0}
    assert scales == sorted(scales, reverse=True)
    handle.close()


@pytest.mark.usefixtures("group_of_one")
def test_a_scaler_is_a_grad_scaler() -> None:
    net = DistributedDataParallel(nn.Linear(2, 2))
    wrong: Any = 1024.0
    with pytest.raises(BadConfig, match=r"scaler 1024.0 is not a GradScaler: pass the"):
        ddp.register(net, scaler=wrong)


def test_a_wrong_policy_is_told_before_anything_is_opened(tmp_path: Path) -> None:
    for said in on_each_rank(register_ranks.wrong_policies, tmp_path):
        assert len(said) == 8
        for text, left in said:
            assert text.startswith("BadPolicy: policy ")
            assert "write exact() or bounded(0.01)" in text
            assert not left


@pytest.mark.parametrize("crossing", [False, True], ids=["ddp", "cross_step"])
@pytest.mark.parametrize("builtin", [False, True], ids=["python", "builtin"])
def test_a_hook_that_is_there_already_leaves_nothing_open(
    tmp_path: Path, builtin: bool, crossing: bool
) -> None:
    for rank in on_each_rank(register_ranks.with_a_hook, tmp_path, builtin, crossing):
        assert rank["error"].startswith("BadConfig: the model has a communication hook")
        assert not rank["left"]
        assert not rank["patched"]


@pytest.mark.parametrize("crossing", [False, True], ids=["ddp", "cross_step"])
def test_ranks_may_call_their_layers_in_another_order(tmp_path: Path, crossing: bool) -> None:
    ranks = on_hosts(register_ranks.in_another_order, tmp_path, crossing)
    assert np.array_equal(ranks[0]["weights"], ranks[1]["weights"])
    assert all(rank["apart"] < 1e-6 for rank in ranks)


@pytest.fixture
def firewalled(tmp_path: Path) -> str:
    """The configuration of a daemon that no datagram reaches."""
    file = tmp_path / "dlcpd.toml"
    file.write_text(
        '[daemon]\ncontrol_address = "127.0.0.1"\nlog_level = "error"\n'
        '[network]\npaths = [{ address = "127.0.0.1" }]\npeer_timeout = 1.0\n[inject]\nloss = 1.0\n'
    )
    return str(file)


def test_blocked_udp_is_named_when_registering(tmp_path: Path, firewalled: str) -> None:
    ranks = on_each_rank(register_ranks.behind_a_firewall, tmp_path, firewalled, False)
    for rank in ranks:
        assert rank["error"].startswith("PeerLost: all ranks joined, but no data reached")
        assert "has not answered" in rank["error"]
        assert " from UDP 127.0.0.1:" in rank["error"]
        assert rank["children"] == 0


def test_with_blocked_udp_all_fall_back_and_say_so(tmp_path: Path, firewalled: str) -> None:
    ranks = on_each_rank(register_ranks.behind_a_firewall, tmp_path, firewalled, True)
    for rank in ranks:
        [text] = rank["warnings"]
        assert "dlcpd is NOT in use, and gloo averages the gradients" in text
        assert " from UDP 127.0.0.1:" in text
        assert rank["session"] is None
    assert np.array_equal(ranks[0]["weights"], ranks[1]["weights"])


def test_registering_takes_no_longer_than_it_may(tmp_path: Path) -> None:
    """The other rank never comes, and all would fall back: its vote is not waited for for long."""
    timeout = 6.0
    first, _ = on_each_rank(register_ranks.missing_a_rank, tmp_path, timeout)
    assert "rank 1 of 2 ranks" in first["error"]
    assert first["took"] < timeout + 20  # five, and what a loaded machine adds; it was 36
    assert first["children"] == 0


@pytest.mark.usefixtures("group_of_one")
@pytest.mark.parametrize("timeout", [0, -1.0, float("nan"), "8", timedelta(0)])
def test_a_timeout_that_is_none(timeout: Any) -> None:
    net = DistributedDataParallel(nn.Linear(2, 2))
    with pytest.raises(BadConfig, match=r"timeout .* is not valid: use seconds"):
        ddp.register(net, timeout=timeout)
    with pytest.raises(BadConfig, match=r"timeout .* is not valid: use seconds"):
        connect(HashStore(), 0, 2, timeout=timeout)
