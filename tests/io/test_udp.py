"""Two real sockets over loopback: batches arrive whole, marked, and nothing else gets through."""

import select
import socket
import struct
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from dlcpd.contract.errors import AddressUnavailable
from dlcpd.contract.traffic import traffic_classes
from dlcpd.core.endpoint import Endpoint
from dlcpd.core.paths.pacing import Pacer
from dlcpd.core.paths.pieces import Reassembly
from dlcpd.core.send_scheduler import SendScheduler
from dlcpd.core.wire.datagram import Control, Transmit
from dlcpd.core.wire.header import HEADER_SIZE, VERSION, Flag, Header, Kind
from dlcpd.core.wire.rows import Received
from dlcpd.io.config import EngineConfig
from dlcpd.io.datapath.choices import COMPILED, NUMPY
from dlcpd.io.discovery.icmp import RouteProbe
from dlcpd.io.udp import mmsg
from dlcpd.io.udp.udp_path import UdpPath
from dlcpd.io.udp.udp_receiver import JOIN_AGAIN
from tests.io.batches import data_path, datagrams

SIZE = 1408  # payload of a segment
WIDTH = HEADER_SIZE + SIZE
PATIENCE = 5.0  # seconds without a datagram after which a test fails; never waited for
PEER = 7

HOSTS = pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
OFFLOADS = pytest.mark.parametrize(
    ("sends", "receives"),
    [(True, True), (True, False), (False, True), (False, False)],
    ids=["gso-gro", "gso-plain", "plain-gro", "plain-plain"],
)


_opened: list[socket.socket] = []
_data_path = NUMPY


@pytest.fixture(autouse=True, params=[NUMPY, COMPILED])
def _both(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "_data_path", request.param)


@pytest.fixture(autouse=True)
def _close_sockets() -> Iterator[None]:
    yield
    while _opened:
        _opened.pop().close()


def path(
    host: str = "127.0.0.1",
    *,
    offload: bool = True,
    loss: float = 0.0,
    seed: int = 0,
    index: int = 0,
) -> UdpPath:
    config = EngineConfig(
        paths=((host, 0),) * (index + 1),
        segment_size=SIZE,
        receive_buffer=8 << 20,
        offload=offload,
        inject_loss=loss,
        inject_seed=seed,
    )
    made = UdpPath(index, config, Counter(), Counter(), data_path(_data_path))
    _opened.append(made.socket)
    return made


def pair(
    host: str = "127.0.0.1", *, sends: bool = True, receives: bool = True, **options: float
) -> tuple[UdpPath, UdpPath]:
    source, sink = path(host, offload=sends), path(host, offload=receives, **options)  # type: ignore[arg-type]
    source.connect(PEER, *sink.address)
    return source, sink


def stranger(host: str = "127.0.0.1") -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    _opened.append(socket.socket(family, socket.SOCK_DGRAM))
    return _opened[-1]


def batch(payload: np.ndarray, segments: list[int], tag: int = 16, size: int = SIZE) -> Transmit:
    return mixed(payload, segments, [tag] * len(segments), size)


def mixed(payload: np.ndarray, segments: list[int], tags: list[int], size: int = SIZE) -> Transmit:
    first = Header(Kind.DATA, 0xABCDEF, 3, 1, 9, packet_number=1)
    at, marks = np.array(segments, np.intp), np.array(tags, np.uint8)
    return Transmit(PEER, 0, first, np.zeros(len(at), np.uint8), payload, at, size, marks)


def expected(sent: Transmit) -> list[bytes]:
    size = sent.segment_size
    return [
        head.tobytes() + sent.payload[s * size : (s + 1) * size].tobytes()
        for head, s in zip(sent.headers(), sent.segments.tolist(), strict=True)
    ]


def receive(sink: UdpPath, count: int) -> list[bytes]:
    """The next `count` datagrams."""
    got: list[bytes] = []
    poll = select.poll()
    poll.register(sink, select.POLLIN)
    while len(got) < count and poll.poll(PATIENCE * 1000):
        while batches := sink.receiver.receive():
            got += [data for each in batches for data in datagrams(each)]
    assert len(got) == count
    return got


def data(count: int, tail: int = 0, segment: int = SIZE) -> np.ndarray:
    size = count * segment - (segment - tail if tail else 0)
    return np.random.default_rng(count).integers(0, 256, size, np.uint8)


# --- data --------------------------------------------------------------------------------


@HOSTS
@OFFLOADS
@pytest.mark.parametrize("tail", [0, 1, 64, SIZE - 1])
@pytest.mark.parametrize("count", [1, 2, 44, 45, 46, 135, 720, 1440])
def test_a_batch_arrives_whole(
    host: str, sends: bool, receives: bool, count: int, tail: int
) -> None:
    source, sink = pair(host, sends=sends, receives=receives)
    sent = batch(data(count, tail), list(range(count)))
    source.send(sent)
    assert receive(sink, count) == expected(sent)
    assert not source.backlog
    assert not source.counters


@OFFLOADS
def test_segments_in_any_order_and_batch_after_batch(sends: bool, receives: bool) -> None:
    """The prepared messages are reused: what one batch changed, the next must not see."""
    source, sink = pair(sends=sends, receives=receives)
    payload = data(100, tail=10)
    backwards = [*range(98, 60, -1), 99]  # a short segment ends its batch
    for segments in ([*range(60, 100)], [5, 3, 99], backwards, [0], [7] * 50):
        sent = batch(payload, segments)
        source.send(sent)
        assert receive(sink, len(segments)) == expected(sent)


@OFFLOADS
def test_control_between_data(sends: bool, receives: bool) -> None:
    source, sink = pair(sends=sends, receives=receives)
    wanted: list[bytes] = []
    for number in range(6):
        control = Header(Kind.NACK, 5, number).pack() + bytes(number * 3)
        source.send_control(Control(PEER, 0, control))
        sent = batch(data(3 + number, tail=20), list(range(3 + number)))
        source.send(sent)
        wanted += [control, *expected(sent)]
    assert Counter(receive(sink, len(wanted))) == Counter(wanted)


@HOSTS
@OFFLOADS
def test_peers_whose_paths_carry_different_sizes(host: str, sends: bool, receives: bool) -> None:
    """Segments of every size come whole, in whatever order the sizes take turns."""
    source, sink = pair(host, sends=sends, receives=receives)
    for turn in range(3):
        for size in (1152, 8896, 1408, 64, 1344, 1152):
            count = 20 + turn
            sent = batch(data(count, 7, size), list(range(count)), size=size)
            source.send(sent)
            assert sorted(receive(sink, count)) == sorted(expected(sent))
    assert not source.counters


@OFFLOADS
def test_sizes_that_wait_together(sends: bool, receives: bool) -> None:
    """One receive call finds bursts of several sizes, and control between them."""
    source, sink = pair(sends=sends, receives=receives)
    wanted: list[bytes] = []
    for size in (1408, 1152, 8896, 1408, 8896, 1152):
        control = Header(Kind.NACK, 5, size).pack() + bytes(size // 3)
        source.send_control(Control(PEER, 0, control))
        sent = batch(data(20, 9, size), list(range(20)), size=size)
        source.send(sent)
        wanted += [control, *expected(sent)]
    assert Counter(receive(sink, len(wanted))) == Counter(wanted)


@pytest.mark.parametrize("_both", [NUMPY], indirect=True)  # C has no raster
def test_the_raster_follows_what_comes_most() -> None:
    """Copies out of the raster are for the odd one; a peer with jumbo frames is not odd."""
    source, sink = pair()
    if not sink.receiver.gro:
        pytest.skip("no raster: this kernel has no UDP_GRO")
    for rows in ([8928], [1440], [8928]):
        for _ in range(3):
            size = rows[0] - HEADER_SIZE
            source.send(batch(data(60, segment=size), list(range(60)), size=size))
            got = [each for each in sink.receiver.receive() if isinstance(each, Received)]
            seen = [each.rows.shape[1] for each in got if each.count]
        assert seen == rows


@HOSTS
@pytest.mark.parametrize("limit", [0, 1184, WIDTH - 1, WIDTH])
def test_what_is_above_a_peers_limit_goes_in_pieces(host: str, limit: int) -> None:
    """An operation that began before its path's MTU fell goes on."""
    source, sink = pair(host)
    source.limit(PEER, limit)
    sent = batch(data(30, 5), list(range(30)))
    source.send(sent)
    per_datagram = -(-WIDTH // (max(limit, 512) - 40)) if limit < WIDTH else 1
    per_tail = -(-37 // (max(limit, 512) - 40))
    got, book = receive(sink, 29 * per_datagram + per_tail), Reassembly()
    if limit < WIDTH:
        assert max(map(len, got)) <= max(limit, 512)
        got = [whole for piece in got if (whole := book.add(piece)) is not None]
    assert got == expected(sent)
    assert source.counters == ({"in_pieces": 30} if limit < WIDTH else {})


def test_control_above_a_peers_limit_goes_in_pieces_but_probes_never_do() -> None:
    source, sink = pair()
    source.limit(PEER, 0)
    for kind, count in ((Kind.CREDIT, 3), (Kind.PROBE, 1), (Kind.PING, 1)):
        control = Header(kind, 1).pack().ljust(1192 if kind is not Kind.PING else 32, b"\0")
        source.send_control(Control(PEER, 0, control))
        got, book = receive(sink, count), Reassembly()
        assert [book.add(piece) for piece in got][-1] == control if count > 1 else got == [control]


def test_a_limit_ends_with_its_peer() -> None:
    source, sink = pair()
    source.limit(PEER, 0)
    source.disconnect(PEER)
    source.limit(PEER, 0)  # of a flow that is gone: no error, and nothing kept
    source.connect(PEER, *sink.address)
    source.send(batch(data(3), [0, 1, 2]))
    assert len(receive(sink, 3)) == 3
    assert not source.counters


def test_every_burst_has_its_time() -> None:
    source, sink = pair()
    source.send(batch(data(200), list(range(200))))
    poll = select.poll()
    poll.register(sink, select.POLLIN)
    poll.poll(PATIENCE * 1000)
    begin = time.monotonic()
    seen = 0
    while seen < 200:
        for received in sink.receiver.receive():
            for group in received.groups(Counter()):
                assert begin - PATIENCE < group.arrived_at <= time.monotonic()
                seen += group.count


def test_nothing_waits() -> None:
    assert path().receiver.receive() == []


def test_what_was_disconnected_is_not_sent_to() -> None:
    source, sink = pair()
    source.backlog.append(batch(data(1), [0]))
    source.disconnect(PEER)
    source.send_control(Control(PEER, 0, Header(Kind.PING, 1).pack()))
    assert not source.backlog
    assert sink.receiver.receive() == []


@HOSTS
def test_a_device_that_cannot_segment_is_noticed_once(host: str) -> None:
    """Here the kernel refuses port 0; a device without checksum offload refuses a burst alike."""
    source, sink = pair(host)
    source.connect(99, host, 0)
    refused = batch(data(90), list(range(90)))
    refused.peer = 99
    source.send(refused)
    assert not source.gso
    assert not source.backlog
    assert source.counters == {"gso_unavailable": 1, "send_EINVAL": 90}
    source.send_control(Control(99, 0, Header(Kind.PING, 1).pack()))
    assert source.counters["send_EINVAL"] == 91
    sent = batch(data(100, tail=9), list(range(100)))
    source.send(sent)
    assert receive(sink, 100) == expected(sent)


# --- marks ---------------------------------------------------------------------------------


def marks_of(sink: socket.socket, count: int) -> list[int]:
    sink.settimeout(PATIENCE)
    marks = []
    for _ in range(count):
        _, ancillary, _, _ = sink.recvmsg(2048, 64)
        marks += [value[0] for level, kind, value in ancillary]
    return marks


@HOSTS
@pytest.mark.parametrize("offload", [True, False])
def test_dscp_and_ecn_of_every_class_are_on_the_wire(host: str, offload: bool) -> None:
    sink, source = stranger(host), path(host, offload=offload)
    sink.bind((host, 0))
    if ":" in host:
        sink.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_RECVTCLASS, 1)
    else:
        sink.setsockopt(socket.IPPROTO_IP, socket.IP_RECVTOS, 1)
    source.connect(PEER, host, sink.getsockname()[1])
    control, *gradients = traffic_classes().values()
    for row in gradients:
        for rank, (dscp, ecn) in enumerate(zip(row.dscp, row.ecn, strict=True)):
            source.send(batch(data(3), [0, 1, 2], tag=row.tag(rank)))
            assert marks_of(sink, 3) == [dscp << 2 | ecn] * 3
    source.send_control(Control(PEER, 0, Header(Kind.PING, 1).pack()))
    assert marks_of(sink, 1) == [control.dscp[0] << 2 | control.ecn[0]]
    last = gradients[-1]
    ranks = [0, 0, 1, 2, 2, 2, 0]
    source.send(mixed(data(7), list(range(7)), [last.tag(rank) for rank in ranks]))
    assert marks_of(sink, 7) == [last.dscp[rank] << 2 | last.ecn[rank] for rank in ranks]
    source.send(batch(data(3), [0, 1, 2], tag=last.tag(1)))
    assert marks_of(sink, 3) == [last.dscp[1] << 2 | last.ecn[1]] * 3


@HOSTS
@pytest.mark.parametrize("offload", [True, False])
@pytest.mark.parametrize("mark", [0, 1, 2, 3])
def test_congestion_experienced_is_counted(host: str, offload: bool, mark: int) -> None:
    sink, source = path(host, offload=offload), stranger(host)
    if ":" in host:
        source.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS, mark)
    else:
        source.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, mark)
    source.sendto(Header(Kind.DATA, 1).pack().ljust(WIDTH), sink.address)
    poll = select.poll()
    poll.register(sink, select.POLLIN)
    poll.poll(PATIENCE * 1000)
    [received] = sink.receiver.receive()
    assert [group.marked for group in received.groups(Counter())] == [int(mark == 3)]


# --- whatever else arrives -------------------------------------------------------------------

ODD_SIZES = [0, 1, 2, 31, 32, 33, 100, WIDTH - 1, WIDTH, WIDTH + 1, 2 * WIDTH, 9000]


def endpoint() -> Endpoint:
    return Endpoint(SIZE, 1 << 20, SendScheduler(Pacer(0)))


def deliver(sink: UdpPath, target: Endpoint) -> None:
    poll = select.poll()
    poll.register(sink, select.POLLIN)
    poll.poll(PATIENCE * 1000)
    while batches := sink.receiver.receive():
        for received in batches:
            target.receive(received, 0.0)


@pytest.mark.parametrize("offload", [True, False])
@pytest.mark.parametrize("kind", [Kind.DATA, Kind.NACK, 0])
@pytest.mark.parametrize("size", ODD_SIZES)
def test_a_strangers_datagram_of_any_size_is_counted_once(
    offload: bool, kind: int, size: int
) -> None:
    sink, target, source = path(offload=offload), endpoint(), stranger()
    source.sendto((bytes([VERSION]) + bytes([kind]) + bytes(size))[:size], sink.address)
    deliver(sink, target)
    assert sum(target.counters.values()) == 1, target.counters


@pytest.mark.parametrize("offload", [True, False])
@pytest.mark.parametrize("extra", [1, 100, 5000])
def test_a_datagram_too_long_is_not_taken_for_its_beginning(offload: bool, extra: int) -> None:
    sink, source = path(offload=offload), stranger()
    source.sendto(Header(Kind.DATA, 1).pack() + bytes(SIZE + extra), sink.address)
    assert [len(d) == WIDTH for d in receive(sink, 1)] == [False]


@pytest.mark.parametrize("stride", [HEADER_SIZE, 76, 96, WIDTH - 1, WIDTH])
@pytest.mark.parametrize("kind", [Kind.READY, Kind.DATA])
@pytest.mark.parametrize("count", [2, 9])
def test_small_datagrams_that_the_kernel_joined_come_apart(
    kind: Kind, stride: int, count: int
) -> None:
    """A network card's GRO joins what arrives together, if it is of one size."""
    sink, source = path(), stranger()
    if not sink.receiver.gro:
        pytest.skip("this kernel has no UDP_GRO")
    sent = [Header(kind, 5, number).pack().ljust(stride, b"x") for number in range(count)]
    sent.append(Header(Kind.PING, 5).pack())  # a shorter one may end the run
    stride_of_run = [(socket.IPPROTO_UDP, mmsg.UDP_SEGMENT, struct.pack("=H", stride))]
    source.sendmsg([b"".join(sent)], stride_of_run, 0, sink.address)
    assert sorted(receive(sink, len(sent))) == sorted(sent)


def test_small_data_that_the_kernel_joined_is_data() -> None:
    """The endpoint takes it, though it came outside the raster."""
    target = endpoint()
    small = Header(Kind.DATA, 5).pack() + bytes(64)
    empty = np.zeros((1, WIDTH), np.uint8)
    none = np.zeros(0, np.intp)
    target.receive(Received(0, [0.0], 1, empty, none, none, [small, small]), 0.0)
    assert target.counters == {"token": 2}


def test_a_device_that_joins_nothing_is_noticed_and_tried_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    sink, source = path(), stranger()
    if not sink.receiver.gro:
        pytest.skip("this kernel has no UDP_GRO")
    single = Header(Kind.DATA, 1).pack().ljust(WIDTH)
    for _ in range(8):
        for _ in range(32):
            source.sendto(single, sink.address)
        receive(sink, 32)
    assert not sink.receiver.gro
    assert sink.counters == {"gro_useless": 1}
    other = path()
    other.connect(PEER, *sink.address)
    sent = batch(data(300, tail=5), list(range(300)))
    other.send(sent)
    assert receive(sink, 300) == expected(sent)
    assert not sink.receiver.gro
    later = time.monotonic() + JOIN_AGAIN
    monkeypatch.setattr(time, "monotonic", lambda: later)
    for _ in range(2):
        other.send(sent)
        assert receive(sink, 300) == expected(sent)
    assert sink.receiver.gro  # what came singly may have been a stranger's


# --- loss on purpose ---------------------------------------------------------------------------


def survivors(seed: int, index: int = 0) -> tuple[list[bytes], int]:
    source, sink = pair(loss=0.2, seed=seed, index=index)
    source.send(batch(data(500), list(range(500))))
    source.send_control(Control(PEER, 0, Header(Kind.PING, 1).pack()))
    got: list[bytes] = []
    while len(got) + sink.counters["injected_loss"] < 501:
        got += [data for each in sink.receiver.receive() for data in datagrams(each)]
    return got, sink.counters["injected_loss"]


def test_injected_loss_is_counted_and_about_as_asked() -> None:
    got, lost = survivors(seed=1)
    assert len(got) + lost == 501
    assert 60 < lost < 140


def test_injected_loss_follows_its_seed_and_path() -> None:
    assert survivors(seed=1) == survivors(seed=1)
    assert survivors(seed=1) != survivors(seed=2)
    assert survivors(seed=1) != survivors(seed=1, index=1)


# --- addresses -----------------------------------------------------------------------------------


@HOSTS
def test_a_port_in_use_is_told(host: str) -> None:
    taken = path(host)
    config = EngineConfig(paths=((host, taken.address[1]),))
    with pytest.raises(AddressUnavailable) as caught:
        UdpPath(0, config, Counter(), Counter())
    text = str(caught.value)
    assert f"UDP {host} port {taken.address[1]}" in text
    assert "in use" in text
    assert "free port" in text


def test_an_address_of_another_host_is_told() -> None:
    with pytest.raises(AddressUnavailable, match=r"198\.51\.100\.1"):  # TEST-NET-2, RFC 5737
        UdpPath(0, EngineConfig(paths=(("198.51.100.1", 0),)), Counter(), Counter())


def test_a_name_is_not_an_address() -> None:
    with pytest.raises(AddressUnavailable, match="no such host"):
        UdpPath(0, EngineConfig(paths=(("no such host", 0),)), Counter(), Counter())


def test_ipv4_sockaddr() -> None:
    packed = mmsg.pack_address(socket.AF_INET, "192.0.2.1", 0x1234).tobytes()
    assert packed == bytes.fromhex("02001234c00002010000000000000000")


def test_ipv6_sockaddr() -> None:
    packed = mmsg.pack_address(socket.AF_INET6, "2001:db8::1", 0x1234).tobytes()
    assert packed == bytes.fromhex("0a0012340000000020010db800000000000000000000000100000000")


def test_ipv6_sockaddr_with_a_zone() -> None:
    index = socket.if_nametoindex("lo")
    packed = mmsg.pack_address(socket.AF_INET6, "fe80::1%lo", 1).tobytes()
    assert packed[-4:] == struct.pack("<I", index)


@pytest.mark.parametrize("flag", [Flag.ENDING, Flag.ASK])
def test_flags_of_single_rows_travel(flag: Flag) -> None:
    source, sink = pair()
    sent = batch(data(3), [0, 1, 2])
    sent.flags[2] |= flag
    source.send(sent)
    assert [Header.unpack_untrusted(d).flags for d in receive(sink, 3)] == [0, 0, flag]


def test_errors_about_one_peer_do_not_keep_others_data_out() -> None:
    """Nobody listens where a peer was, and says so after each datagram that goes there."""
    sink, source, gone = path(), path(), path()
    sink.connect(1, *gone.address)
    source.connect(PEER, *sink.address)
    gone.socket.close()
    for number in range(1, 4):
        sent = batch(data(number), list(range(number)))
        source.send(sent)
        sink.send_control(Control(1, 0, Header(Kind.PING, 5).pack()))
        got = [each for b in sink.receiver.receive() for each in datagrams(b)]
        assert got == expected(sent)


class Flooded:
    """A socket on which an error is pending again after each call that one has failed: ICMP about
    datagrams to a port where nobody listens."""

    def __init__(self, sock: socket.socket) -> None:
        RouteProbe(sock)  # has the kernel report errors
        self._socket = sock
        with socket.socket(sock.family, socket.SOCK_DGRAM) as closed:
            closed.bind(("127.0.0.1", 0))
            self._nobody = closed.getsockname()
        self.refused = 0
        self._leave_one()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._socket, name)

    def _leave_one(self) -> None:
        self._socket.sendto(b"x", self._nobody)
        poll = select.poll()
        poll.register(self._socket, 0)
        assert poll.poll(PATIENCE * 1000)

    def watched(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def wrapped(*args: Any) -> Any:
            try:
                return call(*args)
            except ConnectionRefusedError:
                self.refused += 1
                self._leave_one()
                raise

        return wrapped

    def sendmsg(self, *args: Any) -> int:
        sent: int = self.watched(self._socket.sendmsg)(*args)
        return sent


@pytest.mark.parametrize("control", [False, True], ids=["data", "control"])
def test_errors_that_come_faster_than_calls_lose_nothing(
    control: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, sink = pair()
    flooded, sender = Flooded(source.socket), source._sender  # noqa: SLF001
    monkeypatch.setattr(source, "socket", flooded)
    monkeypatch.setattr(sender, "push", flooded.watched(sender.push))
    sent = batch(data(3), [0, 1, 2])
    if control:
        source.send_control(Control(PEER, 0, Header(Kind.PING, 5).pack()))
    else:
        source.send(sent)
    assert flooded.refused == 1
    assert receive(sink, 1 if control else 3)
    assert not source.counters
