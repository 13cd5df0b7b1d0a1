"""Trainings in 16-bit floats with 2 % datagram loss: skipped steps, loss and accuracy.

Two ranks learn digits for 200 steps over Gloo, exact and bounded, for several seeds. A GradScaler
keeps float16 at its limit. `python -m dlcp_lab.bench.half_precision`
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from dlcp_lab.bench import torchrun
from dlcp_lab.emulation.scratch import scratch_folder
from dlcp_lab.report.measured import Gap, attempt
from dlcpd.cli import table
from dlcpd.cli.grammar import whole

RANK: Final = "dlcp_lab.bench.half_precision_rank"
LIMIT: Final = 900.0  # seconds for all trainings of a dtype
DTYPES: Final = ("float16", "bfloat16", "float32")
LOSSY: Final = """
[daemon]
control_address = "127.0.0.1"
log_level = "error"
[network]
paths = [{ address = "127.0.0.1" }]
[inject]
loss = 0.02
seed = 1
"""
HEADER: Final = ("dtype", "seed", "over", "skipped", "loss", "accuracy", "waived", "of")


def trained(dtype: str, seeds: int, steps: int) -> list[list[Any]]:
    """A row for each training, with the columns of HEADER. Raises: RunFailed."""
    with scratch_folder() as folder:
        config = Path(folder) / "lossy.toml"
        config.write_text(LOSSY)
        out = torchrun.run(
            RANK,
            dtype,
            str(seeds),
            str(steps),
            limit=LIMIT,
            DLCPD_SHARE="0",
            DLCPD_CONFIG=str(config),
        )
    return [json.loads(line) for line in out if line.startswith("[")]


def main(arguments: Sequence[str] | None = None, say: Callable[[str], Any] = print) -> int:
    """Train and print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="dlcp_lab.bench.half_precision", description=__doc__)
    parser.add_argument("--seeds", type=whole(1, 1000), default=3)
    parser.add_argument("--steps", type=whole(1, 100_000), default=200)
    asked = parser.parse_args(arguments)
    rows: list[list[Any]] = []
    failed: list[Gap] = []
    for dtype in DTYPES:
        found = attempt({"dtype": dtype}, partial(trained, dtype, asked.seeds, asked.steps))
        if isinstance(found, Gap):
            failed.append(found)
            rows.append(found.cells(len(HEADER)))
        else:
            rows += found
    say(table.render(HEADER, rows, left=3))
    for gap in failed:
        say(gap.line())
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
