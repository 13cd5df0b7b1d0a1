"""A receive ring that a test fills instead of a kernel, for C and for its numpy twin."""

import socket
import struct
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np

from dlcpd.core.transfer.incoming import Incoming
from dlcpd.core.transfer.receiver import TransferReceiver
from dlcpd.core.wire.checksum import Keyring
from dlcpd.core.wire.datagram import Batch, DatagramGroup, Placed
from dlcpd.core.wire.header import HEADER_SIZE, Header, Key
from dlcpd.core.wire.rows import Received
from dlcpd.io.datapath.compiled import Compiled
from dlcpd.io.datapath.library import CONTROL
from dlcpd.io.datapath.open_transfers import OpenTransfers
from dlcpd.io.datapath.receiving import CompiledRing
from dlcpd.io.udp import mmsg
from dlcpd.io.udp.loss import Corrupt, RandomLoss

CE: Final = 3
MARGIN, CANARY = 256, 0xEE


@dataclass(frozen=True)
class Message:
    """What one message of recvmmsg carries: datagrams of one length, but for the last."""

    datagrams: list[bytes]
    marked: bool = False

    def __post_init__(self) -> None:
        first, *others = self.datagrams
        assert all(len(d) == len(first) for d in others[:-1])
        assert not others or 0 < len(others[-1]) <= len(first)


def control_messages(stride: int, *, joined: bool, marked: bool) -> bytes:
    """As the kernel writes them: the time, GRO's stride, the TOS byte."""
    out = struct.pack("<QiiQQ", 32, socket.SOL_SOCKET, mmsg.SO_TIMESTAMPNS, 1_700_000_000, 5)
    if joined:
        out += struct.pack("<QiiiI", 20, socket.IPPROTO_UDP, mmsg.UDP_GRO, stride, 0)
    tos = CE if marked else 0
    return out + struct.pack("<QiiBBHI", 17, socket.IPPROTO_IP, socket.IP_TOS, tos, 0, 0, 0)


def fill(ring: CompiledRing, messages: list[Message]) -> None:
    """Lay messages into the ring, as recvmmsg would."""
    spacing = len(ring.data) // len(ring.messages)
    ring.data[:] = CANARY
    for number, message in enumerate(messages):
        content = b"".join(message.datagrams)
        at = number * spacing
        ring.data[at : at + len(content)] = np.frombuffer(content, np.uint8)
        control = control_messages(
            len(message.datagrams[0]), joined=len(message.datagrams) > 1, marked=message.marked
        )
        row = ring.control[number]
        row[:] = 0
        row[: len(control)] = np.frombuffer(control, np.uint8)
        header = ring.messages[number]
        header["size"], header["control_size"], header["flags"] = len(content), len(control), 0
        assert len(control) <= CONTROL


def as_rows(messages: list[Message]) -> Received:
    """The same as rows."""
    datagrams = [(d, m.marked) for m in messages for d in m.datagrams]
    data = [(d, marked) for d, marked in datagrams if len(d) > 1 and d[1] == 1]
    width = max([len(d) for d, _ in data], default=HEADER_SIZE)
    rows = np.zeros((len(data), max(width, HEADER_SIZE)), np.uint8)
    for row, (content, _) in zip(rows, data, strict=True):
        row[: len(content)] = np.frombuffer(content, np.uint8)
    tos = np.array([CE * marked for _, marked in data], np.int32)
    strays = [d for d, _ in datagrams if len(d) < 2 or d[1] != 1]
    return Received(
        0,
        [0.0] * len(data),
        1,
        rows,
        np.arange(len(data)),
        np.array([len(d) for d, _ in data], np.intp),
        strays,
        0.0,
        tos,
        bool(tos.any()),
    )


@dataclass
class Receiver:
    """Transfers that are open, and what groups of datagrams make of them. With `compiled` they
    are in its table as well."""

    compiled: Compiled | None
    counters: Counter[str] = field(default_factory=Counter)
    transfers: dict[tuple[int, Key], Incoming] = field(default_factory=dict)
    memories: dict[tuple[int, Key], Any] = field(default_factory=dict)
    seen: list[tuple[Any, ...]] = field(default_factory=list)
    placed: Counter[tuple[int, Key]] = field(default_factory=Counter)

    def open(
        self, token: int, key: Key, size: int, segment_size: int, *, offered: int = -1
    ) -> None:
        """A transfer; its receiver has `offered` to go without what has not come by that round."""
        memory = np.full(size + 2 * MARGIN, CANARY, np.uint8)
        segments = max(-(-size // segment_size), 1)
        receiver = TransferReceiver(segments)
        if offered >= 0:
            receiver.state, receiver.round = type(receiver.state).OFFERED, offered
        incoming = Incoming(key, 1, receiver, memory[MARGIN : MARGIN + size], segment_size)
        self.transfers[token, key], self.memories[token, key] = incoming, memory
        if self.compiled is not None:
            self.compiled.table.open(token, incoming)

    def close(self) -> None:
        """Close them all."""
        for incoming in self.transfers.values():
            if self.compiled is not None:
                self.compiled.table.close(incoming)

    def take(self, batch: Batch) -> None:
        """All groups of a batch."""
        for group in batch.groups(self.counters):
            self._note(group)
            incoming = self.transfers.get((group.header.token, group.header.key))
            if incoming is None:
                continue
            placed = group.place(incoming)
            for name, count in zip(Placed._fields, placed, strict=True):
                self.placed[name, incoming.key] += count  # type: ignore[index]

    def _note(self, group: DatagramGroup) -> None:
        """Groups that follow each other and could be one are."""
        head = group.header
        same = (*_identity(head),)
        if self.seen and self.seen[-1][0] == same:
            _, count, size, asks, _, _, marked = self.seen.pop()
            self.seen.append(
                (
                    same,
                    count + group.count,
                    size + group.size,
                    asks | group.asks,
                    group.ending,
                    group.newest,
                    marked + group.marked,
                )
            )
        else:
            self.seen.append(
                (
                    same,
                    group.count,
                    group.size,
                    group.asks,
                    group.ending,
                    group.newest,
                    group.marked,
                )
            )


def _identity(head: Header) -> tuple[int, ...]:
    return head.token, *head.key, head.round, head.path, head.tag // 4


def new_ring(
    compiled: Compiled,
    *,
    gro: bool = True,
    loss: float = 0.0,
    corrupt: float = 0.0,
    keys: Keyring | None = None,
) -> CompiledRing:
    """A ring of its own."""
    return CompiledRing(
        *compiled, gro=gro, loss=RandomLoss(loss, (1,)), corrupt=Corrupt(corrupt), keys=keys
    )


def both(
    compiled: Compiled, messages: list[Message], opens: list[Any]
) -> tuple[Receiver, Receiver]:
    """What numpy and C make of the same messages, looked at as often as the ring is full."""
    table = Compiled(compiled.library, OpenTransfers(compiled.library, 16))
    twin, ours = Receiver(None), Receiver(table)
    for each in opens:
        twin.open(*each[:4], offered=each[4])
        ours.open(*each[:4], offered=each[4])
    ring = new_ring(table)
    for at in range(0, len(messages), len(ring.messages)):
        some = messages[at : at + len(ring.messages)]
        fill(ring, some)
        for batch in ring.digest(len(some))[0]:
            ours.take(batch)
            ours.counters["strays"] += len(batch.strays)
        rows = as_rows(some)
        twin.counters["strays"] += len(rows.strays)
        twin.take(rows)
    ours.close()
    return twin, ours
