"""Traffic classes and drop precedences: urgent segments leave first, light ones are lost first."""

from collections import Counter
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any

import numpy as np
import pytest

from dlcp_lab.simulation.network import SimLink, SimNetwork
from dlcp_lab.simulation.reference import draw, rank_ordered
from dlcpd.contract.traffic import DROP_PRECEDENCES
from dlcpd.core.wire.header import Header, Kind
from dlcpd.numerics.magnitude import LIGHT, MEDIUM
from dlcpd.numerics.residual import Hole
from dlcpd.schedules.model import Buffer

FRONT, BACK, BULK = 1, 3, 4
RATE = 50_000.0  # datagrams per second into a host
SLOW = SimLink(rate=RATE, queue=400, classes=True)


@dataclass(frozen=True)
class Sent:
    """A datagram of data: who sent it, its header, where its bytes lie in the tensor, and whether
    they are a result."""

    source: int
    header: Header
    begin: int
    result: bool


def sent(net: SimNetwork) -> list[Sent]:
    assert net.recorded is not None
    found = []
    for carried in net.recorded:
        header = Header.unpack_untrusted(carried.data)
        if header.kind is Kind.DATA:
            span = net.sent(carried.source, carried.target, header).span
            begin = span.start + header.segment * net.segment_size
            found.append(Sent(carried.source, header, begin, span.buffer == Buffer.OUTPUT))
    return found


def contributions(net: SimNetwork) -> list[Sent]:
    return [one for one in sent(net) if not one.result]


def time_of(net: SimNetwork, number: int) -> float:
    """When the operation is done on all ranks, seconds from now; the rest goes on."""
    begin = net.now
    net.run(until=10, enough=partial(net.ended, number))
    assert net.ended(number)
    return net.now - begin


def slow(world: int = 2, **link: Any) -> SimNetwork:
    return SimNetwork(
        world, SimLink(**{"rate": RATE, "queue": 400, "classes": True, **link}), grant=1 << 20
    )


# --- classes ----------------------------------------------------------------------------------


def test_segments_carry_the_class_of_their_layer() -> None:
    net = SimNetwork(2, recorded=[])
    parts = draw("float32", 2, 4000, 1)  # 16,000 B, each rank owns 8,000
    layers = [[0, BACK, 0], [4000, FRONT, 0], [12_000, BULK, 0]]
    expected = rank_ordered(parts, "float32", "sum")
    net.submit_all(1, parts, layers=layers)
    net.run()
    assert all((tensor == expected).all() for tensor in parts)
    assert {one.result for one in sent(net)} == {False, True}
    for one in sent(net):
        wanted = BACK if one.begin < 4000 else FRONT if one.begin < 12_000 else BULK
        assert one.header.tag == wanted * DROP_PRECEDENCES


def test_front_layers_go_first_within_an_operation() -> None:
    net = SimNetwork(2, recorded=[])
    net.submit_all(1, draw("float32", 2, 4000, 1), layers=[(0, BACK, 0), (5120, FRONT, 0)])
    net.run()
    tags: dict[tuple[int, int], list[int]] = {}  # by source and transfer
    for one in contributions(net):
        tags.setdefault((one.source, one.header.transfer), []).append(one.header.tag)
    assert any(len(set(found)) > 1 for found in tags.values())  # else this tested nothing
    for found in tags.values():
        assert found == sorted(found)


def test_a_front_operation_overtakes_one_that_is_under_way() -> None:
    alone = slow()
    alone.submit_all(1, draw("float32", 2, 8_000, 1), traffic_class=FRONT)
    solo = time_of(alone, 1)
    net = slow()
    net.submit_all(1, draw("float32", 2, 200_000, 2), traffic_class=BACK)
    net.run(until=5e-3)
    net.submit_all(2, draw("float32", 2, 8_000, 1), traffic_class=FRONT)
    assert time_of(net, 2) < 1.2 * solo
    assert 1 not in net.done(0)
    net.run()
    assert 1 in net.done(0)


def test_a_class_that_has_sent_all_is_idle_while_others_go_on() -> None:
    """What arrives of it then says nothing of the path's rate."""
    net = slow()
    net.submit_all(1, draw("float32", 2, 200_000, 2), traffic_class=BACK)
    net.submit_all(2, draw("float32", 2, 8_000, 1), traffic_class=FRONT)
    time_of(net, 2)
    assert 1 not in net.done(0)
    for endpoint in net.endpoints:
        for flow in endpoint.flows.values():
            idle = [flow.paths.space(0, which).congestion.idle for which in (FRONT, BACK)]
            assert idle == [True, False]


def test_without_classes_it_waits_its_turn() -> None:
    """The test above proves something: in one class the second operation is late."""
    net = slow()
    net.submit_all(1, draw("float32", 2, 200_000, 2), traffic_class=BACK)
    net.run(until=5e-3)
    net.submit_all(2, draw("float32", 2, 8_000, 1), traffic_class=BACK)
    late = time_of(net, 2)
    alone = slow()
    alone.submit_all(1, draw("float32", 2, 8_000, 1), traffic_class=BACK)
    assert late > 3 * time_of(alone, 1)


def test_what_waits_behind_a_higher_class_is_not_lost() -> None:
    """A starved class is retransmitted neither by NACK nor by END: both wait behind its data."""
    net = slow()
    net.submit_all(1, draw("float32", 2, 40_000, 2), traffic_class=BACK)
    net.run(until=3e-3)
    net.submit_all(2, draw("float32", 2, 100_000, 1), traffic_class=FRONT)
    net.run()
    retransmitted = [net.done(rank)[1].stats.retransmitted for rank in range(2)]
    sent = [net.done(rank)[1].stats.sent for rank in range(2)]
    assert sum(retransmitted) < 0.05 * sum(sent)


# --- drop precedences -----------------------------------------------------------------------------


def uneven(net: SimNetwork, segments: int, seed: int) -> list[np.ndarray]:
    """A third of the segments carries next to nothing, a third little, a third much."""
    rng, per = np.random.default_rng(seed), net.segment_size // 4
    scale = rng.permutation(np.repeat([0.01, 0.1, 1.0], segments // 3))
    return [
        (rng.normal(size=(len(scale), per)) * scale[:, None]).astype(np.float32).reshape(-1)
        for _ in range(net.world_size)
    ]


def test_tags_follow_the_magnitude() -> None:
    net = SimNetwork(2, recorded=[], chunk_segments=48)
    parts = uneven(net, 96, 1)
    kept = [part.copy() for part in parts]
    net.submit_all(1, parts, max_loss=0.5, name="g")
    net.run()
    per, put_in = net.segment_size // 4, contributions(net)
    ranks = Counter(one.header.tag % DROP_PRECEDENCES for one in put_in)
    assert ranks == {0: 32, MEDIUM: 32, LIGHT: 32}
    norms: dict[tuple[int, int], list[float]] = {}  # by source and drop precedence
    for one in put_in:
        at = one.begin // 4
        found = norms.setdefault((one.source, one.header.tag % DROP_PRECEDENCES), [])
        found.append(float((kept[one.source][at : at + per] ** 2).sum()))
    for source in range(2):  # each measures its own contribution
        light, medium, heavy = (norms[source, rank] for rank in (LIGHT, MEDIUM, 0))
        assert max(light) <= min(medium) <= max(medium) <= min(heavy)


def test_a_queue_may_drop_as_many_as_may_stay_missing_and_as_many_more() -> None:
    net = SimNetwork(2, recorded=[], chunk_segments=48)
    net.submit_all(1, uneven(net, 96, 1), max_loss=0.1, name="g")
    net.run()
    ranks = Counter(one.header.tag % DROP_PRECEDENCES for one in contributions(net))
    assert ranks == {0: 80, MEDIUM: 8, LIGHT: 8}


def test_what_may_not_stay_missing_is_protected_however_light_it_is() -> None:
    net = SimNetwork(2, recorded=[])
    half, end = 48 * net.segment_size, 96 * net.segment_size
    by_class = [[0, FRONT, 0], [half, BACK, 500_000]]
    net.submit_all(1, uneven(net, 96, 1), max_loss=0.5, name="g", layers=by_class)
    net.submit_all(2, uneven(net, 96, 1), max_loss=0.5, name="h", exempt=[[half, end]])
    net.run()
    drops: dict[tuple[int, bool], set[bool]] = {}  # by operation and half of the tensor
    for one in contributions(net):
        place = one.header.operation, one.begin >= half
        drops.setdefault(place, set()).add(one.header.tag % DROP_PRECEDENCES > 0)
    assert drops == {
        (1, False): {False},
        (1, True): {False, True},
        (2, False): {False, True},
        (2, True): {False},
    }


def test_exact_operations_and_results_are_protected() -> None:
    net = SimNetwork(2, recorded=[])
    net.submit_all(1, uneven(net, 96, 1))
    net.submit_all(2, uneven(net, 96, 1), max_loss=0.1, name="g")
    net.run()
    protected = [one for one in sent(net) if one.result or one.header.operation == 1]
    assert {(one.header.operation, one.result) for one in protected} == {
        (1, False),
        (1, True),
        (2, True),
    }
    assert all(one.header.tag % DROP_PRECEDENCES == 0 for one in protected)


def test_retransmissions_are_protected() -> None:
    net = SimNetwork(2, SimLink(loss=0.1), recorded=[])
    net.submit_all(1, uneven(net, 960, 1), max_loss=0.01, name="g")
    net.run()
    retransmissions = [one for one in contributions(net) if one.header.round]
    assert retransmissions
    assert all(one.header.tag % DROP_PRECEDENCES == 0 for one in retransmissions)


def residuals(net: SimNetwork, part: np.ndarray) -> list[Hole]:
    """What all ranks keep of tensor "g"."""
    key = ("g", "float32", part.size)
    return [hole for accounts in net.accounts for hole in accounts.residuals.take(key)]


@pytest.mark.heavy
def test_little_energy_is_lost_when_the_network_drops_by_rank() -> None:
    lost = {True: 0.0, False: 0.0}
    for ranks, seed in product((True, False), range(1, 4)):
        net = slow(3, ranks=ranks, queue=60)
        parts = uneven(net, 1200, seed)
        before = [part.copy() for part in parts]
        net.submit_all(1, parts, max_loss=0.45, name="g")
        net.run()
        waived = sum(net.done(rank)[1].stats.waived for rank in range(3))
        held = [hole.values.astype(float) for hole in residuals(net, parts[0])]
        energy = sum(float((values**2).sum()) for values in held)
        total = sum(float((part.astype(float) ** 2).sum()) for part in before)
        assert waived
        lost[ranks] += energy / total / (waived / 2400)  # relative to the share of segments
    # the sender waives the lightest in both; `dlcpctl bench drop` measures the network alone
    assert lost[True] < lost[False] / 3


def test_bounds_hold_per_class() -> None:
    """The back layer may lose nothing, whatever the operation may."""
    net = SimNetwork(3, SimLink(loss=0.2), segment_size=64, chunk_segments=40)
    parts = draw("float32", 3, 6000, 1)
    half = 12_032  # bytes, a multiple of the segment size
    net.submit_all(1, parts, max_loss=0.3, name="g", layers=[(0, FRONT, 300_000), (half, BACK, 0)])
    net.run()
    held = residuals(net, parts[0])
    assert held
    for hole in held:
        assert hole.start + int(hole.segments[-1]) * hole.segment_size < half
    assert len({part.tobytes() for part in parts}) == 1
