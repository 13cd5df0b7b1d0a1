import math
from dataclasses import replace

import pytest

from dlcp_lab.simulation.egress import Wire
from dlcp_lab.simulation.fabric import LeafSpine, Spines, star
from dlcp_lab.simulation.switch import SwitchRules
from dlcpd.contract.traffic import DROP_PRECEDENCES
from tests.simulation.trains import SIZE, Ports, train

RATE = 8e6  # bits per second: a datagram takes a millisecond
EACH = SIZE * 8 / RATE
FAST = 1e12
PLENTY = SwitchRules(port_buffer=1 << 30)


def incast(rules: SwitchRules, hosts: int = 3, loss: float = 0.0) -> LeafSpine:
    """Hosts whose own wires are as good as infinitely fast."""
    return LeafSpine(hosts, Wire(FAST, 0.0), Wire(RATE, 0.0, loss), rules=rules)


@pytest.mark.parametrize("most", [1, 5])
def test_a_switch_stores_each_datagram_and_forwards_it(most: int) -> None:
    ports = Ports(star(2, RATE, 0.4))
    for _ in range(10 // most):
        ports.send(train(0, 1, most))
    ports.run()
    at, last = ports.arrived[-1]
    assert at == pytest.approx(11 * EACH + 0.2)  # of the second wire, only the last datagram
    assert last.arrivals()[-1] == pytest.approx(at)
    assert ports.arrived[0][1].arrivals()[0] == pytest.approx(2 * EACH + 0.2)


def test_a_slow_wire_does_not_hold_a_faster_one() -> None:
    """Two slow hosts share a wire that carries both, though a train arrives slowly."""
    plan = LeafSpine(3, Wire(RATE, 0.0), Wire(2 * RATE, 0.0), rules=PLENTY)
    ports = Ports(plan)
    for _ in range(10):
        ports.send(train(0, 2, 8))
        ports.send(train(1, 2, 8))
    ports.run()
    assert ports.datagrams == 160
    assert ports.arrived[-1][0] == pytest.approx(80 * EACH, rel=0.06)  # and half a train


def test_the_most_urgent_class_goes_first() -> None:
    ports = Ports(incast(replace(PLENTY, classes=True)))
    for _ in range(10):
        ports.send(train(0, 2, 1, tag=4 * DROP_PRECEDENCES))
    ports.send(train(1, 2, 1, tag=1 * DROP_PRECEDENCES), at=2.5 * EACH)
    ports.run()
    order = [each.traffic_class for _, each in ports.arrived]
    assert order == [4, 4, 4, 1, 4, 4, 4, 4, 4, 4, 4]
    ports = Ports(incast(PLENTY))
    for tag in (16, 16, 4):
        ports.send(train(0, 2, 1, tag=tag))
    ports.run()
    assert [each.traffic_class for _, each in ports.arrived] == [4, 4, 1]  # one queue


def test_a_full_queue_drops_the_unimportant_first() -> None:
    ports = Ports(incast(SwitchRules(port_buffer=40 * SIZE, precedences=True)))
    for precedence in (0, 1, 2):
        ports.send(train(0, 2, 100, tag=precedence))
    ports.run()
    dropped = ports.fabric.ports[">h2"].dropped
    assert dropped == {0: pytest.approx(60, abs=2), 1: 100, 2: 100}
    ports = Ports(incast(SwitchRules(port_buffer=40 * SIZE, precedences=True)))
    ports.send(train(0, 2, 100, tag=2))
    ports.run()
    assert ports.fabric.ports[">h2"].dropped[2] == pytest.approx(80, abs=2)


def test_a_long_queue_is_marked_but_not_what_is_not_ecn_capable() -> None:
    rules = SwitchRules(port_buffer=1 << 30, mark=10 * SIZE)
    ports = Ports(incast(rules))
    ports.send(train(0, 2, 30))
    ports.send(train(0, 2, 30, tag=2))
    ports.run()
    marks = [each.marked for _, each in ports.arrived]
    assert marks[0] is not None and marks[0].sum() == pytest.approx(20, abs=1) and marks[0][-1]
    assert marks[1] is None
    assert ports.fabric.ports[">h2"].marked == marks[0].sum()


def test_a_trimmed_datagram_arrives_as_its_header_ahead_of_the_data() -> None:
    ports = Ports(incast(SwitchRules(port_buffer=20 * SIZE, trim=True)))
    for _ in range(5):
        ports.send(train(0, 2, 8))
    ports.run()
    headers = [(at, each) for at, each in ports.arrived if each.trimmed]
    assert sum(each.count for _, each in headers) == ports.fabric.ports[">h2"].trimmed > 9
    assert all(each.rows.shape[1] == 40 for _, each in headers)
    assert ports.datagrams == 40 and ports.fabric.dropped == ports.fabric.ports[">h2"].trimmed
    assert headers[0][0] < max(at for at, each in ports.arrived if not each.trimmed)


def test_ports_share_the_memory_of_their_switch() -> None:
    rules = SwitchRules(port_buffer=1 << 30, shared_buffer=100 * SIZE, alpha=1.0)
    ports = Ports(incast(rules, hosts=4))
    for target in (1, 2, 3):
        for _ in range(200):
            ports.send(train(0, target, 1))
    ports.run()
    held = [ports.fabric.ports[f">h{target}"].most_held / SIZE for target in (1, 2, 3)]
    assert held[0] == pytest.approx(50, abs=2)  # as much as is left free
    assert held[1] == pytest.approx(25, abs=2) and held[2] == pytest.approx(12, abs=2)
    assert max(held) < math.inf


@pytest.mark.parametrize("choice", Spines)
def test_leaves_choose_among_spines(choice: Spines) -> None:
    plan = LeafSpine(
        4, Wire(RATE), Wire(RATE), 2, 4, Wire(RATE), PLENTY, choice, {"l0>s1": Wire(RATE / 2)}
    )
    ports = Ports(plan)
    for path in range(2):
        for _ in range(8):
            ports.send(train(0, 2, 1, path=path))
    ports.send(train(0, 1, 1))
    ports.run()
    assert ports.datagrams == 17 and ports.fabric.ports["h0>"].sent == 17
    used = {name: p.sent for name, p in ports.fabric.ports.items() if name.startswith("l0>")}
    assert sum(used.values()) == 16
    assert len(used) == 4 if choice is Spines.SPRAY else len(used) <= 2
    if choice is Spines.PATHS:
        assert used == {"l0>s0": 8, "l0>s1": 8}
        assert ports.fabric.ports["l0>s1"].wire.rate_bps == RATE / 2


def test_leaves_without_spines_are_refused() -> None:
    with pytest.raises(ValueError, match="spines"):
        LeafSpine(4, Wire(RATE), Wire(RATE), 2)


@pytest.mark.parametrize("buffer", [40, 400])
@pytest.mark.parametrize("senders", [2, 8])
def test_trains_find_the_room_that_single_datagrams_find(senders: int, buffer: int) -> None:
    """Incast from hosts with equal wires: as much is dropped, and it ends at the same time."""

    def result(most: int) -> tuple[int, float]:
        rules = SwitchRules(port_buffer=buffer * SIZE)
        plan = LeafSpine(senders + 1, Wire(RATE, 1e-3), Wire(RATE, 1e-3), rules=rules)
        ports = Ports(plan)
        for host in range(senders):
            for _ in range(512 // most):
                ports.send(train(host, senders, most), at=host * EACH / senders)
        ports.run()
        return ports.datagrams, ports.arrived[-1][0]

    one, many = result(1), result(16)
    assert one[0] < 512 * senders
    assert many[0] == pytest.approx(one[0], rel=0.02)
    assert many[1] == pytest.approx(one[1], rel=0.02)


def test_loss_is_of_the_wire_to_the_host() -> None:
    ports = Ports(incast(PLENTY, loss=0.1))
    for _ in range(100):
        ports.send(train(0, 2, 20))
    ports.run()
    assert ports.fabric.lost == 2000 - ports.datagrams == pytest.approx(200, rel=0.2)
