"""The Linux platform against the kernel: real tc, nft and sysctl in a namespace."""

import subprocess
from collections.abc import Iterator
from itertools import count
from os import getpid

import pytest

from switchcfg.errors import Refused
from switchcfg.intent.intent import parse
from switchcfg.plan.plan import Plan, plan, removal, reverse
from switchcfg.plan.state import State, difference
from switchcfg.platforms.linux.platform import Linux
from tests.switchcfg.intents import EXAMPLES, NAME

pytestmark = pytest.mark.netns
LINUX = Linux()
_numbers = count()


class Switch:
    """A namespace with the ports that the examples name."""

    def __init__(self) -> None:
        self.name = f"switchcfg-{getpid()}-{next(_numbers)}"
        subprocess.run(("ip", "netns", "add", self.name), check=True)
        for port in ("swp1", "swp2"):
            veth = ("link", "add", port, "type", "veth", "peer", "name", f"{port}-far")
            subprocess.run(("ip", "-n", self.name, *veth), check=True)
            subprocess.run(("ip", "-n", self.name, "link", "set", port, "up"), check=True)

    def do(self, script: str) -> str:
        shell = ("ip", "netns", "exec", self.name, "sh", "-eu")
        return subprocess.run(
            shell, input=script, check=True, capture_output=True, text=True
        ).stdout

    def end(self) -> None:
        subprocess.run(("ip", "netns", "delete", self.name), check=True)


@pytest.fixture
def switch() -> Iterator[Switch]:
    made = Switch()
    yield made
    made.end()


def present(switch: Switch, example: str) -> State:
    intent = parse(EXAMPLES[example], NAME)
    return LINUX.read(switch.do(LINUX.shell(intent, intent.device("leaf-linux")).snapshot))


def planned(switch: Switch, example: str) -> Plan:
    intent = parse(EXAMPLES[example], NAME)
    return plan(intent, intent.device("leaf-linux"), LINUX, present(switch, example))


def bring(switch: Switch, what: Plan) -> None:
    for step in what.steps:
        switch.do(step.payload)


ALL = [name for name, text in EXAMPLES.items() if "leaf-linux" in text]


@pytest.mark.parametrize("example", ALL)
def test_the_kernel_takes_it_and_a_second_plan_is_empty(switch: Switch, example: str) -> None:
    bring(switch, planned(switch, example))
    assert not planned(switch, example).changes


def test_from_each_example_to_the_next_and_back_again(switch: Switch) -> None:
    first, *others = ALL
    bring(switch, planned(switch, first))
    for example in others:
        if parse(EXAMPLES[example], NAME).prefix != parse(EXAMPLES[first], NAME).prefix:
            with pytest.raises(Refused, match=r"unread: swp\d+: .netdev DLCP: "):
                planned(switch, example)  # the rules of the other prefix still change packets
            continue
        before = present(switch, example)
        there = planned(switch, example)
        bring(switch, there)
        assert not planned(switch, example).changes
        intent = parse(EXAMPLES[example], NAME)
        device = intent.device("leaf-linux")
        bring(switch, reverse(intent, there, device, LINUX, present(switch, example)))
        assert present(switch, example) == before


def test_what_is_removed_leaves_the_kernels_own(switch: Switch) -> None:
    intent = parse(EXAMPLES["no_ecn"], NAME)
    device = intent.device("leaf-linux")
    before = present(switch, "no_ecn")
    bring(switch, planned(switch, "no_ecn"))
    bring(switch, removal(intent, device, LINUX, present(switch, "no_ecn")))
    left = difference(before, present(switch, "no_ecn"), lambda *_: True)
    assert [change.place.kind for change in left] == ["sysctl"]


def test_the_script_that_render_prints_runs(switch: Switch) -> None:
    intent = parse(EXAMPLES["two_drop_precedences"], NAME)
    device = intent.device("leaf-linux")
    switch.do(LINUX.write(LINUX.render(intent, device).state))
    assert not planned(switch, "two_drop_precedences").changes


def test_rules_and_queues_above_a_port_are_found(switch: Switch) -> None:
    """The kernel names the devices above a device: a bridge of the port, and a MACVLAN of that."""
    switch.do(
        "ip link add br0 type bridge; ip link set swp1 master br0\n"
        "ip link add mac0 link br0 type macvlan\n"
    )
    assert planned(switch, ALL[0]).changes
    switch.do(
        "nft add table netdev foreign\n"
        "nft add chain netdev foreign c '{ type filter hook ingress device br0 priority 0; }'\n"
        "nft add rule netdev foreign c ip dscp set cs1\n"
    )
    with pytest.raises(Refused, match='unread: swp1: "netdev foreign: ip dscp set 0x08": changes'):
        planned(switch, ALL[0])
    switch.do(
        "nft delete table netdev foreign\n"
        "tc qdisc add dev mac0 root tbf rate 1mbit burst 10k latency 5ms\n"
    )
    with pytest.raises(Refused, match=r'unread: swp1: "mac0: qdisc tbf \S+ root": packets queue'):
        planned(switch, ALL[0])
