"""The shared memory behind an arena."""

import fcntl
import os
from typing import Final

from dlcpd.contract.errors import ArenaFull

# The size is fixed permanently: neither side can make the other fault by truncating it. The engine
# adds another seal once the client has mapped it (io.clients.committed).
SEALS: Final = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW


def create_arena(size: int) -> int:
    """Descriptor of a sealed, sparse memfd of `size` bytes; the caller closes it.

    No page is committed: the client does that, since the kernel charges it for what it commits.
    Raises: ArenaFull.
    """
    try:
        descriptor = os.memfd_create("dlcpd-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    except OSError as exc:
        raise ArenaFull(f"no shared memory for an arena of {size} B: {exc.strerror}") from exc
    try:
        os.ftruncate(descriptor, size)
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, SEALS)
    except OSError as exc:
        os.close(descriptor)
        raise ArenaFull(f"no shared memory for an arena of {size} B: {exc.strerror}") from exc
    return descriptor
