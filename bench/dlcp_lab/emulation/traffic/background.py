"""Background traffic: TCP flows, UDP streams and incasts, limited in time, with their goodput."""

import itertools
import json
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

from dlcp_lab.emulation.patience import patience
from dlcp_lab.emulation.plan import FabricError, bits_per_second
from dlcp_lab.emulation.scratch import scratch_folder
from dlcpd import starter

TCP: Final = "dlcp_lab.emulation.traffic.tcp"
UDP: Final = "dlcp_lab.emulation.traffic.udp"
FIRST_PORT: Final = 20_000  # not used by the measured programs
INTERVAL: Final = 0.25  # seconds between two lines of a receiver
READY_TIMEOUT: Final = 10.0  # seconds on an idle machine, where Python alone takes 0.1 s

_ports: Final = itertools.count(FIRST_PORT)


class FlowHosts(Protocol):
    """The hosts on which flows run; a `Fabric`."""

    def address(self, host: int, rail: int = 0) -> str: ...

    def run(self, host: int, argv: Sequence[str], **popen: Any) -> subprocess.Popen[Any]: ...

    def end(self, children: Sequence[subprocess.Popen[Any]]) -> None: ...


@dataclass(frozen=True, slots=True)
class Tcp:
    """TCP connections that are always full."""

    source: int
    target: int
    flows: int = 1
    congestion: str = "cubic"  # bbr, reno ...: what the kernel has
    seconds: float = 10.0

    def sender(self, address: str, port: int) -> list[str]:
        """Command line."""
        return [
            *starter.command(TCP),
            "send",
            address,
            str(port),
            "--flows",
            str(self.flows),
            "--congestion",
            self.congestion,
            "--seconds",
            str(self.seconds),
        ]

    def receiver(self, port: int) -> list[str]:
        """Command line."""
        return [*starter.command(TCP), "receive", str(port), "--interval", str(INTERVAL)]


@dataclass(frozen=True, slots=True)
class Udp:
    """Datagrams at a rate, for `on` of every `on + off` seconds; the DSCPs alternate."""

    source: int
    target: int
    rate: str = "10mbit"  # of payload, while on
    dscp: tuple[int, ...] = (0,)
    ecn: int = 0  # two bits: 0 Not-ECT, 2 ECT(0)
    payload: int = 1400  # bytes per datagram
    on: float = 1.0
    off: float = 0.0  # 0: constant
    seconds: float = 10.0

    def sender(self, address: str, port: int) -> list[str]:
        """Command line."""
        return [
            *starter.command(UDP),
            "send",
            address,
            str(port),
            "--rate",
            str(bits_per_second(self.rate)),
            "--payload",
            str(self.payload),
            "--on",
            str(self.on),
            "--off",
            str(self.off),
            "--seconds",
            str(self.seconds),
            "--tos",
            *(str(d << 2 | self.ecn) for d in self.dscp),
        ]

    def receiver(self, port: int) -> list[str]:
        """Command line."""
        return [*starter.command(UDP), "receive", str(port), "--interval", str(INTERVAL)]


Flow = Tcp | Udp


def incast(sources: Sequence[int], target: int, **stream: Any) -> tuple[Udp, ...]:
    """Bursts of many hosts towards one, at the same moments; `stream` are fields of `Udp`."""
    return tuple(Udp(source, target, **{"on": 0.02, "off": 0.18} | stream) for source in sources)


@dataclass(frozen=True, slots=True)
class Running:
    """One flow with its two processes."""

    flow: Flow
    sender: subprocess.Popen[Any]
    receiver: subprocess.Popen[Any]
    log: Path

    def lines(self) -> list[dict[str, Any]]:
        """Reports of the receiver so far."""
        whole = self.log.read_text().rpartition("\n")[0]
        return [json.loads(line) for line in whole.splitlines()]

    def goodput(self) -> list[list[float]]:
        """Bits per second of each connection of a `Tcp`, per interval."""
        found = [line["bytes"] for line in self.lines() if line.get("bytes")]
        return [[count * 8 / INTERVAL for count in counts] for counts in found]

    def datagrams(self) -> dict[int, int]:
        """Datagrams of a `Udp` that arrived so far, by TOS byte as it arrived."""
        return {int(tos): count for tos, count in self.lines()[-1]["datagrams"].items()}

    def final_datagrams(self) -> dict[int, int]:
        """The same, once two successive reports are equal.

        Raises: FabricError.
        """
        seen = len(self.lines())
        deadline = time.monotonic() + patience(READY_TIMEOUT)
        while time.monotonic() < deadline:
            reports = self.lines()[seen:]
            if len(reports) > 1 and reports[-1] == reports[-2]:
                return self.datagrams()
            time.sleep(0.05)
        raise FabricError(f"{self.flow}: its datagrams still arrive; wait until the flow has ended")


@dataclass(frozen=True, slots=True)
class Background:
    """All flows of one background."""

    flows: list[Running] = field(default_factory=list)

    def wait(self) -> None:
        """Wait until every sender has ended. Raises: FabricError when one failed."""
        for running in self.flows:
            if _status(running):
                raise FabricError(f"{running.flow}: its sender failed; see standard error")


def _status(running: Running) -> int:
    """Exit status of a sender. Raises: FabricError if it does not end."""
    try:
        return running.sender.wait(running.flow.seconds + patience(READY_TIMEOUT))
    except subprocess.TimeoutExpired as exc:
        raise FabricError(f"{running.flow}: its sender does not end; end the process") from exc


@contextmanager
def background(net: FlowHosts, flows: Sequence[Flow]) -> Iterator[Background]:
    """Run flows while the block runs. Results can be read until its end.

    Raises: FabricError.
    """
    with scratch_folder() as folder:
        begun = Background()
        try:
            for number, flow in enumerate(flows):
                begun.flows.append(_begin(net, flow, Path(folder, str(number))))
            yield begun
        finally:
            net.end([process for flow in begun.flows for process in (flow.sender, flow.receiver)])


def _begin(net: FlowHosts, flow: Flow, log: Path) -> Running:
    port, address = next(_ports), net.address(flow.target)
    variables = starter.environment()
    with log.open("wb") as output:
        receiver = net.run(flow.target, flow.receiver(port), stdout=output, env=variables)
    _wait_ready(flow, receiver, log)
    sender = net.run(flow.source, flow.sender(address, port), env=variables)
    return Running(flow, sender, receiver, log)


def _wait_ready(flow: Flow, receiver: subprocess.Popen[Any], log: Path) -> None:
    """Wait for the receiver's first line. Raises: FabricError."""
    deadline = time.monotonic() + patience(READY_TIMEOUT)
    while not log.stat().st_size:
        if receiver.poll() is not None or time.monotonic() > deadline:
            raise FabricError(f"{flow}: its receiver did not start; see standard error")
        time.sleep(0.01)
