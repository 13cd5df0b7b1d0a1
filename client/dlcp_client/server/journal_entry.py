"""An entry of a shard's journal: a version, or its whole state."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlcpd.contract.errors import DlcpError


class NotDurable(DlcpError):
    """An entry could not be made durable: the disk is full, or broken."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A snapshot, or a record of the log: JSON values and float32 numbers."""

    head: dict[str, Any]
    arrays: NDArray[np.float32]

    @property
    def version(self) -> int:
        """Version of the shard after this entry."""
        return int(self.head["version"])
