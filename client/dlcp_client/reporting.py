"""Numbers of a training's communication for the logger that it uses already.

    handle.report_to(wandb.log, every=100)
    handle.report_to(each(writer.add_scalar), every=100)  # a SummaryWriter of TensorBoard
    handle.report_to(json_lines("metrics.jsonl"))  # a file that `dlcpctl report` draws
    handle.report_to(every=100)  # a line of the logger "dlcp_client" alone

Neither library is imported here: what is passed is called.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

Scalars = Mapping[str, float]  # by name
Log = Callable[[dict[str, float], int], Any]  # scalars, and the step that they are of


def each(add: Callable[[str, float, int], Any]) -> Log:
    """A logger that takes one scalar at a time, as one that takes all of a step."""

    def log(scalars: dict[str, float], step: int) -> None:
        for name, value in scalars.items():
            add(name, value, step)

    return log


def json_lines(file: str | Path) -> Log:
    """A logger that adds a line of JSON to a file for each window; each rank needs its own."""

    def log(scalars: dict[str, float], step: int) -> None:
        with open(file, "a", encoding="utf-8") as lines:
            lines.write(json.dumps({"step": step, **scalars}) + "\n")

    return log
