"""Real daemons on an emulated fabric: routes are found and shared, a cut link is survived."""

import time
from collections import Counter
from typing import Any

import pytest

from dlcp_lab.scenarios.job import DLCPD, Job, JobPhase, Operation, on_fabric, reports, run
from dlcpd.cli.output import Output

pytestmark = pytest.mark.netns

SETTLE = 2.5  # seconds; three rounds of probes, six hops, a tenth of a second each
TWO_SPINES = {"hosts": 2, "leaves": 2, "spines": 2, "host_rate": "200mbit", "spine_rate": "80mbit"}


class Fabric:
    """What happened at the barriers of a job."""

    def __init__(self, *, cut: str = "") -> None:
        self.cut, self.before, self.after = cut, {}, {}  # type: str, dict[str, Any], dict[str, Any]
        self.reports: list[dict[str, Any]] = []
        self.hosts: Any = None

    def at(self, where: str, net: Any) -> None:
        """Notes the counters around the rounds; cuts a link before them."""
        if where == "work":
            time.sleep(SETTLE)
            if self.cut:
                net.cut(self.cut, silent=True)
            self.before = net.statistics()
        elif where == "end":
            self.after, self.reports = net.statistics(), reports(self.hosts)

    def sent(self, leaf: str) -> list[int]:
        """Bytes that a leaf sent to each spine."""
        return [
            way.sent_bytes - self.before[name].sent_bytes
            for name, way in self.after.items()
            if name.startswith(f"{leaf}:s")
        ]

    def counters(self) -> Counter[str]:
        """Of all engines."""
        total: Counter[str] = Counter()
        for report in self.reports:
            total.update(report["counters"])
        return total

    def peers(self) -> list[dict[str, Any]]:
        """Of all engines."""
        sessions = [s for report in self.reports for s in report["sessions"].values()]
        return [peer for session in sessions for peer in session["peers"]]

    def paths(self) -> list[dict[str, Any]]:
        """Of all engines."""
        return [path for peer in self.peers() for path in peer["paths"]]


def reduced(
    fabric: Fabric, plan: dict[str, Any], network: dict[str, Any], *, rounds: int = 6
) -> list[float]:
    """Seconds of a few rounds."""
    phase = JobPhase("work", (Operation(2 << 20),), rounds=rounds, warmup=1)
    with on_fabric(plan, network) as (net, hosts):
        fabric.hosts = hosts
        result = run(net, hosts, Job((phase,)), seed=1, output=Output(None), at=fabric.at)
    return result["work"][DLCPD].totals


def test_routes_are_found_and_links_carry_equal_shares() -> None:
    fabric = Fabric()
    reduced(fabric, TWO_SPINES, {"entropy": 8})
    assert {peer["routes"] for peer in fabric.peers()} == {2}
    assert not [n for n in fabric.counters() if n.startswith("send_")]  # ICMP costs nothing
    assert {path["hops"][1] for path in fabric.paths()} == {"10.77.255.1", "10.77.255.2"}
    for leaf in ("l0", "l1"):
        sent = fabric.sent(leaf)
        assert max(sent) < 1.4 * min(sent)  # few rounds: `dlcpctl bench spray` is the measure


def test_a_link_that_dies_silently_ends_no_operation() -> None:
    fabric = Fabric(cut="l0-s0")
    times = reduced(fabric, TWO_SPINES, {"entropy": 8})
    assert max(times) < 5
    assert fabric.counters()["path_down"] >= 1
    assert any(not path["up"] for path in fabric.paths())


def test_marks_of_a_queue_reach_the_sender() -> None:
    fabric = Fabric()
    plan = {"hosts": 3, "host_rate": "50mbit", "classes": True, "ecn_bytes": 10_000}
    reduced(fabric, plan, {}, rounds=1)
    assert fabric.counters()["ce"] > 0
    assert sum(path["classes"]["bulk"]["marked"] for path in fabric.paths()) > 0


def test_a_gray_link_raises_the_alarm_although_the_bound_hides_it() -> None:
    fabric = Fabric()
    phase = JobPhase("work", (Operation(8 << 20, bound=0.1),), rounds=3, warmup=0)
    plan = {"hosts": 2, "host_rate": "500mbit", "loss": 0.02}
    with on_fabric(plan, {}) as (net, hosts):
        fabric.hosts = hosts
        run(net, hosts, Job((phase,)), seed=1, output=Output(None), at=fabric.at)
        logs = [(host.folder / "dlcpd.log").read_text() for host in hosts.members]
    assert fabric.counters()["path_gray"] >= 1
    assert any(path["gray"] for path in fabric.paths())
    assert any("event=path_gray" in log for log in logs)
