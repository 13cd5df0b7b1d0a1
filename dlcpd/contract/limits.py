"""Limits that settings and messages share. Source: docs/ipc.md."""

from typing import Final

MAX_WORLD: Final = 256  # ranks; a peer list of this size fits one frame
MAX_ENGINES: Final = 8  # of a daemon; each is a process with a lane to every client
MAX_ARENA: Final = 1 << 36  # 64 GiB of address space, committed only as it is used
MAX_ROUND_TRIP: Final = 60_000_000  # microseconds
