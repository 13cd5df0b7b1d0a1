"""UdpPath over a router with smaller links: what the kernel says, and what still arrives."""

import errno
import select
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from dlcpd.core.paths.pieces import Reassembly
from dlcpd.core.wire.datagram import Control, Transmit
from dlcpd.core.wire.header import HEADER_SIZE, Header, Kind
from dlcpd.core.wire.probes import pack_probe
from dlcpd.core.wire.sizes import BASE, segment_within
from dlcpd.io.config import EngineConfig
from dlcpd.io.datapath.choices import AUTO
from dlcpd.io.datapath.compiled import compiled
from dlcpd.io.udp import mmsg
from dlcpd.io.udp.udp_path import UdpPath
from tests.io.batches import datagrams
from tests.path_mtu.network import Network, network

pytestmark = pytest.mark.netns

PEER, TOKEN = 7, 0xABCDEF
PATIENCE = 5.0  # seconds until a test fails; never waited for
FAMILIES = pytest.mark.parametrize("v6", [False, True], ids=["ipv4", "ipv6"])
OFFLOADS = pytest.mark.parametrize("offload", [True, False], ids=["gso", "plain"])


@contextmanager
def pair(net: Network, *, offload: bool = True) -> Iterator[tuple[UdpPath, UdpPath]]:
    """A path's two ends: on host a, aimed at host b, and on host b."""
    ends = []
    for host in "ab":
        config = EngineConfig(paths=((net.addresses[host], 0),), offload=offload)
        with net.entered(host):
            ends.append(UdpPath(0, config, Counter(), Counter(), compiled(AUTO)))
    source, sink = ends
    source.connect(PEER, *sink.address)
    try:
        _acquaint(source, sink)
        yield source, sink
    finally:
        for end in ends:
            end.socket.close()


def _acquaint(source: UdpPath, sink: UdpPath) -> None:
    """Until neighbours are resolved, kernels drop what is more than a few datagrams."""
    for _ in range(50):
        source.send_control(Control(PEER, 0, Header(Kind.PING, 1).pack()))
        if received(sink, 1, patience=0.1):
            while received(sink, 1, patience=0.1):
                pass  # those that had to wait come one by one
            return
    raise AssertionError("no way from a to b")


def batch(segment: int, count: int) -> Transmit:
    payload = np.random.default_rng(segment).integers(0, 256, segment * count, np.uint8)
    at, tags = np.arange(count, dtype=np.intp), np.full(count, 16, np.uint8)
    first = Header(Kind.DATA, TOKEN, 3, 9, packet_number=1)
    return Transmit(PEER, 0, first, np.zeros(count, np.uint8), payload, at, segment, tags)


def wire(sent: Transmit) -> list[bytes]:
    size = sent.segment_size
    return [
        head.tobytes() + sent.payload[s * size : (s + 1) * size].tobytes()
        for head, s in zip(sent.headers(), sent.segments.tolist(), strict=True)
    ]


def received(sink: UdpPath, count: int, patience: float = PATIENCE) -> list[bytes]:
    """Up to `count` datagrams, without waiting for more than that."""
    got: list[bytes] = []
    poll = select.poll()
    poll.register(sink, select.POLLIN)
    while len(got) < count and poll.poll(patience * 1000):
        for each in sink.receiver.receive():
            got += datagrams(each)
    return got


def joined(pieces: list[bytes]) -> list[bytes]:
    book = Reassembly()
    return [whole for piece in pieces if (whole := book.add(piece)) is not None]


def icmp(path: UdpPath) -> list[tuple[int, int]]:
    """(MTU, token of the datagram quoted) of what ICMP has said."""
    return [(n.mtu, Header.unpack_untrusted(n.quoted).token) for n in path.probe.answers()]


@FAMILIES
@pytest.mark.parametrize("mtu", [1280, 1400, 1460, 9000])
def test_the_kernel_knows_what_the_own_interface_carries(mtu: int, v6: bool) -> None:
    with network(mtu, 9000, v6=v6) as net, net.entered("a"):
        assert mmsg.route_mtu(net.addresses["a"], net.addresses["b"]) == mtu
        assert mmsg.route_mtu(net.addresses["a"], "fd99::1" if not v6 else "10.0.0.1") == 0


@FAMILIES
@OFFLOADS
@pytest.mark.parametrize("mtu", [1280, 1400, 1460, 8936])  # the last: with the largest segments
def test_segments_of_the_paths_size_arrive_and_larger_ones_are_told(
    mtu: int, offload: bool, v6: bool
) -> None:
    segment = segment_within(mtu, 48 if v6 else 28)
    with network(9200, mtu, v6=v6) as net, pair(net, offload=offload) as (source, sink):
        fits = batch(segment, 100)
        source.send(fits)
        assert sorted(received(sink, 100)) == sorted(wire(fits))
        source.send(batch(segment + 64, 3))
        assert received(sink, 1, patience=0.2) == []
        assert set(icmp(source)) == {(mtu, TOKEN)}
        assert not source.counters


@FAMILIES
@pytest.mark.parametrize("told", [True, False], ids=["told", "black hole"])
def test_once_the_size_is_known_larger_ones_go_in_pieces(told: bool, v6: bool) -> None:
    with network(1500, 1500, v6=v6) as net, pair(net) as (source, sink):
        if told:
            net.set_mtu(b=1400)
        else:  # b's end of the link is as large as before: what is too long for the router's
            net.silence()
            net.set_router_mtu(1400)
        source.send(batch(1408, 3))
        assert received(sink, 1, patience=0.2) == []
        assert bool(icmp(source)) == told
        source.limit(PEER, HEADER_SIZE + BASE)
        large = batch(1408, 50)
        source.send(large)
        assert joined(received(sink, 100)) == wire(large)
        assert source.counters == {"in_pieces": 50}
        assert source.gso


@FAMILIES
@OFFLOADS
def test_an_interface_that_shrinks_is_told_and_the_batch_arrives(offload: bool, v6: bool) -> None:
    with network(1500, 1500, v6=v6) as net, pair(net, offload=offload) as (source, sink):
        net.set_mtu(a=1400)
        large = batch(1408, 50)
        source.send(large)
        assert joined(received(sink, 4 * 50)) == wire(large)
        assert source.too_big == [(PEER, HEADER_SIZE + 1408)]
        assert source.counters == {"send_EMSGSIZE": 1, "in_pieces": 50}
        assert source.gso == offload


def test_an_older_kernels_word_for_too_big_does_not_end_gso(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """They say EINVAL of a burst, as of a device that cannot segment."""
    send_many = mmsg.send_many

    def older(fd: int, messages: int, first: int, count: int) -> int:
        try:
            return send_many(fd, messages, first, count)
        except OSError as exc:
            is_burst = count < 10  # else each of the batch's datagrams is a message
            raise OSError(errno.EINVAL if is_burst else exc.errno, "") from exc

    monkeypatch.setattr(mmsg, "send_many", older)
    with network(1500, 1500) as net, pair(net) as (source, sink):
        net.set_mtu(a=1400)
        large = batch(1408, 50)
        source.send(large)
        assert joined(received(sink, 4 * 50)) == wire(large)
        assert source.gso
        assert source.too_big == [(PEER, HEADER_SIZE + 1408)]


def test_what_a_queue_of_this_host_drops_is_lost_and_nothing_waits_for_it() -> None:
    """A link whose other end takes less refuses at once: ENOBUFS, of each datagram for ever."""
    with network(1500, 1500) as net, pair(net, offload=False) as (source, sink):
        net.set_router_mtu(1400, "a")
        source.send(batch(1408, 100))
        assert not source.backlog
        assert source.counters["send_ENOBUFS"] > 0
        fits = batch(1280, 100)
        source.send(fits)
        assert sorted(received(sink, 100)) == sorted(wire(fits))


@FAMILIES
def test_a_probe_is_never_fragmented(v6: bool) -> None:
    with network(1500, 1400, v6=v6) as net, pair(net) as (source, sink):
        source.limit(PEER, 0)
        for size, passes in ((1184, True), (1440, False), (1472 + 100, False), (1312, True)):
            probe = pack_probe(TOKEN, 0, size, size)
            source.send_control(Control(PEER, 0, probe))
            assert received(sink, 1, patience=0.2) == ([probe] if passes else [])
        assert source.too_big == [(PEER, 1572)]
        assert set(icmp(source)) == {(1400, TOKEN)}  # the kernel's own word is not a router's


def test_control_passes_where_not_even_the_least_mtu_does() -> None:
    with network(1500, 1000) as net, pair(net) as (source, sink):
        net.drop_fragments()
        credit = Header(Kind.CREDIT, TOKEN).pack().ljust(1192, b"\0")
        source.send_control(Control(PEER, 0, credit))
        assert received(sink, 1, patience=0.2) == []
        source.limit(PEER, 0)
        source.send_control(Control(PEER, 0, credit))
        assert joined(received(sink, 3)) == [credit]
