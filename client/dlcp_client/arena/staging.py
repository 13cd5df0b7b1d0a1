"""Copies between the devices of a process and the arena of a session."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, cast

from dlcp_client.arena.blocks import Block
from dlcp_client.arena.memory import Region, SharedArena
from dlcp_client.arena.pending_copies import PendingCopies
from dlcp_client.arena.pinning import PinnedMemory
from dlcp_client.arena.submitter import Submitter
from dlcp_client.device.seam import Device, Event
from dlcp_client.environment import Pinning
from dlcpd.contract.errors import DeviceFailed, DlcpError

log = logging.getLogger("dlcp_client")


class Staging:
    """The staging of one session. It starts a thread only when a tensor is on a device."""

    def __init__(self, arena: SharedArena, pinned: Pinning) -> None:
        self._pinned = PinnedMemory(arena, pinned)
        self._landings, self._submitter = PendingCopies(), Submitter()
        self.jobs: Final = self._submitter.jobs  # operations that wait for a device, or behind one

    def put(self, job: Callable[[], None]) -> None:
        """Queue `job`, which raises nothing and may block."""
        self._submitter.put(job)

    def locked(self, region: Region, device: Device) -> bool:
        """Whether copies of `region` need no CPU thread; locks it if possible.

        Raises: ArenaFull if locking is required and fails.
        """
        return self._pinned.covers(region, device)

    def fetch(self, block: Block[Any], region: Region, after: Event) -> Event:
        """Begin to copy a device tensor to the arena. The caller touches neither until the event.

        Raises: DeviceFailed.
        """
        device = cast("Device", block.device)
        with device_errors(device):
            return device.fetch(region.memory, block.array, after, self._pinned.cuts(region))

    def deliver(self, target: Block[Any], region: Region, after: Event) -> Event:
        """Begin to copy a result to a device tensor; keeps both until the copy is complete.

        Raises: DeviceFailed.
        """
        device = cast("Device", target.device)
        with device_errors(device):
            event = device.deliver(target.array, region.memory, after, self._pinned.cuts(region))
            self._landings.add(event, (region, target.array))
        return event

    def give_room(self) -> bool:
        """Wait for the oldest result that is being copied to its device. False: there is none.

        Raises: DeviceFailed.
        """
        with device_errors():
            return self._landings.wait()

    def close(self) -> None:
        """End the thread, wait for copies from the arena, unlock it. No operation may follow."""
        ended = self._submitter.close()
        try:
            while self.give_room():
                pass
        except DeviceFailed as exc:
            log.warning(
                "results may be lost that the staging thread was copying to a device: %s", exc
            )
        if ended:
            self._pinned.close()
        else:  # the end of the process unlocks it
            log.warning("a copy from a device does not end: a kernel in front of it hangs")

    def abandon(self) -> None:
        """In a forked child: thread, device and locked memory belong to the parent."""
        for own in (self._submitter, self._landings, self._pinned):
            own.abandon()


@contextmanager
def device_errors(device: Device | None = None) -> Iterator[None]:
    """Convert errors of a device to DeviceFailed."""
    try:
        yield
    except DlcpError:
        raise
    except Exception as exc:
        where = f" {device.name}" if device else ""
        raise DeviceFailed(
            f"a copy between the device{where} and the arena failed: {type(exc).__name__}: {exc}"
        ) from exc
