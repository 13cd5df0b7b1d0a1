"""Adapters that pass a training's communication metrics to a logger.

    handle.report_to(wandb.log, every=100)
    handle.report_to(each(writer.add_scalar), every=100)  # a SummaryWriter of TensorBoard
    handle.report_to(json_lines("metrics.jsonl"))  # a file that `dlcpctl report` draws
    handle.report_to(every=100)  # a line of the logger "dlcp_client" alone

No logging library is imported here: the passed function is called.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

Scalars = Mapping[str, float]  # by name
Log = Callable[[dict[str, float], int], Any]  # scalars, and their step
RUN: Final = "run"  # key of what the daemon reported, in the first line of a launch


def each(add: Callable[[str, float, int], Any]) -> Log:
    """Adapt a logger of single scalars to one that takes all scalars of a step."""

    def log(scalars: dict[str, float], step: int) -> None:
        for name, value in scalars.items():
            add(name, value, step)

    return log


class JsonLines:
    """Appends a line of JSON to a file for each window. The first line also has `run`, by which a
    report names job, hosts, build and settings."""

    def __init__(self, file: str | Path) -> None:
        self._file = file
        self.run: Mapping[str, Any] = {}

    def __call__(self, scalars: dict[str, float], step: int) -> None:
        """Append a window's line. Raises: OSError."""
        run, self.run = self.run, {}
        row = {"step": step, **scalars, **({RUN: run} if run else {})}
        with open(self._file, "a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")


def json_lines(file: str | Path) -> JsonLines:
    """A logger that appends a line of JSON to a file for each window; each rank needs its own."""
    return JsonLines(file)
