"""The outcomes of a session's operations, as their works see them."""

from typing import Any, Final

from dlcp_client.arena.blocks import Block, Library
from dlcp_client.arena.memory import Region
from dlcp_client.arena.staging import Staging
from dlcp_client.device.seam import Event
from dlcp_client.operations.completion import Completion
from dlcp_client.operations.lanes import Lanes
from dlcp_client.operations.open_operations import Operations
from dlcp_client.operations.work import Work


class Outcomes:
    """The `Progress` of one session's works: waits for outcomes, and delivers results."""

    def __init__(
        self,
        table: Operations,
        lanes: Lanes,
        completion: Completion,
        staging: Staging,
        *,
        library: Library[Any],
        number: int,
    ) -> None:
        self._table, self._lanes = table, lanes
        self._completion, self._staging = completion, staging
        self.library: Final = library
        self.number: Final = number  # the daemon's number of the session
        self.wait_until: Final = lanes.wait_until
        self.pump: Final = lanes.pump
        self.expire: Final = table.expire

    def watch(self, work: Work[Any]) -> None:
        """Complete a work's Future after its end, even if no thread waits."""
        self._completion.watch(work, self._table, self._lanes)

    def time(self, work: Work[Any], seconds: list[float]) -> None:
        """Append the time of `work` to `seconds`, when its result arrives, or now if it has."""
        with self._table.lock:
            if not work.settled:
                work.seconds = seconds
            elif work.took:
                seconds.append(work.took)

    def deliver(self, target: Block[Any], region: Region, after: Event) -> Event:
        """Begin to copy a result to its device. Raises: DeviceFailed."""
        return self._staging.deliver(target, region, after)
