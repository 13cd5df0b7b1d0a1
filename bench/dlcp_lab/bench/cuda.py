"""`dlcpctl bench cuda`: step time and overlap of networks on the GPUs of this host."""

import argparse
import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from dlcp_lab.report.measured import WORDS
from dlcpd import __version__, starter
from dlcpd.contract.errors import BadConfig, DeadlineExceeded, DlcpError
from dlcpd.ctl import table
from dlcpd.ctl.output import Output

TIMEOUT: Final = 1800.0  # seconds for the whole run
RANK: Final = "dlcp_lab.bench.cuda_rank"


def cuda(options: argparse.Namespace, output: Output) -> int:
    """Measure and print. Raises: BadConfig where there is no GPU."""
    gpus = _gpus()
    with TemporaryDirectory() as folder:
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
        rows: list[dict[str, Any]] = json.loads(file.read_text())
    output.line(f"{options.ranks or gpus} ranks, {gpus} GPUs; medians of {options.steps} steps")
    output.line(table.render(*shown(rows), left=2))
    for line in reasons(rows):
        output.line(line)
    output.document({"command": "bench cuda", "version": __version__, "rows": rows})
    return 0


def shown(rows: list[dict[str, Any]]) -> tuple[list[str], list[list[str | None]]]:
    """Head and lines of the table."""
    head = ["model", "transport", "step ms", "p99 ms", "compute ms", "alone ms", "hidden"]
    return head, [[row["model"], row["transport"], *_figures(row)] for row in rows]


def _figures(row: dict[str, Any]) -> list[str | None]:
    if row["reason"]:
        return [WORDS, None, None, None, None]
    times = (f"{row[name] * 1e3:.2f}" for name in ("step", "p99", "compute", "alone"))
    return [*times, f"{row['hidden']:.0%}"]


def reasons(rows: list[dict[str, Any]]) -> Iterator[str]:
    """A line for each row that was not measured."""
    for row in rows:
        if row["reason"]:
            yield f"{row['model']} over {row['transport']}: {WORDS}: {row['reason']}"


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
