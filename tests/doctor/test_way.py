"""Judgements of a path: what probes may find, and what is said of it."""

import dataclasses
from typing import Any

import pytest

from dlcpd.doctor import way as judged
from dlcpd.doctor.questions import Mark, Mtu, PortLosses
from dlcpd.doctor.rows import Row, Verdict
from dlcpd.doctor.way import Way

AF41, CS6, LIGHT = 34 << 2 | 2, 48 << 2 | 2, 38 << 2  # ECT(0), ECT(0), Not-ECT
CE = 3
MARKS = [Mark(tos, tos, tos) for tos in (AF41, CS6, LIGHT)]
WAY = Way(
    "beta",
    0,
    "10.0.0.1",
    ("10.0.0.2", 7001),
    interface_mtu=1500,
    entropy=1,
    alarm_loss=0.005,
    routes=[("r",)] * 4,
    marks=MARKS,
    losses=[PortLosses(128, 0, 0, 0.0002)] * 4,
    mtu=Mtu(1500, back=True),
)


def row(what: str, **changes: Any) -> Row:
    rows = judged.judge(dataclasses.replace(WAY, **changes))
    return {one.check.partition(": ")[2]: one for one in rows}[what]


def test_a_good_way_passes_everywhere() -> None:
    rows = list(judged.judge(WAY))
    assert [one.verdict for one in rows] == [Verdict.PASS] * 4
    assert rows[0].check == "beta, path 0: MTU"


@pytest.mark.parametrize(
    ("mtu", "interface", "verdict", "says"),
    [
        (Mtu(1500, back=True), 1500, Verdict.PASS, "1500 B pass there and back"),
        (Mtu(9000, back=True), 65536, Verdict.PASS, "9000 B pass"),
        (Mtu(1400, back=True), 1500, Verdict.WARN, "1400 B pass, and this host's interface has"),
        (Mtu(1400, back=True), 0, Verdict.PASS, "1400 B pass"),
        (Mtu(1500, back=False), 1500, Verdict.WARN, "no answer of that size"),
        (Mtu(0, back=False), 1500, Verdict.FAIL, "datagrams of 1280 B do not reach"),
    ],
    ids=str,
)
def test_mtu(mtu: Mtu, interface: int, verdict: Verdict, says: str) -> None:
    found = row("MTU", mtu=mtu, interface_mtu=interface)
    assert found.verdict is verdict and says in found.found


@pytest.mark.parametrize(
    ("marks", "verdict", "says"),
    [
        ([Mark(AF41, 2, AF41), Mark(CS6, 2, CS6)], Verdict.WARN,
         "DSCP is cleared on the way there: later"),
        ([Mark(AF41, AF41, 2), Mark(CS6, CS6, CS6)], Verdict.WARN,
         "DSCP 34 is cleared on the way back"),
        ([Mark(AF41, CS6, AF41)], Verdict.WARN, "DSCP is changed on the way there: 34 to 48"),
        ([Mark(AF41, AF41 & ~3, AF41)], Verdict.WARN, "ECN is cleared on the way there"),
        ([Mark(AF41, AF41 | CE, AF41 | CE)], Verdict.PASS, "1 values arrive"),
        ([Mark(LIGHT, LIGHT | CE, LIGHT)], Verdict.WARN, "ECN is changed on the way there: 0 to 3"),
        ([Mark(CS6, None, None), Mark(AF41, AF41, AF41)], Verdict.FAIL, "DSCP 48: a device"),
    ],
    ids=str,
)  # fmt: skip
def test_marks(marks: list[Mark], verdict: Verdict, says: str) -> None:
    found = row("DSCP, ECN", marks=marks)
    assert found.verdict is verdict and says in found.found


@pytest.mark.parametrize(
    ("lost", "verdict", "says"),
    [
        ([0, 0, 0, 2], Verdict.PASS, "the quickest round trip took 200 us"),
        ([0, 0, 0, 40], Verdict.WARN, "all of them from 1 of 4 source ports"),
        ([3, 2, 3, 4], Verdict.WARN, "12 of 512"),
        ([60, 60, 60, 60], Verdict.FAIL, "240 of 512"),
    ],
    ids=str,
)
def test_losses(lost: list[int], verdict: Verdict, says: str) -> None:
    found = row("losses", losses=[PortLosses(128, count, 0, 0.0002) for count in lost])
    assert found.verdict is verdict and says in found.found
    assert verdict is not Verdict.PASS or "all of them" not in found.found


def test_more_ways_than_are_used_are_named() -> None:
    routes = [("l", "s0"), ("l", "s1"), ("l", "s0"), ("l", "s1")]
    found = row("routes", routes=routes)
    assert found.verdict is Verdict.WARN
    assert "2 routes (l s0; l s1)" in found.found
    assert "entropy = 4" in found.fix
    assert row("routes", routes=routes, entropy=8).verdict is Verdict.PASS
    assert "take one route (r)" in row("routes").found
    assert "no router between" in row("routes", routes=[()] * 4).found
