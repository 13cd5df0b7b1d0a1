"""Judges the results of probes of one path to a peer."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from dlcpd.contract.traffic import Ecn
from dlcpd.core.wire.sizes import LEAST_MTU
from dlcpd.doctor import tos
from dlcpd.doctor.datagrams import MOST
from dlcpd.doctor.questions import Mark, Mtu, PortLosses, ways
from dlcpd.doctor.rows import Row, fail, good, warn

LARGEST: Final = MOST + 28  # bytes of a packet that is tried, with the headers of IPv4 and UDP
HEAVY_LOSS: Final = 0.15  # fraction that slows a training down at any bound (docs/network.md)
Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Way:
    """The results of probes from a local address to a data port of the peer."""

    peer: str
    path: int
    local: str
    remote: Address
    interface_mtu: int  # 0: not known
    entropy: int
    alarm_loss: float  # fraction
    routes: Sequence[tuple[str, ...]]  # of some source ports
    marks: Sequence[Mark]
    losses: Sequence[PortLosses] = field(default=())
    mtu: Mtu = field(default=Mtu(0, back=False))


def judge(way: Way) -> Iterator[Row]:
    """Four rows for a path whose peer answers."""
    name = f"{way.peer}, path {way.path}"
    yield judge_mtu(f"{name}: MTU", way)
    yield judge_marks(f"{name}: DSCP, ECN", way.marks)
    yield judge_losses(f"{name}: losses", way)
    yield judge_routes(f"{name}: routes", way)


def judge_mtu(check: str, way: Way) -> Row:
    """The row of the MTU, from probes with DF set."""
    there, mine = way.mtu.there, min(way.interface_mtu, LARGEST)
    if not there:
        return fail(
            check,
            f"datagrams of {LEAST_MTU} B do not reach {way.remote[0]}, and small datagrams do: "
            "all data would be sent in pieces",
            "raise the MTU of the link or tunnel between, or let IP fragments and ICMP through",
        )
    if not way.mtu.back:
        return warn(
            check,
            f"{there} B pass to {way.remote[0]}, and no answer of that size comes back",
            f"run doctor on {way.peer} for the other direction; give both hosts and all links "
            f"one MTU",
        )
    if mine and there < mine:
        return warn(
            check,
            f"{there} B pass, and this host's interface has {mine}: a link or a tunnel between "
            "has a smaller MTU (dlcpd adapts to it, other programs may not)",
            f"the MTU {there} for both hosts' interfaces, or {mine} for every link between",
        )
    return good(check, f"{there} B pass there and back")


def judge_marks(check: str, marks: Sequence[Mark]) -> Row:
    """Without marks, datagrams arrive, but switches ignore their class."""
    silent = [mark.sent for mark in marks if mark.there is None]
    if silent:
        return fail(
            check,
            f"no answer to datagrams with DSCP {_points(silent)}: a device on the way drops them",
            "let those DSCP through (rules of firewalls, policers of switches), or [network] "
            'drop_precedence = "none"',
        )
    problems = [
        *_changed("DSCP", [(tos.dscp(m.sent), tos.dscp(m.there or 0)) for m in marks], "there"),
        *_changed("DSCP", [(tos.dscp(m.sent), tos.dscp(m.back or 0)) for m in marks], "back"),
        *_changed("ECN", [(tos.ecn(m.sent), _unmarked(m.sent, m.there)) for m in marks], "there"),
        *_changed("ECN", [(tos.ecn(m.sent), _unmarked(m.sent, m.back)) for m in marks], "back"),
    ]
    if not problems:
        return good(check, f"{len(marks)} values arrive as they were sent, there and back")
    return warn(
        check,
        f"{'; '.join(problems)}: later switches cannot tell classes and drop precedences",
        "trust DSCP and leave ECN alone at every port between (switchcfg render), and look for "
        "rules that set them (nft list ruleset, tc filter); until then dlcpd works without "
        "priorities",
    )


def _unmarked(sent: int, arrived: int | None) -> int:
    """ECN of an arrival; CE counts as the ECT that was sent: a switch may mark."""
    value = tos.ecn(arrived or 0)
    return tos.ecn(sent) if value == Ecn.CE and tos.ecn(sent) != Ecn.NOT_ECT else value


def _changed(what: str, pairs: Sequence[tuple[int, int]], way: str) -> list[str]:
    changed = sorted({(sent, got) for sent, got in pairs if sent != got})
    if not changed:
        return []
    if {got for _, got in changed} == {0}:
        points = sorted({sent for sent, _ in changed})
        whole = len(points) == len({sent for sent, _ in pairs if sent})
        which = "" if whole else " " + ",".join(map(str, points))
        return [f"{what}{which} is cleared on the way {way}"]
    said = ", ".join(f"{sent} to {got}" for sent, got in changed)
    return [f"{what} is changed on the way {way}: {said}"]


def _points(values: Sequence[int]) -> str:
    return ", ".join(sorted({str(tos.dscp(value)) for value in values}))


def judge_losses(check: str, way: Way) -> Row:
    """Few datagrams prove little: up to the alarm's fraction there is no warning."""
    sent = sum(port.sent for port in way.losses)
    lost = sum(port.lost for port in way.losses)
    late = sum(port.reordered for port in way.losses)
    quickest = min((port.rtt for port in way.losses if port.rtt is not None), default=0.0)
    said = (
        f"{lost} of {sent} datagrams lost there or back, {late} overtaken; the quickest round "
        f"trip took {quickest * 1e6:.0f} us"
    )
    fraction = lost / sent if sent else 0.0
    if fraction <= way.alarm_loss:
        return good(check, said)
    bad = [number for number, port in enumerate(way.losses) if port.lost]
    where = (
        f", all of them from {len(bad)} of {len(way.losses)} source ports: one link of several"
        if len(bad) < len(way.losses)
        else ""
    )
    verdict = fail if fraction > HEAVY_LOSS else warn
    return verdict(
        check,
        said + where,
        "look for errors and drops on the way: ethtool -S and ip -s link here and on the peer, "
        "counters of the switch ports; ask again while nothing else is sent",
    )


def judge_routes(check: str, way: Way) -> Row:
    """The number of distinct routes, as far as routers answer."""
    reached = [route for route in way.routes if route]
    if not reached:
        direct = "no router between, or none that answers"
        return good(check, f"{direct}: every source port counts as a route")
    found, ports = ways(reached), len(way.routes)
    via = "; ".join(" ".join(route) for route in found)
    if len(found) > 1 and way.entropy == 1:
        return warn(
            check,
            f"{ports} source ports take {len(found)} routes ({via}), and data would use one of "
            "them",
            f"[network] entropy = {max(2 * len(found), ports)}, on all hosts",
        )
    count = f"{len(found)} routes" if len(found) > 1 else "one route"
    return good(check, f"{ports} source ports take {count} ({via})")
