"""Page-locks parts of an arena, so that a device copies without the CPU."""

import logging
import threading
from typing import Final

from dlcp_client.arena.memory import Region, SharedArena
from dlcp_client.device.seam import CannotPin, Device
from dlcp_client.environment import Pinning
from dlcpd.contract.errors import ArenaFull

# Locking one slab takes the kernel 20 ms, rarely. An arena of 8 GiB has at most 128.
SLAB: Final = 64 << 20  # bytes
HELP: Final = "raise the limit on locked memory (ulimit -l), or lower arena_bytes"

log = logging.getLogger("dlcp_client")


class PinnedMemory:
    """The locked first bytes of an arena. Slabs are locked at first use: an arena of 8 GiB locks
    only the memory in flight, and no byte twice. Thread-safe."""

    def __init__(self, arena: SharedArena, wanted: Pinning) -> None:
        self._arena, self._wanted = arena, wanted
        self._lock = threading.Lock()
        self._slabs: list[tuple[Device, int]] = []  # device that locked it, and its address
        self._until = 0  # bytes of the arena that are locked
        self._refused = (
            "pinning is switched off" if wanted == "never" else ""
        )  # reason against more

    def covers(self, region: Region, device: Device) -> bool:
        """Whether all of `region` is locked; first locks missing slabs if possible.

        Raises: ArenaFull if locking is required and fails.
        """
        end = region.offset + len(region)
        with self._lock:
            while self._until < end and not self._refused:
                self._extend(device)
            if end > self._until and self._wanted == "require":
                raise ArenaFull(f"{self._refused}, and DLCPD_PINNED=require demands it: {HELP}")
            return end <= self._until

    def cuts(self, region: Region) -> list[int]:
        """Offsets in the region, in bytes, at which another slab begins."""
        first = -region.offset % SLAB or SLAB
        return list(range(first, len(region), SLAB))

    def close(self) -> None:
        """Unlock everything. No copy may be in progress."""
        with self._lock:
            self._refused = "the session is closed"
            for device, address in self._slabs:
                device.unpin(address)
            self._slabs.clear()
            self._until = 0

    def abandon(self) -> None:
        """In a forked child: memory is locked for the parent."""
        self._lock, self._refused, self._until = threading.Lock(), "forked", 0
        self._slabs.clear()

    def _extend(self, device: Device) -> None:
        start = self._until
        size = min(SLAB, self._arena.size - start)
        try:
            address = self._arena.committed(start, size)
            device.pin(address, size)
        except (ArenaFull, CannotPin) as exc:
            self._refuse(device, size, exc)
            return
        self._slabs.append((device, address))
        self._until = start + size

    def _refuse(self, device: Device, size: int, reason: Exception) -> None:
        self._refused = f"{size} B more of the arena cannot be locked for {device.name} ({reason})"
        if self._wanted == "prefer":
            log.warning(
                (
                    "%s: copies beyond the first %d B of the arena use pageable memory, which is "
                    "slower; %s, or set DLCPD_PINNED=never"
                ),
                self._refused,
                self._until,
                HELP,
            )
