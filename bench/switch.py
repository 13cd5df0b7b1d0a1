"""Hosts on one emulated switch: a network namespace each, with a real queue and real loss.

Every switch port has a rate (htb), a buffer (bfifo) and, on request, random loss (nft
in the forward chain), so what crosses the switch can be delayed and dropped as on a
wire. Host i is 10.77.i.2 on its interface `eth0`. Root only; see `unavailable`.

    with switch(rate="1gbit", loss=0.01) as net:
        server = net.run(0, ["iperf3", "-s", "-1"])
"""

import itertools
import json
import os
import re
import shutil
import signal
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

TOOLS: Final = ("ip", "tc", "nft", "ethtool")
CAPABILITIES: Final = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21}  # bits, linux/capability.h
MAX_HOSTS: Final = 250  # one /24 of 10.77.0.0/16 each
LOSS_STEPS: Final = 1_000_000  # resolution of the loss fraction
BURST: Final = 32 * 1024  # bytes that htb passes at once; ~0.26 ms of 1 Gb/s
GRACE: Final = 2.0  # seconds between SIGTERM and SIGKILL at tear-down

# Left on, a 64 KiB burst would cross the switch as one "packet": one drop, one queue slot.
OFFLOADS: Final = ("tx-udp-segmentation", "tso", "gso", "gro")

RULES: Final = """
table ip switch {
    counter lost { }
    chain forward {
        type filter hook forward priority 0;
        %s
    }
}
"""

_NAMESPACE: Final = re.compile(r"^dlcpd-(\d+)-\d+-(?:sw|h\d+)$")
_numbers: Final = itertools.count()


class SwitchError(RuntimeError):
    """The emulated switch cannot be made or read; the text names the command and its answer."""


@dataclass(frozen=True, slots=True)
class PortStatistics:
    """What one switch port did with traffic towards its host."""

    sent_bytes: int
    sent_packets: int
    dropped_packets: int  # the buffer was full


@dataclass(frozen=True, slots=True)
class Switch:
    """A running switch with its hosts. Made by `switch`, usable until that ends."""

    name: str
    hosts: int
    _children: list[subprocess.Popen[Any]] = field(default_factory=list)

    def address(self, host: int) -> str:
        """IPv4 address of a host."""
        return f"10.77.{host}.2"

    def run(self, host: int, argv: Sequence[str], **popen: Any) -> subprocess.Popen[Any]:
        """Start a program on a host; whatever still runs when the switch ends is ended with it."""
        child = subprocess.Popen(_inside(self.host_namespace(host), *argv), **popen)
        self._children.append(child)
        return child

    def port(self, host: int) -> PortStatistics:
        """Counters of the switch port towards a host."""
        shown = _run(*_inside(self.switch_namespace, "tc", "-s", "-j", "qdisc", "show", "dev"),
                     f"p{host}")  # fmt: skip
        [queue] = [qdisc for qdisc in json.loads(shown) if qdisc["kind"] == "bfifo"]
        return PortStatistics(queue["bytes"], queue["packets"], queue["drops"])

    def lost_packets(self) -> int:
        """Packets that the random loss has taken so far, all ports together."""
        shown = _run(*_inside(self.switch_namespace, "nft", "-j", "list", "counters"))
        [counter] = [row["counter"] for row in json.loads(shown)["nftables"] if "counter" in row]
        return int(counter["packets"])

    @property
    def switch_namespace(self) -> str:
        """Network namespace of the switch."""
        return f"{self.name}-sw"

    def host_namespace(self, host: int) -> str:
        """Network namespace of a host."""
        if not 0 <= host < self.hosts:
            raise SwitchError(f"host {host}: this switch has hosts 0..{self.hosts - 1}")
        return f"{self.name}-h{host}"

    def build(self, *, rate: str, loss: float, buffer_bytes: int) -> None:
        """Make all namespaces, links, queues and rules."""
        _run("ip", "netns", "add", self.switch_namespace)
        forward = "/proc/sys/net/ipv4/ip_forward"
        _run(*_inside(self.switch_namespace, "tee", forward), stdin="1")
        for host in range(self.hosts):
            self._connect(host)
            self._limit(host, rate, buffer_bytes)
        self._lose(loss)

    def _connect(self, host: int) -> None:
        there, here = self.host_namespace(host), self.switch_namespace
        port, subnet = f"p{host}", f"10.77.{host}"
        _run("ip", "netns", "add", there)
        _run("ip", "link", "add", "eth0", "netns", there,
             "type", "veth", "peer", "name", port, "netns", here)  # fmt: skip
        for namespace, device in ((there, "eth0"), (here, port)):
            off = [word for feature in OFFLOADS for word in (feature, "off")]
            _run(*_inside(namespace, "ethtool", "-K", device, *off))
        _run("ip", "-n", there, "address", "add", f"{subnet}.2/24", "dev", "eth0")
        _run("ip", "-n", here, "address", "add", f"{subnet}.1/24", "dev", port)
        for namespace, device in ((there, "lo"), (there, "eth0"), (here, port)):
            _run("ip", "-n", namespace, "link", "set", device, "up")
        _run("ip", "-n", there, "route", "add", "default", "via", f"{subnet}.1")

    def _limit(self, host: int, rate: str, buffer_bytes: int) -> None:
        tc, port = _inside(self.switch_namespace, "tc"), f"p{host}"
        bucket = ("burst", str(BURST), "cburst", str(BURST))
        _run(*tc, "qdisc", "add", "dev", port, "root", "handle", "1:", "htb", "default", "1")
        _run(*tc, "class", "add", "dev", port, "parent", "1:", "classid", "1:1",
             "htb", "rate", rate, *bucket)  # fmt: skip
        _run(*tc, "qdisc", "add", "dev", port, "parent", "1:1", "bfifo",
             "limit", str(buffer_bytes))  # fmt: skip

    def _lose(self, loss: float) -> None:
        share = int(loss * LOSS_STEPS)
        rules = RULES % f"numgen random mod {LOSS_STEPS} < {share} counter name lost drop"
        _run(*_inside(self.switch_namespace, "nft", "-f", "-"), stdin=rules)

    def tear_down(self) -> None:
        """End all programs of the hosts and remove every trace."""
        for child in self._children:
            child.terminate()
        for child in self._children:
            try:
                child.wait(GRACE)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        for namespace in _namespaces():
            if namespace.startswith(f"{self.name}-"):
                _remove(namespace)


@contextmanager
def switch(
    rate: str = "1gbit", *, loss: float = 0.0, buffer_bytes: int = 256 * 1024, hosts: int = 2
) -> Iterator[Switch]:
    """Hosts on one switch, each port with this rate, buffer and loss fraction (below 1).

    `rate` is in the notation of tc. Everything is removed at the end, also after a failure.

    Raises: SwitchError.
    """
    if reason := unavailable():
        raise SwitchError(f"no emulated switch here: {reason}")
    if not 0.0 <= loss < 1.0 or not 1 <= hosts <= MAX_HOSTS:
        raise SwitchError(f"loss {loss}: need 0 <= loss < 1; hosts {hosts}: need 1..{MAX_HOSTS}")
    cleanup()
    made = Switch(f"dlcpd-{os.getpid()}-{next(_numbers)}", hosts)
    try:
        made.build(rate=rate, loss=loss, buffer_bytes=buffer_bytes)
        yield made
    finally:
        made.tear_down()


def unavailable() -> str:
    """Why this host cannot make a switch, or an empty string."""
    absent = [tool for tool in TOOLS if not shutil.which(tool)]
    if absent:
        return f"{', '.join(absent)} not found; install iproute2, nftables and ethtool"
    held = int(_own_status("CapEff"), 16)
    lacking = [name for name, bit in CAPABILITIES.items() if not held >> bit & 1]
    return f"{' and '.join(lacking)} missing; run as root" if lacking else ""


def cleanup() -> list[str]:
    """Remove what switches of dead processes left behind; gives the names removed."""
    left = [name for name in _namespaces() if not _owner_lives(name)]
    for name in left:
        _remove(name)
    return left


def _own_status(key: str) -> str:
    lines = Path("/proc/self/status").read_text().splitlines()
    return dict(line.split(":\t", 1) for line in lines if ":\t" in line)[key]


def _namespaces() -> list[str]:
    listed = _run("ip", "netns", "list").split("\n")
    names = [line.split()[0] for line in listed if line]
    return [name for name in names if _NAMESPACE.match(name)]


def _owner_lives(namespace: str) -> bool:
    found = _NAMESPACE.match(namespace)
    return found is not None and Path("/proc", found[1]).exists()


def _remove(namespace: str) -> None:
    # A process that outlives its namespace's name would keep the links alive, unseen.
    listed = subprocess.run(
        ("ip", "netns", "pids", namespace), capture_output=True, text=True, check=False
    )
    for pid in listed.stdout.split():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            continue
    subprocess.run(("ip", "netns", "delete", namespace), capture_output=True, check=False)


def _inside(namespace: str, *argv: str) -> tuple[str, ...]:
    return ("ip", "netns", "exec", namespace, *argv)


def _run(*argv: str, stdin: str = "") -> str:
    """Standard output of a command. Raises: SwitchError with its complaint."""
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SwitchError(f"{' '.join(argv)}: {done.stderr.strip() or done.returncode}")
    return done.stdout
