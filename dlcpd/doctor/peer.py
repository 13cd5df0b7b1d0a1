"""Checks one peer: whether it can be reached, its version and settings, and every path to it."""

import errno
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Final

from dlcpd.contract.errors import BadMessage
from dlcpd.daemon.config.effective import agreed
from dlcpd.daemon.config.tables import Config
from dlcpd.doctor import questions
from dlcpd.doctor.greeting import MOST, End, Greeting
from dlcpd.doctor.interfaces import Interface, look_at_interfaces
from dlcpd.doctor.prober import Prober, Reply, Wish, ask
from dlcpd.doctor.reach import (
    Tried,
    judge_control,
    judge_greeting,
    judge_offset,
    judge_reach,
    no_way,
)
from dlcpd.doctor.rows import Row, fail, good
from dlcpd.doctor.way import Way, judge
from dlcpd.io.udp.sockets import tos_of_tags

CONNECT: Final = 3.0  # seconds for TCP: the first try and one more
FIRST: Final = 1.0  # seconds for an answer while the round trip is not known
LEAST_PATIENCE: Final = 0.3  # seconds for an answer from then on; hosts may be busy
ROUND_TRIPS: Final = 4  # likewise, as a multiple of the round trip
PORTS: Final = 4  # source ports per path: routers send six ICMP at once, and then one a second


def peer_rows(config: Config, host: str, port: int) -> Iterator[Row]:
    """All rows of the peer at `host`, whose listener has this TCP port. `config` is resolved. Takes
    some seconds; half a minute per path with heavy loss."""
    try:
        line = _connect(host, port)
    except OSError as exc:
        yield _unreachable(host, port, exc)
        yield from _control_of_the_daemon(config, host)
        return
    with line:
        try:
            greeting = Greeting.unpack_untrusted(_read_line(line))
        except (BadMessage, OSError) as exc:
            yield fail(f"{host}: listener", str(exc), _listen_there(host, port))
            return
        yield from judge_greeting(greeting, host, agreed(config))
        yield judge_control(greeting, _connects(greeting.control))
        yield from _ways(config, greeting)


def _listen_there(host: str, port: int) -> str:
    return f"on {host}: dlcpctl doctor --listen --port {port} (with --config FILE of its daemon)"


def _connect(host: str, port: int) -> socket.socket:
    return socket.create_connection((host, port), CONNECT)


def _read_line(line: socket.socket) -> bytes:
    """Raises: BadMessage, OSError."""
    data = b""
    until = time.monotonic() + CONNECT
    while not data.endswith(b"\n"):
        more = line.recv(MOST)
        data += more
        if not more or len(data) > MOST or time.monotonic() > until:
            raise BadMessage("the listener is not `dlcpctl doctor --listen`: it sent no greeting")
    return data


def _unreachable(host: str, port: int, exc: OSError) -> Row:
    check = f"{host}: listener"
    if isinstance(exc, socket.gaierror):
        return fail(
            check, f"no such host: {exc.strerror}", "give a name or an address that resolves"
        )
    if exc.errno == errno.ECONNREFUSED:
        return fail(
            check,
            f"the host answers, and no process listens on TCP port {port}",
            _listen_there(host, port),
        )
    why = os.strerror(exc.errno) if exc.errno else f"no answer within {CONNECT:g} s"
    return fail(
        check,
        f"TCP port {port}: {why}; the host is down, has no route, or a firewall drops it",
        f"{_listen_there(host, port)}; let TCP port {port} in there",
    )


def _control_of_the_daemon(config: Config, host: str) -> Iterator[Row]:
    """Without a listener: whether the control port, if all hosts have the same, answers."""
    port = config.daemon.control_port
    if not port:
        return
    check = f"{host}: control port"
    try:
        _connect(host, port).close()
    except OSError as exc:
        yield fail(
            check,
            f"TCP port {port}: {exc.strerror or 'no answer'}",
            f"start dlcpd there, and let TCP port {port} in",
        )
    else:
        yield good(check, f"a process answers at TCP port {port}")


def _connects(control: End) -> str:
    """Why the control port cannot be reached; empty if it can."""
    try:
        _connect(control.address, control.port).close()
    except OSError as exc:
        return exc.strerror or f"no answer within {CONNECT:g} s"
    return ""


def _ways(config: Config, greeting: Greeting) -> Iterator[Row]:
    locals_ = [path.address for path in config.network.paths]
    with ExitStack() as stack:
        probers = list[tuple[End, Prober]]()
        for end in greeting.data:
            if not 0 <= end.path < len(locals_):
                continue
            try:
                prober = Prober(locals_[end.path], (end.address, end.port), greeting.token)
            except OSError as exc:
                yield no_way(greeting.host, end, locals_[end.path], exc)
                continue
            stack.callback(prober.close)
            probers.append((end, prober))
        replies = ask([(prober, Wish()) for _, prober in probers], FIRST)
    tried: dict[int, list[Tried]] = {}
    first: dict[int, tuple[End, Reply]] = {}
    for number, (end, prober) in enumerate(probers):
        tried.setdefault(end.path, []).append(Tried(end, number in replies, prober.refused))
        if number in replies:
            first.setdefault(end.path, (end, replies[number]))
    for path, ends in tried.items():
        yield judge_reach(greeting.host, path, ends)
    if replies:
        quickest = min(replies.values(), key=lambda reply: reply.arrived_at - reply.sent_at)
        yield judge_offset(greeting.host, quickest, time.time() - time.monotonic())
    mtus = _mtus()
    for path, (end, reply) in first.items():
        yield from judge(_look(config, greeting, (locals_[path], mtus), end, reply))


def _mtus() -> dict[str, int]:
    """MTUs of this host's interfaces, by address."""
    try:
        known: Sequence[Interface] = look_at_interfaces()
    except OSError:
        return {}
    return {interface.address: interface.mtu for interface in known}


def _look(
    config: Config, greeting: Greeting, near: tuple[str, dict[str, int]], end: End, reply: Reply
) -> Way:
    """Probe one path. Routes come first and sizes last: routers limit their ICMP."""
    local, mtus = near
    rtt = reply.arrived_at - reply.sent_at
    patience = min(max(LEAST_PATIENCE, ROUND_TRIPS * rtt), FIRST)
    network, remote = config.network, (end.address, end.port)
    with ExitStack() as stack:
        probers = [Prober(local, remote, greeting.token) for _ in range(PORTS)]
        for prober in probers:
            stack.callback(prober.close)
        routes = questions.ask_routes(probers)
        wanted = sorted(set(tos_of_tags(network.drop_precedence)))
        marks = questions.ask_marks(probers[0], wanted, patience)
        losses = questions.ask_losses(probers, FIRST)
        mtu = questions.ask_mtu(probers[0], patience)
    return Way(
        greeting.host,
        end.path,
        local,
        remote,
        interface_mtu=mtus.get(local, 0),
        entropy=network.entropy,
        alarm_loss=network.alarm_loss,
        routes=routes,
        marks=marks,
        losses=losses,
        mtu=mtu,
    )
