"""Two hosts and a router between them, as network namespaces, with links of any MTU."""

import ctypes
import itertools
import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

_CLONE_NEWNET: Final = 0x40000000  # linux/sched.h; Python 3.11 has no setns
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_FOLDER: Final = Path("/run/netns")
_numbers: Final = itertools.count()
# Left on, a burst would cross a link as one packet, whatever the link's MTU.
_OFF: Final = "tx-udp-segmentation off tso off gso off gro off"
# Where the router says nothing of what it drops as too big.
_SILENCE: Final = """
table inet silence { chain out { type filter hook output priority 0;
icmp type destination-unreachable drop
icmpv6 type packet-too-big drop
} }
"""
_NO_FRAGMENTS: Final = """
table inet whole { chain through { type filter hook prerouting priority -500;
ip frag-off & 0x3fff != 0 drop
} }
"""
_DROP_LONGER: Final = """
table inet short {{ chain through {{ type filter hook forward priority 0;
meta l4proto udp meta length > {size} drop
}} }}
"""


class Network:
    """Hosts "a" and "b"; `name` begins all namespaces' names."""

    def __init__(self, name: str, *, v6: bool) -> None:
        self.name, self.v6 = name, v6
        near, far = ("fd09::", "fd0a::") if v6 else ("10.9.0.", "10.9.1.")
        self.addresses = {"a": f"{near}1", "b": f"{far}1"}
        self._gateways = {"a": f"{near}2", "b": f"{far}2"}

    def build(self, mtu_a: int, mtu_b: int) -> None:
        """Links of these MTUs: from host a to the router, and from there to host b."""
        for node in "arb":
            run("ip", "netns", "add", f"{self.name}-{node}")
            self.ip(node, "link", "set", "lo", "up")
        for host in "ab":
            run(
                "ip",
                "link",
                "add",
                f"h{host}",
                "netns",
                f"{self.name}-{host}",
                "type",
                "veth",
                "peer",
                "name",
                f"r{host}",
                "netns",
                f"{self.name}-r",
            )
            self._address(host, f"h{host}", self.addresses[host])
            self._address("r", f"r{host}", self._gateways[host])
            for node, device in ((host, f"h{host}"), ("r", f"r{host}")):
                self.shell(node, f"ethtool -K {device} {_OFF}")
        self.set_mtu(a=mtu_a, b=mtu_b)
        for host in "ab":
            self.ip(host, "link", "set", f"h{host}", "up")
            self.ip("r", "link", "set", f"r{host}", "up")
        forwarding = "ipv6/conf/all/forwarding" if self.v6 else "ipv4/ip_forward"
        self.shell("r", f"echo 1 > /proc/sys/net/{forwarding}")
        for host in "ab":
            self.ip(host, "route", "add", "default", "via", self._gateways[host])

    def _address(self, node: str, device: str, address: str) -> None:
        if self.v6:  # no tentative addresses: they would not answer for seconds
            self.shell(node, f"echo 0 > /proc/sys/net/ipv6/conf/{device}/accept_dad")
        length = 64 if self.v6 else 24
        more = ["nodad"] if self.v6 else []
        self.ip(node, "address", "add", f"{address}/{length}", "dev", device, *more)

    def set_mtu(self, *, a: int | None = None, b: int | None = None) -> None:
        """Change the MTU of a host's link, at both ends."""
        for host, mtu in (("a", a), ("b", b)):
            if mtu:
                self.ip("r", "link", "set", f"r{host}", "mtu", str(mtu))
                self.ip(host, "link", "set", f"h{host}", "mtu", str(mtu))

    def set_router_mtu(self, mtu: int, host: str = "b") -> None:
        """Of the router's end of a link alone: the host goes on sending what it drops, unsaid."""
        self.ip("r", "link", "set", f"r{host}", "mtu", str(mtu))

    def silence(self) -> None:
        """From now on the router says nothing of what it drops."""
        self._rules(_SILENCE)

    def drop_fragments(self) -> None:
        """From now on the router drops fragments (IPv4), as many firewalls do."""
        self._rules(_NO_FRAGMENTS)

    def drop_longer(self, size: int) -> None:
        """From now on the router drops all UDP packets of more than `size` bytes."""
        self._rules(_DROP_LONGER.format(size=size))

    def _rules(self, text: str) -> None:
        lines = text.replace("} }", "}\n}\n")
        run(*self.inside("r", "nft", "-f", "-"), stdin=lines)

    def ip(self, node: str, *argv: str) -> None:
        family = ["-6"] if self.v6 and argv[0] in ("route", "address") else []
        run("ip", *family, "-n", f"{self.name}-{node}", *argv)

    def shell(self, node: str, line: str) -> None:
        run(*self.inside(node, "sh", "-c", line))

    def inside(self, node: str, *argv: str) -> Sequence[str]:
        """A command, to run in a node's namespace."""
        return ("ip", "netns", "exec", f"{self.name}-{node}", *argv)

    @contextmanager
    def entered(self, node: str) -> Iterator[None]:
        """This thread's sockets are made in a node's namespace."""
        home = os.open("/proc/thread-self/ns/net", os.O_RDONLY)
        there = os.open(_FOLDER / f"{self.name}-{node}", os.O_RDONLY)
        try:
            _enter(there)
            yield
        finally:
            _enter(home)
            os.close(home)
            os.close(there)

    def remove(self) -> None:
        for node in "arb":
            if (_FOLDER / f"{self.name}-{node}").exists():
                run("ip", "netns", "delete", f"{self.name}-{node}")


@contextmanager
def network(mtu_a: int, mtu_b: int, *, v6: bool = False) -> Iterator[Network]:
    """A network, removed at the end whatever happens."""
    made = Network(f"dlcpd-mtu{os.getpid()}x{next(_numbers)}", v6=v6)
    try:
        made.build(mtu_a, mtu_b)
        yield made
    finally:
        made.remove()


def run(*argv: str, stdin: str = "") -> str:
    """Standard output of a command. Raises RuntimeError with its complaint."""
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}")
    return done.stdout


def _enter(namespace: int) -> None:
    if _LIBC.setns(namespace, _CLONE_NEWNET):
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
