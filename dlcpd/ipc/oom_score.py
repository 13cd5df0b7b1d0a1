"""OOM score of a private daemon: which process the kernel kills first when memory is short."""

from contextlib import suppress
from pathlib import Path
from typing import Final

PROCESS: Final = Path("/proc/self")
CAP_SYS_RESOURCE: Final = 24  # capabilities(7)


def undo_what_was_added(process: Path = PROCESS) -> None:
    """Reset a score that a trainer has raised for itself, and its private daemon inherits:
    `choom -n 500 -- torchrun ...` is meant for the trainers alone.

    The kernel refuses a value below the one set by root: the score then stays. A privileged
    process keeps its score, which root may have set.
    """
    with suppress(OSError, ValueError, StopIteration):  # the score stays, the daemon serves
        score = process / "oom_score_adj"
        if int(score.read_text()) > 0 and not _is_privileged(process):
            score.write_text("0")


def _is_privileged(process: Path) -> bool:
    lines = (process / "status").read_text().splitlines()
    effective = next(line for line in lines if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) >> CAP_SYS_RESOURCE & 1)
