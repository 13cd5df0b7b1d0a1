"""Process groups of torchft for its tests: over dlcp in the place of Gloo, and over Gloo.

A module of its own with few imports: torchft's baby groups import it in their processes.
"""

from datetime import timedelta
from typing import Any, Final

from torchft import process_group as theirs

from dlcp_client import c10d

# The tests give a group 1 or 10 seconds to begin. To import torch, and for dlcp to start a daemon,
# takes longer where other programs have the processors.
MEANT_TO_RUN_OUT: Final = timedelta(seconds=0.5)  # of a group; its later timeouts go elsewhere
OF_AN_OPERATION: Final = timedelta(seconds=5)  # of a group in a process: these run out, too
BUSY: Final = timedelta(seconds=60)


class Group(theirs.ProcessGroupWrapper):  # type: ignore[misc]  # torchft ships no types
    """As in docs/recipes.md."""

    def _create_pg(self, store: Any, rank: int, world_size: int) -> Any:
        return c10d.process_group(store, rank, world_size, _enough(self._timeout))

    def getBackendName(self) -> str:
        return "torchft-dlcp"


class Patient(theirs.ProcessGroupBaby):  # type: ignore[misc]  # likewise
    """A group in a process of its own, with time to begin."""

    def __init__(self, timeout: timedelta = BUSY) -> None:
        super().__init__(_enough(timeout, OF_AN_OPERATION))

    def set_timeout(self, timeout: timedelta) -> None:
        super().set_timeout(_enough(timeout, OF_AN_OPERATION))


class BabyGloo(Patient, theirs.ProcessGroupBabyGloo):  # type: ignore[misc]  # likewise
    """torchft's."""


class BabyGroup(Patient):
    """That of dlcp."""

    @classmethod
    def _create_pg(cls, store: Any, rank: int, world_size: int) -> Any:
        return c10d.process_group(store, rank, world_size, BUSY)

    def getBackendName(self) -> str:
        return "torchft-baby-dlcp"


def _enough(timeout: timedelta, short: timedelta = MEANT_TO_RUN_OUT) -> timedelta:
    return timeout if timeout < short else max(timeout, BUSY)
