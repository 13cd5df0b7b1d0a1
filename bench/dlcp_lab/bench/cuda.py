"""`dlcpctl bench cuda`: step time and overlap of networks on the GPUs of this host."""

import argparse
import json
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dlcp_lab.bench.cuda_turns import FIGURES
from dlcp_lab.emulation.scratch import scratch_folder
from dlcp_lab.report.measured import Gap, Rows
from dlcpd import __version__, starter
from dlcpd.cli.output import Output
from dlcpd.contract.errors import BadConfig, DeadlineExceeded, DlcpError

TIMEOUT: Final = 1800.0  # seconds for the whole run
RANK: Final = "dlcp_lab.bench.cuda_rank"
HEADER: Final = ("model", "transport", "step ms", "p99 ms", "compute ms", "alone ms", "hidden")


@dataclass(frozen=True, slots=True)
class CudaMedians:
    """Medians of one network over one transport, seconds; `hidden`: a fraction."""

    model: str
    transport: str
    step: float
    p99: float
    compute: float  # a backward pass without reduction
    alone: float  # the reduction without computation
    hidden: float  # of the reduction, behind the computation


def cuda(options: argparse.Namespace, output: Output) -> int:
    """Measure and print. Raises: BadConfig where there is no GPU."""
    gpus = _gpus()
    with scratch_folder() as folder:
        file = Path(folder) / "rows.json"
        words = [
            *starter.command("torch.distributed.run"),
            "--standalone",
            "--nproc-per-node",
            str(options.ranks or gpus),
            "--no-python",
            *starter.command(RANK),
            "--models",
            ",".join(options.models),
            "--samples",
            str(options.samples),
            "--steps",
            str(options.steps),
            "--write",
            str(file),
        ]
        try:
            ended = subprocess.run(words, env=starter.environment(), timeout=TIMEOUT, check=False)
        except subprocess.TimeoutExpired as exc:
            raise DeadlineExceeded(
                f"bench cuda: the ranks did not end within {TIMEOUT:g} s"
            ) from exc
        if ended.returncode:
            raise DlcpError(
                f"bench cuda: a rank ended with {ended.returncode}; its output is above"
            )
        rows = rows_of(json.loads(file.read_text()))
    output.line(f"{options.ranks or gpus} ranks, {gpus} GPUs; medians of {options.steps} steps")
    output.line(rows.render(HEADER, cells, left=2))
    for line in rows.reasons():
        output.line(line)
    output.document({"command": "bench cuda", "version": __version__, "rows": rows.document()})
    return 0


def rows_of(found: Sequence[dict[str, Any]]) -> Rows[CudaMedians]:
    """The rows that the ranks wrote."""
    rows = Rows(CudaMedians)
    for one in found:
        labels = {"model": one["model"], "transport": one["transport"]}
        if one["reason"]:
            rows.everything.append(Gap(labels, one["reason"]))
        else:
            rows.everything.append(CudaMedians(**labels, **{name: one[name] for name in FIGURES}))
    return rows


def cells(row: CudaMedians) -> list[str]:
    """A row of the table."""
    times = (f"{seconds * 1e3:.2f}" for seconds in (row.step, row.p99, row.compute, row.alone))
    return [row.model, row.transport, *times, f"{row.hidden:.0%}"]


def _gpus() -> int:
    """Number of GPUs. Raises: BadConfig if there is none."""
    import torch  # noqa: PLC0415  # other commands need no torch

    if not torch.cuda.is_available():
        raise BadConfig(
            f"bench cuda needs a GPU, and torch {torch.__version__} finds none on this host: "
            "install a torch with CUDA on a host with a GPU, or use bench step, which "
            "emulates computation"
        )
    return torch.cuda.device_count()
