"""Counters of the directions of a fabric, read from tc and nft: sent, dropped, marked, lost."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from dlcp_lab.emulation.build import by_switch
from dlcp_lab.emulation.early_drop import drop_class
from dlcp_lab.emulation.namespaces import command, inside
from dlcp_lab.emulation.plan import Plan
from dlcp_lab.emulation.queues import Queue, queues
from dlcp_lab.emulation.rules import chain_name
from dlcp_lab.emulation.topology import Direction


@dataclass(frozen=True, slots=True)
class QueueStatistics:
    """One queue of a switch output."""

    sent_packets: int
    sent_bytes: int
    dropped_packets: int  # the buffer was full
    early_packets: int  # dropped early, by drop precedence
    marked_packets: int  # CE was set


@dataclass(frozen=True, slots=True)
class DirectionStatistics:
    """One direction of a link: the sums of its queues, and the packets that faults dropped."""

    sent_packets: int
    sent_bytes: int
    dropped_packets: int
    early_packets: int
    marked_packets: int
    lost_packets: int  # by random loss, single or in bursts
    cut_packets: int  # by a silent cut
    queues: Mapping[str, QueueStatistics]  # by class; empty if a host sends, or if `bare`


def statistics(name: str, plan: Plan) -> dict[str, DirectionStatistics]:
    """Counters of every direction of the fabric with this name, by the direction's name.

    Raises: FabricError.
    """
    return {
        way.name: found
        for switch, ways in by_switch(plan).items()
        for way, found in _read(f"{name}-{switch}", plan, ways)
    }


def _read(
    namespace: str, plan: Plan, ways: Sequence[Direction]
) -> list[tuple[Direction, DirectionStatistics]]:
    shown = json.loads(command("tc", "-n", namespace, "-s", "-j", "qdisc", "show"))
    fifos = {(row["dev"], row["parent"]): row for row in shown if row["kind"] == "bfifo"}
    listed = json.loads(command(*inside(namespace, "nft", "-j", "list", "counters")))["nftables"]
    counters = {row["counter"]["name"]: row["counter"] for row in listed if "counter" in row}
    return [(way, _direction(way, queues(plan), fifos, counters)) for way in ways]


def _direction(
    way: Direction, made: Sequence[Queue], fifos: Mapping[Any, Any], counters: Mapping[str, Any]
) -> DirectionStatistics:
    name = chain_name(way)
    lost, cut = (counters[f"{kind}_{name}"]["packets"] for kind in ("lost", "cut"))
    if way.from_host or not made:
        passed = counters[f"passed_{name}"]
        return DirectionStatistics(passed["packets"], passed["bytes"], 0, 0, 0, lost, cut, {})
    each = {
        queue.name: _queue(
            fifos[way.source.device, queue.classid],
            fifos.get((way.source.device, drop_class(number))),
            f"{name}_{queue.name}",
            counters,
        )
        for number, queue in enumerate(made)
    }
    columns = zip(*(astuple(queue) for queue in each.values()), strict=True)
    sent, size, dropped, early, marked = map(sum, columns)
    return DirectionStatistics(sent, size, dropped, early, marked, lost, cut, each)


def _queue(
    fifo: Mapping[str, Any],
    early: Mapping[str, Any] | None,
    name: str,
    counters: Mapping[str, Any],
) -> QueueStatistics:
    return QueueStatistics(
        fifo["packets"],
        fifo["bytes"],
        fifo["drops"],
        early["drops"] if early else counters[f"early_{name}"]["packets"],
        counters[f"marked_{name}"]["packets"],
    )
