"""Cost of a process group over dlcpd and Gloo: time to create and destroy it, memory in training.

Two ranks on this machine under torchrun, in alternation. `python -m dlcp_lab.bench.group_life`
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from dlcp_lab.bench import torchrun
from dlcp_lab.report.measured import WORDS, Gap, attempt
from dlcp_lab.report.statistic import median
from dlcpd.cli import table

RANK: Final = "dlcp_lab.bench.group_life_rank"
HOW: Final = ("gloo", "dlcp", "exact", "bounded")
TIMES: Final = ("first init", "later init", "new_group", "destroy")


def measured(how: str) -> dict[str, float]:
    """Measurements of rank 0: seconds, and its peak resident memory in MB.

    Raises: RunFailed with the end of stderr of a run that failed.
    """
    found: dict[str, float] = json.loads(torchrun.run(RANK, how)[-1])
    return found


def lines(seen: dict[str, list[dict[str, float]]]) -> list[str]:
    """Medians and ranges, as tables."""
    times = [[name, *(_seconds(seen[how], name) for how in ("gloo", "dlcp"))] for name in TIMES]
    memory = [[how, *_megabytes(seen[how])] for how in HOW]
    return [  # a kind of which every run failed has "not measured"
        table.render(("seconds of", "gloo", "dlcp"), times, left=1),
        table.render(("training over", "peak MB", "range"), memory, left=1),
    ]


def _seconds(runs: Sequence[dict[str, float]], name: str) -> str:
    values = sorted(run[name] for run in runs)
    if not values:
        return WORDS
    return f"{median(values):.3f} ({values[0]:.3f}..{values[-1]:.3f})"


def _megabytes(runs: Sequence[dict[str, float]]) -> tuple[str, str | None]:
    values = sorted(run["peak"] for run in runs)
    if not values:
        return WORDS, None
    return f"{median(values):.0f}", f"{values[0]:.0f}..{values[-1]:.0f}"


def main(arguments: Sequence[str] | None = None, say: Callable[[str], Any] = print) -> int:
    """Measure and print; returns the exit status."""
    parser = argparse.ArgumentParser(prog="dlcp_lab.bench.group_life", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5, help="runs of each kind")
    rounds = max(1, parser.parse_args(arguments).rounds)
    seen: dict[str, list[dict[str, float]]] = {how: [] for how in HOW}
    failed: list[Gap] = []
    for _ in range(rounds):
        for how in HOW:
            found = attempt({"how": how}, partial(measured, how))
            if isinstance(found, Gap):
                failed.append(found)
            else:
                seen[how].append(found)
    say("\n\n".join([*lines(seen), *(gap.line() for gap in failed)]))
    return 0 if all(seen.values()) else 1


if __name__ == "__main__":
    sys.exit(main())
