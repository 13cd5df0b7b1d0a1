"""What an overloaded port does: strict priority, early drops by drop precedence, marks."""

from dataclasses import replace

import pytest

from dlcp_lab.emulation import Fabric, Plan, early_drop, fabric
from dlcp_lab.emulation.traffic.background import Udp
from dlcpd.contract.traffic import Ecn, traffic_classes

pytestmark = pytest.mark.netns

# Deep enough that the bursts of a sender who was kept waiting for a CPU are no congestion.
LINK, BUFFER, MARKS = "20mbit", 300_000, 60_000
SECONDS = 1.5
RUNS = 3  # at most, where a stop of the machine spoils one
MARKED = int(Ecn.CE)
BULK = traffic_classes()["bulk"].dscp
FRONT = traffic_classes()["front"].dscp


def sent_through(net: Fabric, *streams: Udp) -> dict[tuple[int, int], int]:
    """Datagrams that arrived, by DSCP and ECN field."""
    counts: dict[tuple[int, int], int] = {}
    with net.background(*streams) as others:
        others.wait()
        for flow in others.flows:
            for tos, count in flow.final_datagrams().items():
                key = tos >> 2, tos & 3
                counts[key] = counts.get(key, 0) + count
    return counts


def of(counts: dict[tuple[int, int], int], dscp: int) -> int:
    return sum(count for (found, _), count in counts.items() if found == dscp)


needs_clang = pytest.mark.skipif(not early_drop.available(), reason="no clang for bpf")
DROPPERS = [pytest.param("bpf", marks=needs_clang), "nft"]


@pytest.mark.parametrize("dropper", DROPPERS)
def test_under_overload_the_droppable_go_first_and_what_may_be_is_marked(dropper: str) -> None:
    plan = Plan(host_rate=LINK, buffer_bytes=BUFFER, ecn_bytes=MARKS, early_drop=dropper)
    with fabric(plan) as net:
        stream = Udp(0, 1, "40mbit", dscp=BULK, ecn=Ecn.ECT0, seconds=SECONDS)
        counts = sent_through(net, stream)
        port = net.statistics()["l0:h1"]
    first, middle, last = (of(counts, dscp) for dscp in BULK)
    assert first > 1.5 * middle
    assert middle > 4 * last
    assert counts[BULK[0], MARKED] > first / 2
    assert port.early_packets > port.dropped_packets
    assert port.marked_packets >= counts[BULK[0], MARKED]


@needs_clang
@pytest.mark.parametrize("classes", [False, True])
def test_bursts_of_protected_packets_do_not_reach_the_end_of_the_buffer(classes: bool) -> None:
    """Two senders, each with sixteen of one drop precedence in a row, as engines send."""
    blocks = tuple(dscp for dscp in BULK for _ in range(16))
    # Bulk, the last of the classes, has the smallest part: two blocks that meet must fit above the
    # thresholds, however the senders fall in step.
    buffer = BUFFER * (len(traffic_classes()) if classes else 1)
    plan = Plan(3, host_rate=LINK, buffer_bytes=buffer, ecn_bytes=MARKS, classes=classes)
    stream = Udp(0, 2, LINK, dscp=blocks, ecn=Ecn.ECT0, seconds=SECONDS)
    # None is dropped there on a machine that never stops. After a stop htb catches up less than
    # time went by, and the count runs ahead of the queue for a moment; not in every run. What
    # forgets (nft) loses 5 % and more each time.
    for _ in range(RUNS):
        with fabric(plan) as net:
            counts = sent_through(net, stream, replace(stream, source=1))
            port = net.statistics()["l0:h2"]
        first, middle, last = (of(counts, dscp) for dscp in BULK)
        early = port.dropped_packets < port.early_packets / 50
        if early and first > 1.5 * middle and middle > 4 * last:
            break
    assert port.dropped_packets < port.early_packets / 50
    assert first > 1.5 * middle
    assert middle > 4 * last


@needs_clang
def test_a_slower_link_drops_sooner() -> None:
    plan = Plan(host_rate="100mbit", buffer_bytes=BUFFER, ecn_bytes=MARKS)
    with fabric(plan) as net:
        stream = Udp(0, 1, "14mbit", dscp=(BULK[-1],), seconds=1.0)
        sent_through(net, stream)
        assert net.statistics()["l0:h1"].early_packets == 0
        net.limit("l0:h1", "10mbit")
        sent_through(net, stream)
        assert net.statistics()["l0:h1"].early_packets > 0


def test_what_is_not_capable_of_it_is_never_marked() -> None:
    with fabric(Plan(host_rate=LINK, buffer_bytes=BUFFER, ecn_bytes=MARKS)) as net:
        counts = sent_through(net, Udp(0, 1, "40mbit", dscp=(0, BULK[0]), seconds=SECONDS))
        assert {ecn for _, ecn in counts} == {Ecn.NOT_ECT}
        assert net.statistics()["l0:h1"].dropped_packets > 0
        assert net.statistics()["l0:h1"].early_packets == 0  # neither is droppable


@pytest.mark.parametrize("classes", [False, True])
def test_without_congestion_nothing_is_marked_or_dropped(classes: bool) -> None:
    plan = Plan(host_rate=LINK, buffer_bytes=BUFFER, ecn_bytes=MARKS, classes=classes)
    with fabric(plan) as net:
        stream = Udp(0, 1, "12mbit", dscp=(*FRONT, *BULK), ecn=Ecn.ECT0, seconds=1.0)
        counts = sent_through(net, stream)
        port = net.statistics()["l0:h1"]
    assert {ecn for _, ecn in counts} == {Ecn.ECT0}
    assert port.marked_packets == port.early_packets == port.dropped_packets == 0


def test_the_front_keeps_everything_while_bulk_starves() -> None:
    with fabric(Plan(host_rate=LINK, buffer_bytes=BUFFER, classes=True)) as net:
        counts = sent_through(
            net,
            Udp(0, 1, "18mbit", dscp=(BULK[0],), seconds=SECONDS),
            Udp(0, 1, "18mbit", dscp=(FRONT[0],), seconds=SECONDS),
        )
        queues = net.statistics()["l0:h1"].queues
    assert queues["front"].dropped_packets == 0
    assert queues["bulk"].dropped_packets > of(counts, BULK[0])
    assert of(counts, FRONT[0]) > 3 * of(counts, BULK[0])


def test_marks_come_from_what_a_class_waits_behind() -> None:
    """Bulk at a third of the link is marked because the front fills the rest."""
    with fabric(Plan(host_rate=LINK, buffer_bytes=BUFFER, classes=True, ecn_bytes=MARKS)) as net:
        counts = sent_through(
            net,
            Udp(0, 1, "15mbit", dscp=(FRONT[0],), ecn=Ecn.ECT0, seconds=SECONDS),
            Udp(0, 1, "7mbit", dscp=(BULK[0],), ecn=Ecn.ECT0, seconds=SECONDS),
        )
    assert counts.get((FRONT[0], MARKED), 0) == 0
    assert counts[BULK[0], MARKED] > 0


def test_a_slower_link_marks_sooner() -> None:
    with fabric(Plan(host_rate="100mbit", buffer_bytes=BUFFER, ecn_bytes=MARKS)) as net:
        stream = Udp(0, 1, "14mbit", dscp=(BULK[0],), ecn=Ecn.ECT0, seconds=1.0)
        assert set(sent_through(net, stream)) == {(BULK[0], Ecn.ECT0)}
        net.limit("l0:h1", "10mbit")
        assert (BULK[0], MARKED) in sent_through(net, stream)
