"""Whether a process has ended, asked of the kernel: it need not be a child of this one.

The parent of a trainer, a fork server, tells of its end later: on a busy machine, seconds later.
"""

import os
import select


def ended(pid: int, within: float = 0.0) -> bool:
    """Whether it does nothing any more, or comes to do so within some seconds."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        ready, _, _ = select.select([descriptor], [], [], within)
    finally:
        os.close(descriptor)
    return bool(ready)
