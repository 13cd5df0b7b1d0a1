"""A `UdpPath` that encrypts: datagrams are sealed before they leave, and opened before any other
code looks at them. Core does not know of it: to it, datagrams are shorter by the tag. One call of
the library per datagram, since each has to be decrypted by itself."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from dlcpd.contract.errors import MalformedDatagram
from dlcpd.core.wire import header_batch
from dlcpd.core.wire.aead import LEAST, TAG, Datagrams, KeySpent, Opener, Sealer, shared_key
from dlcpd.core.wire.checksum import Checksum
from dlcpd.core.wire.datagram import Bytes, Control, Transmit
from dlcpd.core.wire.header import HEADER_SIZE
from dlcpd.core.wire.header_batch import Words
from dlcpd.core.wire.rows import Received
from dlcpd.core.wire.sizes import MAX_SEGMENT
from dlcpd.io.config import EngineConfig
from dlcpd.io.udp.receive_ring import LONGEST, ReceiveRing
from dlcpd.io.udp.send_ring import MAX_ROWS, SendRing
from dlcpd.io.udp.udp_path import USUAL, UdpPath


@dataclass(slots=True)
class Encryption:
    """Keys of all flows of an engine, for all its paths."""

    trailer: ClassVar = TAG  # bytes by which every datagram is longer on the network
    sealers: dict[int, Sealer] = field(default_factory=dict)  # by flow
    openers: dict[int, Opener] = field(default_factory=dict)  # by the token in the peer's datagrams
    spent: set[int] = field(default_factory=set)  # flows that can send no more
    # the encrypted batch: 14 MB, of which the kernel commits pages that are written to
    room: Bytes = field(default_factory=lambda: np.empty(MAX_ROWS * (MAX_SEGMENT + TAG), np.uint8))

    def add(self, flow: int, token: int, secret_in: bytes, secret_out: bytes) -> None:
        """A flow's secrets, for datagrams from and to its peer. Raises: ValueError if one is
        missing; then no datagram of the flow leaves in clear."""
        if not (secret_in and secret_out):
            raise ValueError("data are to be encrypted, and there are no secrets for it")
        self.sealers[flow] = Sealer(shared_key(secret_out, secret_in))
        self.openers[token] = Opener(shared_key(secret_in, secret_out))

    def remove(self, flow: int, token: int) -> None:
        """The flow is about to close."""
        self.sealers.pop(flow, None)
        self.openers.pop(token, None)
        self.spent.discard(flow)

    def path(
        self, index: int, config: EngineConfig, counters: Counter[str], effort: Counter[str]
    ) -> "EncryptedPath":
        """As `UdpPath`. Raises: AddressUnavailable."""
        return EncryptedPath(self, index, config, counters, effort)


class EncryptedPath(UdpPath):
    """A path of one engine. Sizes of arguments and results are without the tag."""

    def __init__(self, encryption: Encryption, *arguments: Any) -> None:
        self._encryption = encryption
        super().__init__(*arguments)

    def sealed(self, peer: int, data: bytes) -> bytes:
        return self._encryption.sealers[peer].sealed(data)

    def _whole(self, peer: int, data: bytes) -> bytes:
        return data  # each of its pieces is sealed

    def _make_sender(self, by_tag: list[int]) -> SendRing:
        return SealingRing(self._encryption, self.family, by_tag)

    def _make_ring(self, gro: bool) -> ReceiveRing:
        return OpeningRing(
            self._encryption,
            self.counters,
            self.index,
            USUAL + TAG,
            gro=gro,
            loss=self._loss,
            corrupt=self._corrupt,
        )

    def _send(self, batch: Transmit) -> int:
        try:
            return super()._send(batch)
        except KeySpent:
            self._encryption.spent.add(batch.peer)
            return len(batch.segments)

    def send_control(self, control: Control) -> None:
        try:
            super().send_control(control)
        except KeySpent:
            self._encryption.spent.add(control.peer)


@dataclass(slots=True)
class Sealed(Transmit):
    """A batch as it goes out: its encrypted segments, each with its tag, without gaps."""

    words: Words

    def headers(self) -> Words:
        return self.words


class SealingRing(SendRing):
    """Points at encrypted copies, not at the arena."""

    def __init__(self, encryption: Encryption, family: int, tos: list[int]) -> None:
        super().__init__(family, tos)
        self._encryption = encryption

    def begin(
        self, batch: Transmit, name: Bytes, fd: int, *, gso: bool, checksum: Checksum | None = None
    ) -> None:
        """As `SendRing.begin`. Raises: KeySpent."""
        words, encryption = batch.headers(), self._encryption
        content = encryption.sealers[batch.peer].seal(
            words, batch.payload, batch.segments, batch.segment_size, encryption.room
        )
        segments = np.arange(len(words), dtype=np.intp)
        sealed = Sealed(
            batch.peer,
            batch.path,
            batch.first,
            batch.flags,
            content,
            segments,
            batch.segment_size + TAG,
            batch.tags,
            words,
        )
        super().begin(sealed, name, fd, gso=gso, checksum=checksum)


class OpeningRing(ReceiveRing):
    """Passes on only datagrams that it could decrypt, without the tag."""

    longest = LONGEST + TAG

    def __init__(
        self, encryption: Encryption, counters: Counter[str], path: int, width: int, **named: Any
    ) -> None:
        super().__init__(path, width, **named)
        self._encryption, self._counters = encryption, counters
        self._plain = np.empty((0, 0), np.uint8)

    def receive(self, fd: int) -> tuple[list[Received], bool]:
        batches, drained = super().receive(fd)
        for number, batch in enumerate(batches):
            if batch.count:
                room = np.empty(batch.rows.shape, np.uint8) if number else self._room_for(batch)
                self._open_rows(batch, room)
            batch.strays = [s for data in batch.strays if (s := self._opened(data)) is not None]
        return batches, drained

    def _room_for(self, batch: Received) -> Bytes:
        if self._plain.shape != batch.rows.shape:
            self._plain = np.empty(batch.rows.shape, np.uint8)
        return self._plain

    def _open_rows(self, batch: Received, out: Bytes) -> None:
        """Replace a batch by its decrypted datagrams, in `out`."""
        arrived = Datagrams(batch.rows, batch.index, batch.lengths)
        sealed = arrived.some(np.flatnonzero(batch.lengths >= LEAST))
        self._count("short", batch.count - len(sealed.index))
        good = self._decrypt(sealed, out)
        batch.rows = out[:, :-TAG]
        batch.index, batch.lengths = sealed.index[good], sealed.lengths[good] - TAG

    def _decrypt(self, sealed: Datagrams, out: Bytes) -> NDArray[np.bool_]:
        """Which datagrams could be decrypted, and are in `out`."""
        good = np.zeros(len(sealed.index), bool)
        heads = sealed.rows[sealed.index, :HEADER_SIZE]
        out[sealed.index, :HEADER_SIZE] = heads
        words = header_batch.parse(heads)
        tokens = words.view("<u8")[:, 1]
        for token in np.unique(tokens).tolist():
            at = np.flatnonzero(tokens == token)
            opener = self._encryption.openers.get(token)
            if opener is None:
                self._count("token", len(at))
                continue
            good[at], replayed = opener.open_rows(words[at], sealed.some(at), out)
            self._count("replayed", replayed)
            self._count("checksum", len(at) - int(np.count_nonzero(good[at])) - replayed)
        return good

    def _opened(self, data: bytes) -> bytes | None:
        """One datagram, decrypted; None where it is refused."""
        if len(data) < LEAST:
            self._counters["short"] += 1
            return None
        opener = self._encryption.openers.get(int.from_bytes(data[8:16], "little"))
        if opener is None:
            self._counters["token"] += 1
            return None
        try:
            return opener.opened(data)
        except MalformedDatagram as exc:
            self._counters[exc.reason] += 1
            return None

    def _count(self, reason: str, count: int) -> None:
        if count:
            self._counters[reason] += count
