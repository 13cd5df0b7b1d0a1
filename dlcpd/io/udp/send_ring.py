"""The sending half of a UDP socket: messages for sendmmsg, prepared once and pointed at a batch.

A message of the kernel is a burst that GSO cuts into datagrams, or a single datagram. Peers may
take segments of different sizes; most batches have the size of the one before, and reuse the fields
that depend on it.
"""

from itertools import pairwise
from typing import Final

import numpy as np
from numpy.typing import NDArray

from dlcpd.core.wire.checksum import Checksum
from dlcpd.core.wire.datagram import Bytes, Transmit
from dlcpd.core.wire.header import HEADER_SIZE
from dlcpd.io.udp import mmsg
from dlcpd.io.udp.mmsg import Controls, longest_run

MAX_ROWS: Final = 1600  # datagrams of one Transmit; above core's largest batch


class SendRing:
    """`begin`, `push` until all are gone, `end`; one batch at a time. The specification of
    datapath.sending."""

    def __init__(self, family: int, tos: list[int]) -> None:
        self.calls = 0  # system calls of the last `push`
        self._fd, self._done, self._count = -1, 0, 0  # messages
        self._iov = np.zeros((MAX_ROWS, 2, 2), np.uint64)
        self._iov[:, 0, 1] = HEADER_SIZE
        self._messages = np.zeros(MAX_ROWS, mmsg.MSGHDR)
        self._controls = Controls(family, tos)
        self.at = mmsg.address(self._messages.view(np.uint8))
        self._iov_at = mmsg.address(self._iov)
        self._headers_in_iov, self._payloads_in_iov = self._iov[:, 0, 0], self._iov[:, 1, 0]
        self._iov_counts = self._messages["iov_count"]
        self._controls_at = self._controls.for_size(0)
        self._header_offsets = np.arange(MAX_ROWS, dtype=np.uint64) * np.uint64(HEADER_SIZE)
        self._first_rows = np.zeros(0, np.intp)  # of each message in the batch
        self._aim = (-1, -1)  # name and tag that all messages are addressed to
        self._mixed = False  # whether the batch has several tags
        self._rows = 0  # of the batch
        self._shape = (0, False)  # segment size, GSO
        self.run = 1  # datagrams per message

    def begin(
        self, batch: Transmit, name: Bytes, fd: int, *, gso: bool, checksum: Checksum | None = None
    ) -> None:
        """Point at a batch and at socket address `name`."""
        self._fd, self._done = fd, 0
        self._count = self._fill(batch, name, gso=gso)
        if checksum is not None:
            checksum.seal(self._headers, batch.payload, batch.segments, batch.segment_size)

    def push(self) -> int:
        """Send the rest, or as much as the kernel takes; returns how many datagrams were sent so
        far. After an error, `gone` datagrams precede the message that failed. Raises: OSError."""
        self.calls = 1
        self._done += mmsg.send_many(self._fd, self.at, self._done, self._count - self._done)
        return self.gone

    @property
    def gone(self) -> int:
        """Datagrams sent so far, or skipped."""
        known = self._first_rows
        return int(known[self._done]) if self._done < len(known) else self._rows

    def skip(self) -> int:
        """Count the next message as lost; returns how many datagrams are gone with it."""
        self._done += 1
        return self.gone

    def _fill(self, batch: Transmit, name: Bytes, *, gso: bool) -> int:
        """Point the prepared messages at the batch; returns how many there are."""
        size, rows = batch.segment_size, len(batch.segments)
        if self._shape != (size, gso):
            self._take_shape(size, gso=gso)
        self._rows, self._headers = rows, batch.headers()
        payloads = self._payloads_in_iov[:rows]
        np.add(
            self._header_offsets[:rows],
            np.uint64(mmsg.address(self._headers)),
            out=self._headers_in_iov[:rows],
        )
        np.multiply(batch.segments, size, out=payloads, casting="unsafe")
        payloads += np.uint64(mmsg.address(batch.payload))
        self._iov[rows - 1, 1, 1] = min(size, len(batch.payload) - int(batch.segments[-1]) * size)
        return self._into_messages(batch, name)

    def end(self) -> None:
        """Undo the changes that only this batch needed."""
        self._iov[self._rows - 1, 1, 1] = self._shape[0]
        count, run = len(self._first_rows), self.run
        if self._mixed:
            self._cut(self._full_runs[:count], count * run)
            self._aim = (-1, -1)
        else:
            self._iov_counts[count - 1] = 2 * run

    def _take_shape(self, size: int, *, gso: bool) -> None:
        """Prepare for segments of `size` bytes; with GSO many make a message."""
        self._shape = (size, gso)
        self.run = longest_run(size) if gso else 1
        self._iov[:, 1, 1] = size
        self._controls.for_size(size)
        self._messages["control_size"] = self._controls.size(gso=gso)
        self._full_runs = np.arange(0, MAX_ROWS * self.run, self.run, dtype=np.intp)
        self._cut(self._full_runs, MAX_ROWS * self.run)

    def _into_messages(self, batch: Transmit, name: Bytes) -> int:
        """Cut the batch into messages of one tag each; returns how many."""
        run, tags, rows = self.run, batch.tags, self._rows
        first_tag = int(tags[0])
        self._mixed = bool(np.count_nonzero(tags != first_tag))
        if self._aim != (mmsg.address(name), first_tag):
            self._take_aim(name, first_tag)
        if not self._mixed:
            count = -(-rows // run)
            self._first_rows = self._full_runs[:count]
            self._iov_counts[count - 1] = 2 * (rows - (count - 1) * run)
            return count
        stops = [0, *(np.flatnonzero(tags[1:] != tags[:-1]) + 1).tolist(), rows]
        self._first_rows = np.concatenate([np.arange(a, b, run) for a, b in pairwise(stops)])
        self._cut(self._first_rows, rows)
        self._messages["control"][: len(self._first_rows)] = self._controls_at + tags[
            self._first_rows
        ] * np.uint64(Controls.spacing)
        return len(self._first_rows)

    def _take_aim(self, name: Bytes, tag: int) -> None:
        """Address all messages to `name` with `tag`: the next batch mostly has the same."""
        at = mmsg.address(name)
        self._aim = at, tag
        self._messages["name"], self._messages["name_size"] = at, len(name)
        self._messages["control"] = self._controls_at + tag * Controls.spacing

    def _cut(self, first_rows: NDArray[np.intp], rows: int) -> None:
        """Let message i begin with row `first_rows[i]`, and the last end before `rows`."""
        count = len(first_rows)
        self._messages["iov"][:count] = self._iov_at + first_rows.astype(np.uint64) * 32
        self._iov_counts[:count] = 2 * np.diff(first_rows, append=rows)
