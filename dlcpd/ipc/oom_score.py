"""Which process the kernel kills first for want of memory, as far as a private daemon may say."""

from contextlib import suppress
from pathlib import Path
from typing import Final

PROCESS: Final = Path("/proc/self")
CAP_SYS_RESOURCE: Final = 24  # capabilities(7)


def undo_what_was_added(process: Path = PROCESS) -> None:
    """Take back what a trainer has added to its own score, and its private daemon inherits:
    `choom -n 500 -- torchrun ...` is about the trainers alone.

    An unprivileged process comes back to what root has given it and no lower: the kernel sees to
    that. One that could go lower does not: its score may be what root has given it.
    """
    with suppress(OSError, ValueError, StopIteration):  # it stays: no reason not to serve
        score = process / "oom_score_adj"
        if int(score.read_text()) > 0 and not _is_privileged(process):
            score.write_text("0")


def _is_privileged(process: Path) -> bool:
    lines = (process / "status").read_text().splitlines()
    effective = next(line for line in lines if line.startswith("CapEff:"))
    return bool(int(effective.split()[1], 16) >> CAP_SYS_RESOURCE & 1)
