"""Control and small data of one flow leave in few datagrams, and arrive as if each were alone."""

from collections import Counter
from functools import partial

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcpd.core.paths.paths import CONTROL, Paths
from dlcpd.core.session.bundling import FEW, bundled
from dlcpd.core.wire import bundle
from dlcpd.core.wire.datagram import Control, Transmit
from dlcpd.core.wire.header import HEADER_SIZE, Header, Kind

PEER, TOKEN, SIZE = 3, 0xABC, 1408
DATA_TAG = 18  # class 4


def told(kind: Kind, path: int = 0, tag: int = CONTROL, body: int = 8) -> Control:
    return Control(PEER, path, Header(kind, TOKEN, path=path, tag=tag).pack() + bytes(body), tag)


def batch(
    *segments: int, path: int = 0, tag: int = DATA_TAG, number: int = 1, size: int = 64
) -> Transmit:
    header = Header(Kind.DATA, TOKEN, 1, path=path, packet_number=number)
    tags, flags = np.full(len(segments), tag, np.uint8), np.zeros(len(segments), np.uint8)
    payload = np.zeros(4 * size, np.uint8)
    return Transmit(PEER, path, header, flags, payload, np.array(segments), size, tags)


def bundles(
    controls: list[Control], *batches: Transmit, paths: Paths | None = None, size: int = SIZE
) -> tuple[list[tuple[int, int, list[Kind]]], list[Transmit]]:
    """(path, tag, kinds of the parts) of each datagram, and the batches that joined."""
    out, joined = bundled(controls, batches, paths or Paths.new(2), TOKEN, size)
    assert all(len(each.data) <= HEADER_SIZE + size for each in out)
    return [(each.path, each.tag, kinds(each.data)) for each in out], joined


def kinds(data: bytes) -> list[Kind]:
    header = Header.unpack_untrusted(data)
    if header.kind is not Kind.BUNDLE:
        return [header.kind]
    return [part.kind for part, _ in bundle.unpack_untrusted(data)]


def test_control_of_a_path_shares_a_datagram_and_one_alone_is_what_it_was() -> None:
    one = told(Kind.PING, path=1)
    found, _ = bundles([told(Kind.READY), one, told(Kind.COMPLETE)])
    assert found == [(0, CONTROL, [Kind.READY, Kind.COMPLETE]), (1, CONTROL, [Kind.PING])]
    assert bundled([one], [], Paths.new(2), TOKEN, SIZE)[0] == [one]


def test_a_tag_is_kept() -> None:
    found, _ = bundles([told(Kind.END, tag=DATA_TAG), told(Kind.PING), told(Kind.END, tag=2)])
    assert [tag for _, tag, _ in found] == [DATA_TAG, CONTROL, 2]


def test_a_bundle_is_no_larger_than_a_segment() -> None:
    found, _ = bundles([told(Kind.NACK, body=400) for _ in range(7)], size=1000)
    assert [len(kinds) for _, _, kinds in found] == [2, 2, 2, 1]


def test_a_bundle_of_control_fits_the_least_mtu_and_with_data_the_segment() -> None:
    """Of its path, only the size of segments is known to arrive, and at first not even that."""
    controls = [told(Kind.NACK, body=400) for _ in range(3)]
    found, _ = bundles(controls, size=8896)
    assert [len(kinds) for _, _, kinds in found] == [2, 1]
    found, _ = bundles(controls[:2], batch(0, size=4096), size=8896)
    assert [kinds for _, _, kinds in found] == [[Kind.NACK, Kind.NACK, Kind.DATA]]


def test_a_ready_that_carries_much_follows_other_control_up_to_the_segment() -> None:
    """Alone it is longer than the least MTU: the path has taken such datagrams before."""
    carrying = told(Kind.READY, body=1300)
    found, _ = bundles([told(Kind.COMPLETE), carrying, carrying])
    assert [kinds for _, _, kinds in found] == [[Kind.COMPLETE, Kind.READY], [Kind.READY]]


def test_a_bundle_has_no_more_parts_than_its_receiver_takes() -> None:
    controls = [told(Kind.ACK, body=0) for _ in range(100)]
    out, _ = bundled(controls, [], Paths.new(1), TOKEN, SIZE)
    parts = [bundle.unpack_untrusted(each.data) for each in out]
    assert sum(map(len, parts)) == 100 and max(map(len, parts)) <= bundle.MAX_PARTS


def test_small_data_follow_the_control_of_their_path_in_their_class() -> None:
    first, other = batch(2), batch(3, number=2)
    found, joined = bundles([told(Kind.READY), told(Kind.PING, path=1)], first, other)
    assert found[0] == (0, DATA_TAG, [Kind.READY, Kind.DATA, Kind.DATA])
    assert joined == [first, other]


@pytest.mark.parametrize(
    "data", [batch(0, 1), batch(0, path=1)], ids=["two segments", "another path"]
)
def test_other_data_leave_by_themselves(data: Transmit) -> None:
    assert bundles([told(Kind.READY)], data) == ([(0, CONTROL, [Kind.READY])], [])


def test_data_of_another_class_leave_by_themselves() -> None:
    first, other = batch(0), batch(1, tag=2)
    assert bundles([told(Kind.READY)], first, other)[1] == [first]


def test_data_without_control_are_no_bundle() -> None:
    assert bundles([], batch(0)) == ([], [])


def test_control_does_not_wait_behind_many_data() -> None:
    """They may queue in a switch, in the class of the data."""
    paths = Paths.new(1)
    paths.space(0, 4).sent = FEW + 1
    assert bundles([told(Kind.READY)], batch(0), paths=paths)[1] == []


# --- a session -------------------------------------------------------------------------------


def reduce(net: SimNetwork, operation: int, elements: int = 256) -> None:
    values = [np.full(elements, rank + 1, np.float32) for rank in range(net.world_size)]
    net.submit_all(operation, values)
    net.run(until=20, enough=partial(net.ended, operation))
    assert net.ended(operation)


@pytest.mark.parametrize("world", [2, 4])
def test_a_small_operation_is_a_datagram_for_each_peer(world: int) -> None:
    """And a few that no operation waits for: credit, and what completes the one before."""
    net = SimNetwork(world, SimLink(), segment_size=1408, one_shot=True)
    reduce(net, 1)
    before, operations = net.carried, 20
    for operation in range(2, operations + 2):
        reduce(net, operation)
    assert net.carried - before <= 1.3 * operations * world * (world - 1)


def test_a_bundle_of_a_stranger_and_a_malformed_one_are_counted_and_change_nothing() -> None:
    net = SimNetwork(2, SimLink(), segment_size=1408)
    reduce(net, 1)
    counters = net.endpoints[1].counters
    before = Counter(counters)
    ping = Header(Kind.PING, net.token(1, 0)).pack()
    net.inject(1, bundle.pack(net.token(1, 0) ^ 1, 0, 0, [ping]), 0)
    net.inject(1, bundle.pack(net.token(1, 0) ^ 1, 0, 0, []), 0)
    net.inject(1, bundle.pack(net.token(1, 0), 0, 0, [ping, ping])[:-1], 0)
    net.run(until=1)
    assert Counter(counters) - before == Counter({"token": 2, "length": 1})
    reduce(net, 2)
