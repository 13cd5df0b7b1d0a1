"""Whether a process, child or not, has ended, from the kernel.

The fork server, the parent of the trainers, reports an end later: seconds on a busy machine.
"""

import os
import select


def ended(pid: int, within: float = 0.0) -> bool:
    """Whether the process has ended, or ends within `within` seconds."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        ready, _, _ = select.select([descriptor], [], [], within)
    finally:
        os.close(descriptor)
    return bool(ready)
