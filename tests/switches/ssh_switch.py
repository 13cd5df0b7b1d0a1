"""A Linux switch in a namespace behind a real sshd, and an operator in a namespace beside it."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path
from typing import Any, Self

from tests.switches import clock

OFFLOADS = ("tx-udp-segmentation", "tso", "gso", "gro")
ADDRESS, OPERATOR = "192.0.2.1", "192.0.2.2"
PORTS = ("p1", "p2")
INTENT = f"""\
schema = 1
[fabric]
name = "lab"
[[device]]
name = "DEVICE"
platform = "linux"
[[device.ports]]
names = {list(PORTS)}
rate = "20Mbit"
buffer = "300KiB"
""".replace("'", '"')
SSHD = """\
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
ListenAddress {address}
PidFile none
StrictModes no
UsePAM no
PasswordAuthentication no
SetEnv PATH={folder}/bin:/usr/sbin:/usr/bin:/sbin:/bin
"""
CLIENT = """\
Host {device}
    HostName {address}
    User root
    IdentityFile {folder}/key
    UserKnownHostsFile {folder}/known_hosts
"""
_numbers = count()


class SshSwitch:
    """`folder`/bin comes first on the switch's PATH: a test can put a slow tool there."""

    intent = INTENT

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.name = f"swcfg{os.getpid()}n{next(_numbers)}"  # also the device's: /run is shared
        self.switch, self.operator = f"{self.name}-s", f"{self.name}-o"
        self.sshds: list[subprocess.Popen[bytes]] = []  # of the switch, then of the hosts
        self.hosts: tuple[str, ...] = ()

    @contextmanager
    def running(self) -> Iterator[Self]:
        """Begun, and ended whatever happens."""
        try:
            self.begin()
            yield self
        finally:
            self.end()

    def begin(self) -> None:
        (self.folder / "bin").mkdir()
        clock.make_sleep(self.folder)
        make_keys(self.folder)
        host_key = (self.folder / "host_key.pub").read_text()
        (self.folder / "known_hosts").write_text(f"{ADDRESS} {host_key}")
        names = {"folder": self.folder, "address": ADDRESS, "device": self.name}
        (self.folder / "ssh_config").write_text(CLIENT.format(**names))
        (self.folder / "intent.toml").write_text(self.intent.replace("DEVICE", self.name))
        for namespace in (self.switch, self.operator):
            ip("netns", "add", namespace)
        for port in PORTS:
            ip("-n", self.switch, "link", "add", port, "type", "veth", "peer", "name", f"{port}x")
            ip("-n", self.switch, "link", "set", port, "up")
        ip(
            "-n",
            self.operator,
            "link",
            "add",
            "mgmt",
            "type",
            "veth",
            "peer",
            "name",
            "mgmt",
            "netns",
            self.switch,
        )
        for namespace, address in ((self.switch, ADDRESS), (self.operator, OPERATOR)):
            ip("-n", namespace, "address", "add", f"{address}/24", "dev", "mgmt")
            ip("-n", namespace, "link", "set", "mgmt", "up")
        self.serve(self.switch, ADDRESS)

    def end(self) -> None:
        """Nothing of it stays, whatever state a test left it in."""
        for child in self.sshds:
            child.kill()
            child.wait()
        for namespace in (self.switch, self.operator, *self.hosts):
            found = subprocess.run(
                ("ip", "netns", "pids", namespace), capture_output=True, text=True, check=False
            )
            for pid in map(int, found.stdout.split()):
                os.kill(pid, signal.SIGKILL)
            subprocess.run(("ip", "netns", "delete", namespace), check=False, capture_output=True)
        shutil.rmtree(f"/run/switchcfg/{self.name}", ignore_errors=True)

    def attach_hosts(self) -> tuple[str, ...]:
        """A host on each port: their namespaces. Host n is 10.9.n.2, behind the switch."""
        made = tuple(f"{self.name}-{number}" for number in range(len(PORTS)))
        self.hosts = made
        for number, (host, port) in enumerate(zip(made, PORTS, strict=True)):
            ip("netns", "add", host)
            ip("-n", self.switch, "link", "set", f"{port}x", "netns", host, "name", "eth0")
            for namespace, device, last in ((self.switch, port, 1), (host, "eth0", 2)):
                ip("-n", namespace, "address", "add", f"10.9.{number}.{last}/24", "dev", device)
                ip("-n", namespace, "link", "set", device, "up")
                off = (f"{feature} off" for feature in OFFLOADS)  # or a burst is one packet
                argv = ("ethtool", "-K", device, *" ".join(off).split())
                subprocess.run(inside(namespace, *argv), check=True, capture_output=True)
            ip("-n", host, "route", "add", "default", "via", f"10.9.{number}.1")
            # Or finding routes takes long.
            quiet = inside(host, "sysctl", "-qw", "net.ipv4.icmp_ratelimit=0")
            subprocess.run(quiet, check=True)
        self.shell("sysctl -qw net.ipv4.ip_forward=1 net.ipv4.icmp_ratelimit=0")
        ip("-n", self.operator, "route", "add", "10.9.0.0/16", "via", ADDRESS)
        names = {"folder": self.folder, "host_key": (self.folder / "host_key.pub").read_text()}
        for number, host in enumerate(made):
            address = f"10.9.{number}.2"
            self.serve(host, address)
            with (self.folder / "ssh_config").open("a") as config:
                config.write(CLIENT.format(**names, device=f"host{number}", address=address))
            with (self.folder / "known_hosts").open("a") as known:
                known.write(f"{address} {names['host_key']}")
        return made

    def on_loopback(self) -> None:
        """A door to the switch on this host."""
        self.sshds.append(open_door(self.folder, self.switch, "door"))

    def serve(self, namespace: str, address: str) -> None:
        """Run an sshd there."""
        text = SSHD.format(folder=self.folder, address=address)
        self.sshds.append(start_sshd(self.folder / f"sshd_{namespace}", text, namespace))

    def start(self, *words: str) -> subprocess.Popen[str]:
        """Run switchcfg on the operator's side. INTENT and the like are filled in."""
        fill = {"INTENT": str(self.folder / "intent.toml"), "PLANS": str(self.folder / "plans")}
        options = ["--ssh-config", str(self.folder / "ssh_config")]
        argv = [
            sys.executable,
            "-m",
            "switchcfg",
            *(fill.get(w, w) for w in words),
            *options,
        ]
        state = {**os.environ, "XDG_STATE_HOME": str(self.folder / "state")}
        return subprocess.Popen(
            inside(self.operator, *argv),
            env=state,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )

    def run(self, *words: str) -> tuple[int, str]:
        """(exit code, everything it printed)."""
        child = self.start(*words)
        out, err = child.communicate(timeout=60)
        return child.returncode, out + err

    def shell(self, script: str) -> str:
        """On the switch, past SSH."""
        return subprocess.run(
            inside(self.switch, "sh", "-eu"),
            input=script,
            text=True,
            check=True,
            capture_output=True,
        ).stdout

    def queues(self) -> str:
        """What tc, nft and sysctl say now; equal before and after means equal."""
        parts = [
            "tc qdisc show",
            "nft -s list ruleset",
            "sysctl net.ipv4.fib_multipath_hash_policy",
        ]
        parts += [f"tc class show dev {port} | sort" for port in PORTS]
        text = self.shell("\n".join(parts))
        return "\n".join(
            line.partition(" leaf ")[0] for line in text.splitlines() if "bfifo" not in line
        )  # handles are the kernel's choice

    def slow(self, tool: str, seconds: float) -> None:
        """From now on this tool waits first, on the switch."""
        shim = self.folder / "bin" / tool
        shim.write_text(f'#!/bin/sh\nsleep {seconds:.1f}\nexec {shutil.which(tool)} "$@"\n')
        shim.chmod(0o755)

    def later(self, seconds: float = 120) -> None:
        """So many seconds pass on the switch: all, for a change that nobody confirmed."""
        clock.later(self.folder, seconds)


def make_keys(folder: Path) -> None:
    """Of a host, and of who logs in."""
    for key in ("key", "host_key"):
        make = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key)
        subprocess.run(make, check=True)


def open_door(folder: Path, namespace: str, device: str) -> "subprocess.Popen[bytes]":
    """An sshd on this host; what comes in runs in the namespace. ~/.ssh/config knows it as
    `device`."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    enter = f'ip netns exec {namespace} sh -c "$SSH_ORIGINAL_COMMAND"'
    text = SSHD.format(folder=folder, address="127.0.0.1")
    child = start_sshd(folder / f"sshd_{device}", f"{text}Port {port}\nForceCommand {enter}\n")
    with (folder / "known_hosts").open("a") as known:
        known.write(f"[127.0.0.1]:{port} {(folder / 'host_key.pub').read_text()}")
    door = CLIENT.format(folder=folder, device=device, address="127.0.0.1")
    with (folder / "ssh_config").open("a") as config:
        config.write(f"{door}    Port {port}\n")
    return child


def start_sshd(file: Path, text: str, namespace: str = "") -> "subprocess.Popen[bytes]":
    """With this configuration; it listens by the time this returns."""
    Path("/run/sshd").mkdir(exist_ok=True)  # Debian's sshd wants it
    file.write_text(text)
    log = file.with_suffix(".log")
    argv: tuple[str, ...] = (shutil.which("sshd") or "sshd", "-D", "-e", "-f", str(file))
    with log.open("wb") as out:
        child = subprocess.Popen(inside(namespace, *argv) if namespace else argv, stderr=out)
    until(lambda: "listening" in log.read_text())
    return child


def ip(*words: str) -> None:
    subprocess.run(("ip", *words), check=True)


def inside(namespace: str, *argv: str) -> tuple[str, ...]:
    return ("ip", "netns", "exec", namespace, *argv)


def until(
    what: Any, *, seconds: float = 90.0, every: float = 0.05, meanwhile: Any = lambda: None
) -> None:
    """Wait for something to become true, and do `meanwhile` before each look.

    That may be a switch's `later`: a timer may begin only after the first one.
    """
    end = time.monotonic() + seconds
    while meanwhile() or not what():
        assert time.monotonic() < end, "it did not come true"
        time.sleep(every)
