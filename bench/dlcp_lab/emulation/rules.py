"""Faults and congestion of a switch before its queues, as nft rules. Pure.

Every direction has one chain, which is replaced as a whole while traffic flows. Its counters are
separate objects and keep their values. The chain applies to IP only: dropped ARP would reveal a
silent cut.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from dlcp_lab.emulation.condition import Condition, LinkCut
from dlcp_lab.emulation.congestion import IDLE, chance, congestion_rules, virtual_queues
from dlcp_lab.emulation.plan import Plan
from dlcp_lab.emulation.queues import queues
from dlcp_lab.emulation.topology import Direction

TABLE: Final = "netdev fabric"
MAX_PORTS: Final = 1024  # per switch: 250 hosts and 256 spines fit


def chain_name(way: Direction) -> str:
    """Name of a direction's chain, and the suffix of its counters."""
    return f"{'in' if way.from_host else 'out'}_{way.switch_port.device}"


def table(plan: Plan, ways: Sequence[Direction]) -> str:
    """The table of one switch, with the sets and counters of these directions' chains."""
    held = f"typeof meta oif; size {MAX_PORTS}; flags dynamic"
    sets = [f"set bursting_{side} {{ {held}; }}" for side in ("in", "out")]
    sets += [
        f"set {virtual.name} {{ {held}, timeout; timeout {IDLE}; }}"
        for virtual in virtual_queues(plan)
    ]
    counters = [f"counter {name} {{ }}" for way in ways for name in _counters(plan, way)]
    return _block(f"table {TABLE}", [*sets, *counters])


def chain(plan: Plan, way: Direction, condition: Condition) -> str:
    """One direction's chain; replaces an earlier one."""
    name, port = chain_name(way), way.switch_port
    hook = "ingress" if way.from_host else "egress"
    rules = [
        f'type filter hook {hook} device "{port.device}" priority 0; policy accept;',
        "meta protocol != ip accept",
        *_faults(way, condition),
        *(() if way.from_host else congestion_rules(plan, name, condition.rate)),
        f"counter name passed_{name}",
    ]
    # `flush` needs an existing chain.
    there = _block(f"table {TABLE}", [_block(f"chain {name}", rules[:1])])
    made = _block(f"table {TABLE}", [_block(f"chain {name}", rules)])
    return f"{there}flush chain {TABLE} {name}\n{made}"


def _counters(plan: Plan, way: Direction) -> Iterator[str]:
    name = chain_name(way)
    yield from (f"{kind}_{name}" for kind in ("passed", "lost", "cut"))
    for queue in queues(plan):
        yield from (f"{kind}_{name}_{queue.name}" for kind in ("early", "marked"))


def _faults(way: Direction, condition: Condition) -> Iterator[str]:
    name = chain_name(way)
    if condition.cut is LinkCut.SILENT:
        yield f"counter name cut_{name} drop"
    if condition.loss:
        yield f"{chance(condition.loss)} counter name lost_{name} drop"
    if condition.burst_loss:
        yield from _bursts(way, condition.burst_loss, 1.0 / condition.burst_length)


def _bursts(way: Direction, fraction: float, ends: float) -> Iterator[str]:
    """Gilbert's channel, one step per packet: the port is in the set during a burst.

    A burst ends with probability `ends` before each packet, so it drops 1/ends packets on average.
    Bursts begin so often that `fraction` of all packets is dropped.
    """
    name, port = chain_name(way), f"meta {'iif' if way.from_host else 'oif'}"
    bad = f"@bursting_{name.partition('_')[0]}"
    begins = fraction * ends / (1.0 - fraction + fraction * ends)
    lost = f"counter name lost_{name} drop"
    yield f"{port} {bad} {chance(1.0 - ends)} {lost}"
    yield f"{port} {bad} delete {bad} {{ {port} }}"
    yield f"{chance(begins)} add {bad} {{ {port} }} {lost}"


def _block(head: str, lines: Sequence[str]) -> str:
    return head + " {\n" + "".join(f"{line}\n" for line in lines if line) + "}\n"
