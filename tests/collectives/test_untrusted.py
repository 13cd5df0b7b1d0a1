"""P7: untrusted bytes do nothing. One field of a valid datagram wrong is enough to be refused."""

import random
import struct
from collections.abc import Callable, Iterable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import draw, rank_ordered
from dlcpd.core.wire.header import HEADER_SIZE, MAX_SEGMENTS, VERSION, Header, Kind

REASONS = (
    "short", "version", "kind", "flags", "path", "segment", "tag", "token", "length", "body",
    "transfer", "stream", "stale", "early", "failed", "unready", "duplicate",
)  # fmt: skip
SEGMENT = 128
MARGIN, CANARY = 1024, 1e30
TRANSFERS = 6  # from either rank to the other in `all_reduce_exactly`
ONE_BY_ONE = SimLink(rate=1e6, queue=1 << 20)  # no two datagrams in one receive call

Corruption = Callable[[bytearray], bytes]


def patch(offset: int, layout: str, change: Callable[[int], int]) -> Corruption:
    def corrupt(data: bytearray) -> bytes:
        (value,) = struct.unpack_from(layout, data, offset)
        struct.pack_into(layout, data, offset, change(value))
        return bytes(data)

    return corrupt


def put(offset: int, layout: str, value: int) -> Corruption:
    return patch(offset, layout, lambda _: value)


# Every field of a contribution, and what it is counted as; "" = indistinguishable from a
# genuine duplicate, and as harmless.
DATA_FIELDS: list[tuple[str, Corruption, str]] = [
    ("version", patch(0, "B", lambda v: v ^ 1), "version"),
    ("kind 0", put(1, "B", 0), "kind"),
    ("kind 13", put(1, "B", 13), "kind"),
    ("kind READY", put(1, "B", Kind.READY), "length"),
    ("kind CREDIT", put(1, "B", Kind.CREDIT), "length"),
    ("kind NACK", put(1, "B", Kind.NACK), ""),
    ("unknown flag", patch(2, "B", lambda v: v | 0x80), "flags"),
    ("flag ENDING", patch(2, "B", lambda v: v ^ 1), ""),
    ("flag ASK", patch(2, "B", lambda v: v ^ 4), ""),
    ("path of no flow", put(3, "B", 15), ""),
    ("path 16", put(3, "B", 16), "path"),
    ("operation of the past", put(4, "<I", 0), "stale"),
    ("operation of the future", patch(4, "<I", lambda v: v + 1), "early"),
    ("token, low", patch(8, "<Q", lambda v: v ^ 1), "token"),
    ("token, high", patch(8, "<Q", lambda v: v ^ 1 << 63), "token"),
    ("stream of another group", put(16, "<H", 1), "early"),
    ("stream that cannot be", put(16, "<H", 0xFFFF), "early"),
    ("transfer of nobody", put(18, "<H", 0xFFFF), "transfer"),
    ("one transfer too many", put(18, "<H", TRANSFERS), "transfer"),
    ("segment of no transfer", put(20, "<H", 4096), "segment"),
    ("segment beyond the transfer", put(20, "<H", 4095), "length"),
    ("round", patch(22, "B", lambda v: v + 1), ""),
    ("other tag", put(23, "B", 0), ""),
    ("no tag", put(23, "B", 32), "tag"),
    ("time", patch(28, "<I", lambda v: v ^ 0xFFFFFFFF), ""),
    ("cut in the header", lambda data: bytes(data[: HEADER_SIZE - 1]), "short"),
    ("no payload", lambda data: bytes(data[:HEADER_SIZE]), "length"),
    ("payload one short", lambda data: bytes(data[:-1]), "length"),
    ("payload one long", lambda data: bytes(data) + b"x", "length"),
]


class WithCopies:
    """A network that also delivers a corrupt copy of each datagram of a kind, first or last."""

    def __init__(self, corrupt: Corruption, kind: Kind, *, first: bool = True) -> None:
        self.corrupt, self.kind, self.first, self.made = corrupt, kind, first, 0

    def __call__(self, source: int, target: int, data: bytes) -> Iterable[bytes]:
        if data[1] != self.kind:
            return [data]
        self.made += 1
        bad = self.corrupt(bytearray(data))
        return [bad, data] if self.first else [data, bad]


def guarded(parts: list[np.ndarray]) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """The parts inside memory that nobody may touch; (memory, views)."""
    memory = [np.full(len(p) + 2 * MARGIN, CANARY, p.dtype) for p in parts]
    views = [m[MARGIN:-MARGIN] for m in memory]
    for view, part in zip(views, parts, strict=True):
        view[:] = part
    return memory, views


def untouched(memory: list[np.ndarray]) -> bool:
    return all(
        (np.concatenate([m[:MARGIN], m[-MARGIN:]]) == np.float32(CANARY)).all() for m in memory
    )


def all_reduce_exactly(net: SimNetwork, count: int = 3001) -> None:
    parts = draw("float32", net.world_size, count, 1)
    memory, views = guarded(parts)
    net.submit_all(1, views)
    net.run()
    expected = rank_ordered(parts, "float32", "sum")
    assert all((view == expected).all() for view in views)
    assert untouched(memory)
    assert not any(session.broken for session in net.sessions)


@pytest.mark.parametrize("first", [True, False], ids=["before", "after"])
@pytest.mark.parametrize(
    ("corrupt", "reason"),
    [pytest.param(corrupt, reason, id=name) for name, corrupt, reason in DATA_FIELDS],
)
def test_one_wrong_field_of_a_contribution(corrupt: Corruption, reason: str, first: bool) -> None:
    tamper = WithCopies(corrupt, Kind.DATA, first=first)
    net = SimNetwork(2, ONE_BY_ONE, tamper=tamper)
    all_reduce_exactly(net)
    assert tamper.made
    if reason:
        late = 0 if first else net.counted("stale") + net.counted("duplicate")
        assert tamper.made - late <= net.counted(reason) + net.counted("duplicate")
        assert net.counted(reason)


@pytest.mark.parametrize(
    ("kind", "corrupt", "reason"),
    [
        pytest.param(kind, corrupt, reason, id=f"{kind.name} {name}")
        for kind in (Kind.READY, Kind.CREDIT, Kind.COMPLETE)
        for name, corrupt, reason in (
            ("version", patch(0, "B", lambda v: v ^ 1), "version"),
            ("kind", put(1, "B", 0), "kind"),
            ("token", patch(8, "<Q", lambda v: v ^ 1), "token"),
            ("cut in the header", lambda data: bytes(data[:20]), "short"),
            ("cut in the body", lambda data: bytes(data[:-1]), "length"),
        )
    ],
)
def test_one_wrong_field_of_the_rest(kind: Kind, corrupt: Corruption, reason: str) -> None:
    tamper = WithCopies(corrupt, kind)
    net = SimNetwork(2, ONE_BY_ONE, tamper=tamper)
    all_reduce_exactly(net)
    assert tamper.made
    assert net.counted(reason)


@pytest.mark.parametrize("kind", [Kind.NACK, Kind.END, Kind.FINAL, Kind.ACK])
@pytest.mark.parametrize("cut", [20, HEADER_SIZE, -1])
def test_cut_retransmissions_are_repeated(kind: Kind, cut: int) -> None:
    """Control that only loss brings about: every other one is cut, the next one counts."""
    made = 0

    def tamper(source: int, target: int, data: bytes) -> list[bytes]:
        nonlocal made
        made += data[1] == kind
        return [data[:cut]] if data[1] == kind and made % 2 else [data]

    net = SimNetwork(2, SimLink(loss=0.1), tamper=tamper, seed=3)
    parts = draw("float32", 2, 6000, 1)
    net.submit_all(1, parts, max_loss=0.1, name="n")
    net.run()
    assert made
    assert parts[0].tobytes() == parts[1].tobytes()
    assert net.ended(1)


@given(st.integers(0, HEADER_SIZE + 40), st.integers(1, 255), st.integers(0, 1 << 16))
@settings(max_examples=80)
def test_any_corrupt_byte_ends_in_a_result_or_a_named_error(
    offset: int, flip: int, seed: int
) -> None:
    """Beside each tenth datagram a copy with one byte changed, under a valid token."""
    rng = random.Random(seed)

    def tamper(source: int, target: int, data: bytes) -> list[bytes]:
        if offset >= len(data) or rng.random() > 0.1:
            return [data]
        bad = bytearray(data)
        bad[offset] ^= flip
        return [bytes(bad), data]

    net = SimNetwork(2, SimLink(loss=0.02), seed=seed, tamper=tamper)
    memory, views = guarded(draw("float32", 2, 1000, seed))
    net.submit_all(1, views, max_loss=0.1, name="n", deadline=2.0)
    net.run()
    assert untouched(memory)
    for rank in range(2):
        assert (1 in net.done(rank)) or (1 in net.failed(rank)) or net.sessions[rank].broken
        assert not net.sessions[rank].operations


def test_strangers_with_every_kind_of_datagram_change_nothing() -> None:
    """Well-formed, but with tokens that nobody gave out."""
    net, rng = SimNetwork(2, recorded=[]), random.Random(1)
    forged = 0

    def tamper(source: int, target: int, data: bytes) -> list[bytes]:
        nonlocal forged
        copy = bytearray(data)
        struct.pack_into("<Q", copy, 8, rng.randrange(1 << 64))
        copy[1] = rng.choice(list(Kind))
        forged += 1
        return [bytes(copy), data]

    net.tamper = tamper
    all_reduce_exactly(net)
    assert net.counted("token") + net.counted("length") == forged
    assert net.counted("token") > 0.9 * forged


def test_garbage_is_counted_once_each_and_changes_nothing() -> None:
    net, rng = SimNetwork(2), random.Random(2)
    net.submit_all(1, draw("float32", 2, 20_000, 1))
    net.run(until=1e-4)
    sent = 300
    for number in range(sent):
        size = rng.choice([0, 1, 31, 32, 33, 100, HEADER_SIZE + SEGMENT, 500, 1500])
        data = bytearray(rng.randbytes(size))
        if number % 3 and data:
            data[0] = VERSION  # past the first check
        net.inject(number % 2, bytes(data))
    before = {reason: net.counted(reason) for reason in REASONS}
    net.run()
    counted = sum(net.counted(reason) - before[reason] for reason in REASONS)
    assert counted == sent
    assert net.ended(1)


def test_a_claim_beyond_the_bound_is_not_agreed_to() -> None:
    """A FINAL that names more than the bound, or an exempt operation, gets data instead."""

    def tamper(source: int, target: int, data: bytes) -> list[bytes]:
        header = Header.unpack_untrusted(data)
        if header.kind is not Kind.NACK or header.flags:
            return [data]
        greedy = bytearray(data)
        greedy[1], greedy[22] = Kind.FINAL, 1
        return [bytes(greedy), data]

    for max_loss in (0.0, 0.1):
        net = SimNetwork(2, SimLink(loss=0.3), tamper=tamper, seed=1)
        parts = draw("float32", 2, 6000, 1)
        net.submit_all(1, parts, max_loss=max_loss, name="n")
        net.run()
        for rank, accounts in enumerate(net.accounts):
            as_sender = [row for row in accounts.ledger if row.sender == rank]
            assert all(row.segments <= max_loss * 16 for row in as_sender)
            assert bool(as_sender) == bool(max_loss)


def test_segments_too_small_for_any_bitmap_are_refused() -> None:
    """A peer's READY may name segments so small that a transfer has more than a bitmap lists."""
    size = HEADER_SIZE + 4  # where READY says it, after the window

    def shrink(source: int, _target: int, data: bytes) -> list[bytes]:
        if source or data[1] != Kind.READY:
            return [data]
        return [data[:size] + struct.pack("<H", 64) + data[size + 2 :]]

    net = SimNetwork(2, segment_size=128, chunk_segments=MAX_SEGMENTS // 2 + 1, tamper=shrink)
    count = 2 * 128 * (MAX_SEGMENTS // 2 + 1) // 4
    net.submit_all(1, [np.zeros(count, np.float32) for _ in range(2)], deadline=0.1)
    net.run(until=1.0)
    assert net.counted("segment") > 0
    assert net.failed(1)[1].code == "deadline_exceeded"
