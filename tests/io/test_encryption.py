"""Encrypted paths over loopback, and whole engines that use them."""

import select
import socket
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from dlcp_lab.simulation.reference import draw, rank_ordered
from dlcpd.contract.errors import BadConfig
from dlcpd.contract.messages import Completed
from dlcpd.core.paths.pieces import LEAST_PIECE, Reassembly
from dlcpd.core.wire.aead import COUNTERS, Sealer, shared_key
from dlcpd.core.wire.datagram import Control, Transmit
from dlcpd.core.wire.header import HEADER_SIZE, SEALED, Header, Kind
from dlcpd.core.wire.sizes import MAX_SEGMENT
from dlcpd.io import control_events
from dlcpd.io.config import EngineConfig
from dlcpd.io.datapath.choices import COMPILED, NUMPY
from dlcpd.io.udp.encrypted_path import EncryptedPath, Encryption
from dlcpd.io.udp.encryption import AES_256_GCM, NONE, encryption
from dlcpd.io.udp.udp_path import UdpPath
from tests.io import test_udp
from tests.io.batches import datagrams
from tests.io.engines import FORKED, Engine, Job, failure

PEER, TOKEN = 7, 0xABCDEF
SIZE = 1408
PATIENCE = 5.0  # seconds without a datagram after which a test fails; never waited for
OUT, IN = b"what the peer chose", b"what we chose"
OFFLOADS = pytest.mark.parametrize("offload", [True, False], ids=["offload", "plain"])

_opened: list[socket.socket] = []


@pytest.fixture(autouse=True)
def _close_sockets() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def path(keys: Encryption, *, offload: bool = True) -> EncryptedPath:
    config = EngineConfig(offload=offload, receive_buffer=8 << 20)
    made = keys.path(0, config, Counter(), Counter())
    _opened.append(made.socket)
    return made


def pair(*, sends: bool = True, receives: bool = True) -> tuple[EncryptedPath, EncryptedPath]:
    """Two ends that know each other's secrets."""
    ours, theirs = Encryption(), Encryption()
    ours.add(PEER, TOKEN + 1, IN, OUT)
    theirs.add(PEER, TOKEN, OUT, IN)
    source, sink = path(ours, offload=sends), path(theirs, offload=receives)
    source.connect(PEER, *sink.address)
    return source, sink


def batch(count: int, tail: int = 0, size: int = SIZE) -> Transmit:
    payload = np.random.default_rng(count).integers(0, 256, count * size + tail, np.uint8)
    segments = np.arange(count + bool(tail), dtype=np.intp)
    first = Header(Kind.DATA, TOKEN, 3, 1, 9, packet_number=1)
    none = np.zeros(len(segments), np.uint8)
    return Transmit(PEER, 0, first, none, payload, segments, size, none)


def expected(sent: Transmit) -> list[bytes]:
    return [_uncounted(data) for data in test_udp.expected(sent)]


def _uncounted(data: bytes) -> bytes:
    return data[:SEALED] + data[HEADER_SIZE:]


def receive(sink: UdpPath, count: int) -> list[bytes]:
    """The next `count` datagrams, without their counters."""
    return [_uncounted(data) for data in test_udp.receive(sink, count)]


@OFFLOADS
@pytest.mark.parametrize("gro", [True, False])
@pytest.mark.parametrize("size", [64, SIZE, MAX_SEGMENT])
def test_batches_arrive_as_they_were(offload: bool, gro: bool, size: int) -> None:
    source, sink = pair(sends=offload, receives=gro)
    for count, tail in ((1, 0), (70, 0), (30, 24)):
        sent = batch(count, tail, size)
        source.send(sent)
        assert not source.backlog
        assert sorted(receive(sink, len(sent.segments))) == sorted(expected(sent))
    assert sink.counters == Counter()


def test_control_arrives_as_it_was_and_is_none_the_first_time_only() -> None:
    source, sink = pair()
    for data in (Header(Kind.PING, TOKEN).pack(), Header(Kind.CREDIT, TOKEN).pack() + b"body"):
        for _ in range(2):
            source.send_control(Control(PEER, 0, data))
            assert receive(sink, 1) == [data[:SEALED] + data[HEADER_SIZE:]]
    assert sink.counters == Counter()


@OFFLOADS
def test_nothing_of_a_payload_is_on_the_wire(offload: bool) -> None:
    source, _ = pair(sends=offload)
    listener = _listener(source)
    sent = batch(20)
    source.send(sent)
    source.limit(PEER, 0)  # the others in pieces
    source.send(batch(2))
    source.send_control(Control(PEER, 0, Header(Kind.CREDIT, TOKEN).pack() + bytes(range(64))))
    wire = _heard(listener)
    assert len(wire) > 22 and all(TOKEN.to_bytes(8, "little") in each for each in wire)
    content = sent.payload.tobytes() + batch(2).payload.tobytes() + bytes(range(64))
    for at in range(0, len(content) - 8, 8):
        assert content[at : at + 8] not in b"".join(wire)


def _listener(source: UdpPath) -> socket.socket:
    listener = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    _opened.append(listener)
    listener.bind(("127.0.0.1", 0))
    listener.settimeout(0.2)
    source.connect(PEER, *listener.getsockname())
    return listener


def _heard(listener: socket.socket) -> list[bytes]:
    wire: list[bytes] = []
    try:
        while True:
            wire.append(listener.recv(1 << 16))
    except TimeoutError:
        return wire


def test_what_is_in_clear_too_short_of_a_stranger_or_repeated_is_counted() -> None:
    source, sink = pair()
    listener = _listener(source)
    source.send(batch(2))
    source.send_control(Control(PEER, 0, Header(Kind.PING, TOKEN).pack()))
    good = _heard(listener)
    data, ping = Header(Kind.DATA, TOKEN, 3, checksum=9), Header(Kind.PING, TOKEN, checksum=9)
    unknown = TOKEN.to_bytes(8, "little"), (TOKEN + 2).to_bytes(8, "little")
    refused = {
        "checksum": [data.pack() + bytes(64), ping.pack() + bytes(64), good[0][:-1]],
        "short": [data.pack(), ping.pack(), b"", b"x"],
        "token": [each.replace(*unknown) for each in good],
        "replayed": [data._replace(checksum=0).pack() + bytes(64), *good, *good],
    }
    for each in [*good, *(each for some in refused.values() for each in some)]:
        listener.sendto(each, sink.address)
    assert len(receive(sink, 3)) == 3
    until_quiet = select.poll()
    until_quiet.register(sink, select.POLLIN)
    while sum(sink.counters.values()) < 17 and until_quiet.poll(PATIENCE * 1000):
        assert not [data for each in sink.receiver.receive() for data in datagrams(each)]
    assert sink.counters == {reason: len(some) for reason, some in refused.items()}


def test_pieces_make_the_datagram_and_each_is_as_long_as_its_path_takes() -> None:
    source, sink = pair()
    source.limit(PEER, 0)
    sent = batch(1)
    source.send(sent)
    book, whole = Reassembly(), None
    for each in receive(sink, 4):
        piece = each[:SEALED] + bytes(8) + each[SEALED:]
        assert len(piece) <= LEAST_PIECE
        whole = book.add(piece)
    assert whole is not None and [whole[:SEALED] + whole[HEADER_SIZE:]] == expected(sent)


def test_segments_as_they_wait_get_counters_when_they_go() -> None:
    """What the kernel did not take is sealed anew: what was sent before is not what goes later."""
    source, sink = pair()
    sent = batch(40)
    source.backlog.append(sent)
    source.send_control(Control(PEER, 0, Header(Kind.PING, TOKEN).pack()))
    assert source.send_backlog()
    assert len(receive(sink, 41)) == 41
    assert sink.counters == Counter()


def test_a_key_that_is_spent_sends_no_more_and_is_told() -> None:
    keys, (_, sink) = Encryption(), pair()
    source = path(keys)
    source.connect(PEER, *sink.address)
    keys.sealers[PEER] = Sealer(shared_key(OUT, IN), COUNTERS - 2)
    source.send(batch(2))
    assert keys.spent == {PEER} and not source.backlog
    keys.spent.clear()
    source.send_control(Control(PEER, 0, Header(Kind.PING, TOKEN).pack()))  # the last one
    assert keys.spent == set()
    source.send_control(Control(PEER, 0, Header(Kind.PING, TOKEN).pack()))
    assert keys.spent == {PEER}
    assert select.select([sink], [], [], PATIENCE)[0]
    assert not [data for each in sink.receiver.receive() for data in datagrams(each)]
    assert sink.counters == {"checksum": 1}, "one went out; and it is too far ahead for the sink"


def test_without_secrets_nothing_is_sent() -> None:
    with pytest.raises(ValueError, match="secrets"):
        Encryption().add(PEER, TOKEN, b"", b"")


def test_where_the_library_is_missing_the_error_names_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert encryption(NONE) is None
    assert encryption(AES_256_GCM)
    monkeypatch.setitem(sys.modules, "dlcpd.io.udp.encrypted_path", None)
    assert encryption(NONE) is None
    with pytest.raises(BadConfig, match=r"pip install 'dlcpd\[encryption\]'"):
        encryption(AES_256_GCM)


# --- whole engines -------------------------------------------------------------------------------

COUNT = 200_000  # elements


def configuration(rank: int, **options: Any) -> EngineConfig:
    made = EngineConfig(
        host=f"host{rank}", digest_every=1, data_encryption=AES_256_GCM, peer_timeout=1.0
    )
    return replace(made, **options)


def started(world: int, start: tuple[str, ...] = FORKED, **options: Any) -> Job:
    return Job(
        world, lambda rank: configuration(rank, inject_seed=rank, **options), start, keyed=True
    )


@OFFLOADS
def test_an_all_reduce_is_exact_with_and_without_loss(offload: bool) -> None:
    job = started(3, offload=offload, inject_loss=0.05, inject_corrupt=0.02)
    try:
        for number in range(1, 4):
            parts = draw("float32", 3, COUNT, number)
            outcomes = job.all_reduce(number, parts)
            assert all(isinstance(outcome, Completed) for outcome in outcomes), outcomes
            for rank in job.ranks:
                assert (
                    rank.tensor(0, COUNT).tobytes()
                    == rank_ordered(parts, "float32", "sum").tobytes()
                )
        counted: Counter[str] = sum((Counter(e.counters()) for e in job.engines), Counter())
        assert counted["checksum"] > 0.5 * counted["injected_corruption"] > 0
        assert counted["replayed"] <= counted["injected_corruption"]  # a bit of the counter
    finally:
        job.close()


def test_bounded_operations_waive_no_more_than_they_may() -> None:
    job = started(2, inject_loss=0.03, segment_size=1152)
    try:
        lost = 0
        for number in range(1, 9):
            outcomes = job.all_reduce(
                number, draw("float32", 2, COUNT, number), max_loss=0.05, name="w"
            )
            for outcome in outcomes:
                assert isinstance(outcome, Completed)
                lost += outcome.lost
            results = {rank.tensor(0, COUNT).tobytes() for rank in job.ranks}
            assert len(results) == 1
        assert lost > 0
    finally:
        job.close()


def test_several_paths_share_the_counters() -> None:
    job = started(2, paths=(("127.0.0.1", 0),) * 3)
    try:
        for number in range(1, 4):
            parts = draw("float32", 2, COUNT, number)
            assert all(isinstance(each, Completed) for each in job.all_reduce(number, parts))
        for engine in job.engines:
            assert not {"replayed", "checksum"} & engine.counters().keys()
    finally:
        job.close()


def test_a_session_without_secrets_ends_and_sends_nothing() -> None:
    job = Job(2, configuration)
    try:
        for rank in job.ranks:
            while rank.lane.recv(1 << 18):
                pass  # it ends
        for engine in job.engines:
            assert engine.counters()["internal"] == 1
            assert "token" not in engine.counters()
    finally:
        job.close()


def test_a_session_whose_counters_are_used_up_ends_by_name() -> None:
    start = (sys.executable, "-m", "tests.io.short_of_counters")
    job = started(2, start)
    try:
        for number in range(1, 200):
            outcomes = job.all_reduce(number, draw("float32", 2, COUNT, number))
            if not all(isinstance(outcome, Completed) for outcome in outcomes):
                break
        _, code, text = failure(outcomes[0])
        assert code == "too_many"
        assert "rank 1 on host1" in text and "join again" in text
        assert failure(outcomes[1])[1] in ("peer_lost", "operation_aborted")
    finally:
        job.close()


@pytest.mark.parametrize(("setting", "way"), [(AES_256_GCM, {NUMPY}), (NONE, {NUMPY, COMPILED})])
def test_an_engine_says_what_it_does(setting: str, way: set[str]) -> None:
    engine = Engine(EngineConfig(data_encryption=setting))
    try:
        ready = engine.receive()
        assert isinstance(ready, control_events.EngineReady)
        assert ready.features["data_encryption"] == setting
        assert ready.features["data_path"] in way
    finally:
        engine.close()
