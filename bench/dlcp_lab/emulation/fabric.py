"""A running fabric: hosts that run programs, links that can be impaired, counters.

with fabric(Plan(hosts=4, leaves=2, spines=2)) as net:
    server = net.run(1, ["iperf3", "-s", "-1"])
    net.cut("l0-s1", silent=True)
"""

import subprocess
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any, Final

from dlcp_lab.emulation import early_drop, namespaces, rules
from dlcp_lab.emulation.build import SEED, build, route_lines
from dlcp_lab.emulation.condition import Condition, LinkCut, initial
from dlcp_lab.emulation.counters import DirectionStatistics, statistics
from dlcp_lab.emulation.namespaces import command, inside
from dlcp_lab.emulation.plan import FabricError, Plan
from dlcp_lab.emulation.queues import queue_lines, rate_lines
from dlcp_lab.emulation.topology import Direction, chosen, host_address, switches
from dlcp_lab.emulation.traffic.background import Background, Flow, background

_DROPPERS: Final = {"bpf": "bpf queue count", "nft": "nft virtual queue"}
GRACE: Final = 2.0  # seconds between SIGTERM and SIGKILL at tear-down


class Fabric:
    """A running fabric. Made by `fabric`, or by `labs`; all methods raise FabricError."""

    def __init__(
        self, name: str, plan: Plan, conditions: Mapping[str, Condition] | None = None
    ) -> None:
        self.name = name
        self.plan = plan
        self.conditions = dict(conditions or initial(plan))  # by direction
        self._children: list[subprocess.Popen[Any]] = []

    def build(self) -> None:
        """Make it. After a failure `tear_down` removes the parts."""
        if not self.plan.early_drop:
            best = "bpf" if self.plan.ecn_bytes and early_drop.available() else "nft"
            self.plan = replace(self.plan, early_drop=best)
        build(self.name, self.plan, self.conditions)

    # Hosts

    @property
    def hosts(self) -> int:
        """Number of hosts."""
        return self.plan.hosts

    def address(self, host: int, rail: int = 0) -> str:
        """IPv4 address of a host's interface `eth<rail>`."""
        return host_address(self.plan, host, rail)

    def host_namespace(self, host: int) -> str:
        """Network namespace of a host."""
        host_address(self.plan, host)  # refuses an unknown one
        return self.namespace(f"h{host}")

    def namespace(self, node: str) -> str:
        """Network namespace of a node: `h0`, `l0`, `s0`."""
        return f"{self.name}-{node}"

    def run(self, host: int, argv: Sequence[str], **popen: Any) -> subprocess.Popen[Any]:
        """Start a program on a host. `tear_down` ends it if it still runs."""
        child = subprocess.Popen(inside(self.host_namespace(host), *argv), **popen)
        self._children.append(child)
        return child

    # Links

    @property
    def links(self) -> tuple[str, ...]:
        """Names of all links, such as `h0-l0` and `l0-s1`. One direction is `l0:s1`."""
        return tuple(dict.fromkeys(way.link for way in chosen(self.plan, "")))

    def statistics(self) -> dict[str, DirectionStatistics]:
        """Counters of every direction, by its name."""
        return statistics(self.name, self.plan)

    def lost_packets(self) -> int:
        """Packets that random loss has dropped so far, on all links."""
        return sum(way.lost_packets for way in self.statistics().values())

    def features(self) -> dict[str, str]:
        """The means by which this fabric queues, marks, drops early and hashes, by feature."""
        seeded = Path("/proc/sys/net/ipv4", SEED).exists()
        return {
            "queues": _queues(self.plan),
            "marks": "nft virtual queue" if self.plan.ecn_bytes else "none",
            "early drops": _DROPPERS[self.plan.early_drop] if self.plan.ecn_bytes else "none",
            "delays": "cables in user space" if any(d for _, d in self.plan.delays) else "none",
            "ecmp": f"seed {self.plan.seed}" if seeded else "random seed",
        }

    def lose(self, fraction: float, link: str = "", *, burst_length: float = 0.0) -> None:
        """Drop this fraction of packets at random on a link, a direction, or everywhere ("").

        With `burst_length`, in bursts of that many packets on average. Replaces an earlier loss.
        """
        if burst_length:
            self._change(link, loss=0.0, burst_loss=fraction, burst_length=burst_length)
        else:
            self._change(link, loss=fraction, burst_loss=0.0)

    def limit(self, link: str, rate: str) -> None:
        """Change the rate of a link, both ways, or of one direction (`l0:s1`)."""
        if self.plan.bare:
            raise FabricError(
                f"limit {link}: a bare fabric has no rates; configure its switches instead"
            )
        for way in self._change(link, rate=rate):
            namespace, device = self.namespace(way.source.node), way.source.device
            if way.from_host:  # it has no queue before its first limit
                quietly = ("tc", "-n", namespace, "qdisc", "delete", "dev", device, "root")
                subprocess.run(quietly, capture_output=True, check=False)
                lines = queue_lines(self.plan, device, rate)
            else:
                lines = rate_lines(self.plan, device, rate)
                if self.plan.ecn_bytes and self.plan.early_drop == "bpf":
                    lines = chain(lines, [early_drop.filter_line(self.plan, device, rate)])
            command("tc", "-n", namespace, "-batch", "-", stdin="\n".join(lines))

    def cut(self, link: str, *, silent: bool = False) -> None:
        """Take a link out of service.

        Silent: packets vanish and no route changes; a single direction can be cut. Else the link is
        down and all switches route around it.
        """
        [*_, way] = chosen(self.plan, link)  # raises for an unknown link
        if not silent and link != way.link:
            raise FabricError(f"{link!r}: a clean cut needs a whole link, such as {way.link}")
        self._set_cut(link, LinkCut.SILENT if silent else LinkCut.CLEAN)

    def restore(self, link: str = "") -> None:
        """Put a link, or all of them, back into service, with all routes over it."""
        self._set_cut(link, LinkCut.NO)

    def _set_cut(self, link: str, cut: LinkCut) -> None:
        before = self._down()
        for whole in before & {way.link for way in chosen(self.plan, link)}:
            self._change(whole, cut=LinkCut.NO)  # a link comes up in both directions
        self._change(link, cut=cut)
        after = self._down()
        for name in before ^ after:
            self._set_state(name, "down" if name in after else "up")
        if before != after:
            self._set_routes(after)

    def _down(self) -> set[str]:
        """Links that are out of service by a clean cut."""
        ways = chosen(self.plan, "")
        return {way.link for way in ways if self.conditions[way.name].cut is LinkCut.CLEAN}

    def _change(self, link: str, **changes: Any) -> list[Direction]:
        """Replace the conditions of the directions of `link`, and their rules."""
        ways = chosen(self.plan, link)
        changed = {way.name: replace(self.conditions[way.name], **changes) for way in ways}
        for way in ways:
            text = rules.chain(self.plan, way, changed[way.name])
            command(*inside(self.namespace(way.switch_port.node), "nft", "-f", "-"), stdin=text)
        self.conditions |= changed
        return ways

    def _set_state(self, link: str, state: str) -> None:
        for way in chosen(self.plan, link):
            port = way.switch_port
            command("ip", "-n", self.namespace(port.node), "link", "set", port.device, state)

    def _set_routes(self, down: Collection[str]) -> None:
        for switch in switches(self.plan):
            lines = "\n".join(route_lines(self.plan, switch, down))
            if lines:
                command("ip", "-n", self.namespace(switch), "-batch", "-", stdin=lines)

    # Programs

    def background(self, *flows: Flow) -> AbstractContextManager[Background]:
        """Background traffic while the block runs; each flow ends after its `seconds`."""
        return background(self, flows)

    @staticmethod
    def end(children: Sequence[subprocess.Popen[Any]]) -> None:
        """Send SIGTERM, so that programs can flush their output; after GRACE seconds SIGKILL."""
        for child in children:
            child.terminate()
        for child in children:
            try:
                child.wait(GRACE)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()

    def tear_down(self) -> None:
        """End all programs of the hosts and remove every trace."""
        self.end(self._children)
        namespaces.remove(namespaces.namespaces(self.name))


def _queues(plan: Plan) -> str:
    if plan.bare:
        return "none"
    return "htb, strict by class" if plan.classes else "htb, one fifo"


@contextmanager
def fabric(plan: Plan | None = None) -> Iterator[Fabric]:
    """A fabric of this process, removed at the end and after a failure.

    Fabrics of dead processes are removed first. Raises: FabricError.
    """
    namespaces.check_available()
    namespaces.cleanup()
    made = Fabric(namespaces.own_name(), plan or Plan())
    try:
        made.build()
        yield made
    finally:
        made.tear_down()
