"""`bench cuda`: what its ranks do, on a fake device; that it needs a GPU; its table."""

from pathlib import Path
from typing import Any

import pytest
import torch

from dlcp_lab.bench import cuda_rank
from dlcp_lab.bench.cuda import shown
from dlcp_lab.bench.cuda_rank import Run, measure
from dlcp_lab.device.fake import FakeDevice
from dlcp_lab.replay.architectures import resnet50
from dlcp_lab.replay.shapes import scaled
from dlcpd.ctl import main as command
from tests.client.ddp_ranks import group
from tests.client.test_ddp import on_each_rank


@pytest.mark.skipif(torch.cuda.is_available(), reason="this torch has CUDA")
def test_without_a_gpu_it_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["bench", "cuda"]) == 2
    assert "bench cuda needs a GPU, and torch" in capsys.readouterr().err


def _rank(rank: int, store: str) -> list[dict[str, Any]]:
    cuda_rank.WARMUP = 1  # type: ignore[misc]  # in a process of its own
    network = scaled(resnet50(), 0.001)
    with group(rank, store), FakeDevice(seed=rank, slowest=0.0).holding_all():
        return measure(Run("small", network, 0, 2, torch.device("cpu")), ("dlcp", "gloo"))


def test_a_row_for_each_transport(tmp_path: Path) -> None:
    rows, _ = on_each_rank(_rank, tmp_path)
    assert [row["transport"] for row in rows] == ["dlcp", "gloo"]
    assert all(row["step"] > 0 and 0 <= row["hidden"] <= 1 for row in rows)
    head, lines = shown(rows)
    assert all(len(line) == len(head) for line in lines)
