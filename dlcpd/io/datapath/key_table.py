"""The keys of senders, as C looks them up: a table by token, with linear probing."""

from dataclasses import dataclass, field
from typing import Any, Final, Self

import numpy as np
from numpy.typing import NDArray

from dlcpd.core.wire.checksum import Checksum, Keyring
from dlcpd.io.datapath.library import KEY
from dlcpd.io.udp.mmsg import address

_MULTIPLIER: Final = 0x9E3779B97F4A7C15  # as in receive.c
_U64: Final = (1 << 64) - 1


@dataclass(slots=True, eq=False)
class KeyTable:
    """A keyring as it was at `version`. `at` is 0 where it is empty."""

    version: int = 0
    at: int = 0
    mask: int = 0
    _rows: NDArray[Any] = field(default_factory=lambda: np.zeros(0, KEY))
    _held: list[Checksum] = field(default_factory=list)  # whose memory the rows point to

    @classmethod
    def of(cls, keyring: Keyring) -> Self:
        """At least twice as many places as keys: a search ends at a free one."""
        keys = keyring.items()
        if not keys:
            return cls(keyring.version)
        size = 1 << (2 * len(keys)).bit_length()
        rows = np.zeros(size, KEY)
        for token, checksum in keys:
            at = (token * _MULTIPLIER & _U64) >> 32 & (size - 1)
            while rows["token"][at]:
                at = (at + 1) & (size - 1)
            rows[at] = token, address(checksum.material)
        held = [checksum for _, checksum in keys]
        return cls(keyring.version, address(rows.view(np.uint8)), size - 1, rows, held)
