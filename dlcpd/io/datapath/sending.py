"""The compiled data path's sending half."""

import os
import struct
from typing import Final

import numpy as np

from dlcpd.core.wire.checksum import Checksum
from dlcpd.core.wire.datagram import Bytes, Transmit
from dlcpd.io.datapath.library import BATCH, Library
from dlcpd.io.udp.mmsg import Controls, address, longest_run

_LAYOUT: Final = struct.Struct("<40sQQQQQQQQIIIIIIiIIi")
assert _LAYOUT.size == BATCH.itemsize  # noqa: S101  # constants only
_TAIL: Final = struct.Struct("<IIi")  # done, calls, error
_DONE: Final = _LAYOUT.size - _TAIL.size
_NOTHING: Final = bytes(_LAYOUT.size)  # a batch of no datagrams
_ONE: Final = struct.Struct("<I")


class CompiledSender:
    """As `udp.send_ring.SendRing`."""

    def __init__(self, library: Library, family: int, tos: list[int]) -> None:
        self._library = library
        self._controls = Controls(family, tos)
        self._struct = np.zeros(1, BATCH)
        self._batch = self._struct.view(np.uint8).data
        self.at = address(self._struct)
        self._owned: tuple[object, ...] = ()  # owns all that the struct points to, until `end`
        self._shape = (0, False)  # segment size and GSO of the last batch; the rest follows from it
        self._run = self._controls_at = self._control_size = 0
        self.calls = 0  # system calls of the last `push`

    def begin(
        self, batch: Transmit, name: Bytes, fd: int, *, gso: bool, checksum: Checksum | None = None
    ) -> None:
        """Point at a batch and at socket address `name`."""
        size = batch.segment_size
        if self._shape != (size, gso):
            self._shape, self._run = (size, gso), longest_run(size) if gso else 1
            self._controls_at = self._controls.for_size(size)
            self._control_size = self._controls.size(gso=gso)
        payload, segments = batch.payload, batch.segments
        tags, flags, key = batch.tags, batch.flags, checksum.material if checksum else None
        _LAYOUT.pack_into(
            self._batch,
            0,
            batch.first.pack(),
            address(payload),
            len(payload),
            address(segments),
            address(tags),
            address(flags),
            address(name),
            0 if key is None else address(key),
            self._controls_at,
            len(name),
            self._control_size,
            self._controls.spacing,
            size,
            len(segments),
            self._run,
            fd,
            0,
            0,
            0,
        )
        self._owned = payload, segments, tags, flags, name, key

    def push(self) -> int:
        """Send the rest; returns how many datagrams were sent so far. After an error, `gone`
        datagrams precede the message that failed. Raises: OSError."""
        self._library.dlcpd_send(self.at)
        done, self.calls, error = _TAIL.unpack_from(self._batch, _DONE)
        if error:
            raise OSError(error, os.strerror(error))
        return int(done)

    @property
    def gone(self) -> int:
        """Datagrams sent so far, or skipped."""
        return int(_ONE.unpack_from(self._batch, _DONE)[0])

    def skip(self) -> int:
        """Count the next message as lost; returns how many datagrams are gone with it."""
        gone: int = self._library.dlcpd_message_end(self.at, self.gone)
        _ONE.pack_into(self._batch, _DONE, gone)
        return gone

    def end(self) -> None:
        """Drop the batch: C forgets it first, then its memory may be freed."""
        self._batch[:] = _NOTHING
        self._owned = ()
