"""`bench cuda`: what its ranks do, on a fake device; that it needs a GPU; its table."""

from pathlib import Path
from typing import Any

import pytest
import torch

from dlcp_lab.bench import cuda_rank
from dlcp_lab.bench.cuda import HEADER, cells, rows_of
from dlcp_lab.bench.cuda_rank import Run, measure, nccl_refuses
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
        transports = ("dlcp", "nccl", "gloo")
        return measure(Run("small", network, 0, 2, torch.device("cpu")), transports)


def test_a_row_for_each_transport(tmp_path: Path) -> None:
    rows, _ = on_each_rank(_rank, tmp_path)
    dlcp, nccl, gloo = rows
    assert [row["transport"] for row in rows] == ["dlcp", "nccl", "gloo"]
    assert all(row["step"] > 0 and 0 <= row["hidden"] <= 1 for row in (dlcp, gloo))
    assert nccl["step"] is None
    assert "NCCL" in nccl["reason"]
    table = rows_of(rows)
    assert all(len(cells(row)) == len(HEADER) for row in table)
    assert list(table.reasons()) == [f"small nccl: not measured: {nccl['reason']}"]
    assert [row.get("not_measured") for row in table.document()] == [None, nccl["reason"], None]


def _failing(rank: int, store: str) -> list[dict[str, Any]]:
    """The second step over dlcp fails on rank 1."""
    cuda_rank.WARMUP = 1  # type: ignore[misc]  # in a process of its own
    original, calls = cuda_rank._step, iter(range(100))  # noqa: SLF001  # injects the fault

    def step(model: Any, device: torch.device, *, alone: bool = False) -> None:
        original(model, device, alone=alone)
        if rank == 1 and next(calls) == 2:
            raise RuntimeError("a fault")

    cuda_rank._step = step  # noqa: SLF001
    network = scaled(resnet50(), 0.001)
    with group(rank, store), FakeDevice(seed=rank, slowest=0.0).holding_all():
        return measure(Run("small", network, 0, 2, torch.device("cpu")), ("gloo", "dlcp"))


def test_a_transport_that_fails_on_a_rank_is_left_out_on_all(tmp_path: Path) -> None:
    for gloo, dlcp in on_each_rank(_failing, tmp_path):
        assert gloo["step"] > 0
        assert dlcp["step"] is None
        assert dlcp["reason"] == "rank 1: RuntimeError: a fault"


def test_nccl_refuses_two_ranks_on_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.distributed, "is_nccl_available", lambda: True)
    assert nccl_refuses(["host 0000:01:00", "host 0000:02:00"]) == ""
    told = "NCCL refuses two ranks on one GPU: ranks 0 and 2 on host 0000:01:00"
    assert nccl_refuses(["host 0000:01:00", "host 0000:02:00", "host 0000:01:00"]) == told
    assert nccl_refuses(["host 0000:01:00", ""]) == "NCCL needs a GPU, and rank 1 has none"
