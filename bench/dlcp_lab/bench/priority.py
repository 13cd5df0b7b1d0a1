"""Raises the priority of this thread above other work of the machine, for a measurement."""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from dlcpd.contract.errors import BadConfig

HIGHEST: Final = -20
_GROUP: Final = Path("/proc/self/autogroup")  # sched(7): nice values count within a session only


@contextmanager
def highest_priority() -> Iterator[None]:
    """This thread, and the session that it belongs to, have the highest priority meanwhile.

    Raises: BadConfig without the right to it.
    """
    thread, group = os.getpriority(os.PRIO_PROCESS, 0), _nice_of_group()
    try:
        os.setpriority(os.PRIO_PROCESS, 0, HIGHEST)
    except OSError as exc:
        raise BadConfig(f"--priority needs root or CAP_SYS_NICE: {exc.strerror}") from exc
    try:
        if group is not None:
            with suppress(OSError):
                _GROUP.write_text(str(HIGHEST))
        yield
    finally:
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, 0, thread)
            if group is not None:
                _GROUP.write_text(str(group))


def _nice_of_group() -> int | None:
    """None: the kernel has no groups of sessions, or the processes of this one have none."""
    try:
        return int(_GROUP.read_text().split()[-1])
    except (OSError, ValueError, IndexError):
        return None
