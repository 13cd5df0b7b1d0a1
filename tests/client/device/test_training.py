"""DDP and cross_step with a model on a device, over real daemons: as on the CPU, bit for bit."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from dlcp_client import Guard, bounded, cross_step, ddp
from dlcp_lab.device.fake import FakeDevice
from dlcpd.contract.errors import BadConfig
from tests import examples
from tests.client.device import training_ranks
from tests.client.test_ddp import on_each_rank, on_hosts


@pytest.mark.parametrize(
    ("crossing", "view"),
    [(False, False), (False, True), (True, False)],
    ids=["ddp", "ddp-views", "cross_step"],
)
def test_exact_training_equals_that_on_the_cpu(tmp_path: Path, crossing: bool, view: bool) -> None:
    for rank in on_hosts(training_ranks.trained, tmp_path, crossing, view):
        assert np.array_equal(rank["there"], rank["here"])
        # Once each way; and 5 kB that connecting and agreeing on the order of the layers reduce.
        for copied in rank["copied"].values():
            assert rank["bytes"] <= copied <= rank["bytes"] + 5000


# Gradients leave the device, and weights return. If each of two ranks updates its half there, the
# averages of a half return, too, and its weights leave; these weights come to the device for the
# first step, and again after a change: twice in four steps.
COPIES = {"host": [1.0, 1.0], "device": [1.5, 1.5 + 2 * 0.5 / training_ranks.STEPS]}

UNEVEN = 0.002  # the two parts of a bucket differ by the alignment of a part


@pytest.mark.parametrize("where", COPIES)
def test_fused_updates_a_device_as_it_does_the_cpu(tmp_path: Path, where: str) -> None:
    for rank in on_each_rank(training_ranks.updated, tmp_path, where):
        for name in training_ranks.FUSED:
            assert rank[name], (name, rank)
        for name in ("exact", "rounded"):
            for copied, wanted in zip(rank[f"{name}, bytes"], COPIES[where], strict=True):
                apart = UNEVEN if where == "device" else 0
                assert wanted - apart <= copied < 1.001 * wanted + apart, rank  # and a norm
        assert 0 < rank["half"] < 0.01


def test_losing_a_daemon_raises_in_training_on_every_rank(tmp_path: Path) -> None:
    first, second = on_each_rank(training_ranks.losing_a_daemon, tmp_path)
    assert "PeerLost: rank 1" in first
    assert "DaemonLost" in second


@pytest.mark.usefixtures("group_of_one")
@pytest.mark.parametrize(
    "options",
    [{"guard": Guard(), "policy": bounded(0.01)}, {"transport": "auto"}],
    ids=["guard", "auto"],
)
def test_what_a_device_cannot_have_is_refused(options: dict[str, Any]) -> None:
    net = DistributedDataParallel(nn.Linear(2, 2))
    with (
        FakeDevice(seed=1).holding_all(),
        pytest.raises(BadConfig, match="does not support a model on a device"),
    ):
        ddp.register(net, **options)


@pytest.mark.usefixtures("group_of_one")
def test_a_guard_is_refused_across_steps_too() -> None:
    net = DistributedDataParallel(nn.Linear(2, 2))
    sgd = torch.optim.SGD(net.parameters(), lr=0.1)
    with FakeDevice(seed=1).holding_all(), pytest.raises(BadConfig, match="guard does not support"):
        cross_step.register(net, sgd, bounded(0.01), guard=Guard())


@pytest.mark.parametrize("device", [True, False], ids=["device", "cpu"])
def test_hosts_add_up_among_themselves_first(tmp_path: Path, device: bool) -> None:
    ranks = on_hosts(training_ranks.hierarchical, tmp_path, 4, 2, device, world=4)
    for rank in ranks:
        assert rank["apart"] < 1e-5
        assert np.array_equal(rank["weights"], ranks[0]["weights"])


def test_a_host_of_one_rank_is_exact(tmp_path: Path) -> None:
    ranks = on_hosts(training_ranks.hierarchical, tmp_path, 2, 1, True)
    assert all(rank["apart"] == 0 for rank in ranks)  # of two numbers there is one sum


def test_a_host_that_loses_its_daemon_is_named_on_all(tmp_path: Path) -> None:
    said = on_each_rank(training_ranks.losing_a_daemon_among_hosts, tmp_path, world=4)
    assert all("PeerLost: rank" in text for text in said[:2])
    assert all("DaemonLost" in text for text in said[2:])


def test_hosts_of_different_sizes_are_refused(tmp_path: Path) -> None:
    for said in on_each_rank(training_ranks.odd_hosts, tmp_path, world=3):
        assert said.startswith("BadConfig: local= has groups of 1, 2 ranks in a world of 3")


def test_the_two_lines_of_the_readme_work(tmp_path: Path) -> None:
    readme = (Path(__file__).parents[3] / "README.md").read_text()
    [block] = [
        text
        for text in re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
        if "model.to(device)" in text
    ]
    counts = on_each_rank(training_ranks.from_the_readme, tmp_path, block)
    assert min(counts) > 1  # one proves the data path


def test_the_example_runs_under_torchrun() -> None:
    example = examples.EXAMPLES / "train_cuda.py"
    assert len(example.read_text().splitlines()) <= 90
    out = examples.output("train_cuda.py", 2, timeout=110)
    first, *rest = out.splitlines()
    assert torch.cuda.is_available() or first == "on a fake device: this torch finds no GPU"
    losses = [float(line.split()[-1]) for line in rest if "loss" in line]
    assert losses[-1] < 0.5 * losses[0]
    assert "Ledger(operations=" in rest[-1]
