"""What a shard makes durable: a version, or its whole state."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlcpd.contract.errors import DlcpError


class NotDurable(DlcpError):
    """What was to be made durable is not: the disk is full, or broken."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A snapshot, or a record of the log: what can be said in JSON, and float32 numbers."""

    head: dict[str, Any]
    arrays: NDArray[np.float32]

    @property
    def version(self) -> int:
        """Of the shard, after it."""
        return int(self.head["version"])
