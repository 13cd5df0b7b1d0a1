"""Looks at one peer: whether it is reached, whether it is of our kind, and every path to it."""

import errno
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Final

from dlcpd import __version__
from dlcpd.contract.errors import BadMessage
from dlcpd.ctl.doctor import questions
from dlcpd.ctl.doctor.greeting import MOST, End, Greeting
from dlcpd.ctl.doctor.interfaces import Interface, look_at_interfaces
from dlcpd.ctl.doctor.prober import Prober, Reply, Wish, ask
from dlcpd.ctl.doctor.rows import Row, fail, good, warn
from dlcpd.ctl.doctor.way import Way, judge
from dlcpd.daemon.config import Config
from dlcpd.daemon.effective import agreed
from dlcpd.io.udp.udp_path import tos_of_tags

CONNECT: Final = 3.0  # seconds for TCP: the first try and one more
FIRST: Final = 1.0  # seconds for an answer while the round trip is not known
LEAST_PATIENCE: Final = 0.3  # seconds for an answer from then on, where hosts are busy
ROUND_TRIPS: Final = 4  # likewise, where they are far
PORTS: Final = 4  # source ports per path: routers send six ICMP at once, and then one a second
CLOCKS: Final = 1.0  # seconds of offset from which logs of two hosts cannot be read together


def peer_rows(config: Config, host: str, port: int) -> Iterator[Row]:
    """Everything about the peer at `host`, whose listener has this TCP port. `config` is
    resolved. Takes some seconds, and half a minute per path where hardly anything passes."""
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
            raise BadMessage("it is no `dlcpctl doctor --listen`: no greeting came")
    return data


def _unreachable(host: str, port: int, exc: OSError) -> Row:
    check = f"{host}: listener"
    if isinstance(exc, socket.gaierror):
        return fail(check, f"no such host: {exc.strerror}", "a name or an address that resolves")
    if exc.errno == errno.ECONNREFUSED:
        return fail(check, f"the host is there, and nothing listens on TCP port {port}",
                    _listen_there(host, port))  # fmt: skip
    why = os.strerror(exc.errno) if exc.errno else f"no answer within {CONNECT:g} s"
    return fail(
        check, f"TCP port {port}: {why}; the host is down, has no route, or a firewall drops it",
        f"{_listen_there(host, port)}; let TCP port {port} in there",
    )  # fmt: skip


def _control_of_the_daemon(config: Config, host: str) -> Iterator[Row]:
    """Without a listener: where all hosts have the same port, whether something is there."""
    port = config.daemon.control_port
    if not port:
        return
    check = f"{host}: control port"
    try:
        _connect(host, port).close()
    except OSError as exc:
        yield fail(check, f"TCP port {port}: {exc.strerror or 'no answer'}",
                   f"start dlcpd there, and let TCP port {port} in")  # fmt: skip
    else:
        yield good(check, f"something answers at TCP port {port}")


def judge_greeting(greeting: Greeting, host: str, ours: dict[str, int]) -> Iterator[Row]:
    """Version, and the settings that hosts of a job agree on."""
    name = greeting.host
    if greeting.version != __version__:
        yield fail(
            f"{name}: version", f"{greeting.version} there, {__version__} here: daemons of "
            f"different versions may refuse each other",
            f"pip install 'dlcpd=={max(greeting.version, __version__)}' on both",
        )  # fmt: skip
    else:
        yield good(f"{name}: version", f"{greeting.version}, as here ({host})")
    theirs = greeting.agreed
    differ = [f"{key} is {theirs.get(key)} there and {ours[key]} here" for key in ours
              if theirs.get(key) != ours[key]]  # fmt: skip
    check = f"{name}: settings"
    if differ:
        yield fail(check, "; ".join(differ), "one configuration for all hosts of a job")
    else:
        yield good(check, "those that hosts of a job must share are equal")


def _connects(control: End) -> str:
    """Why not; empty where it does."""
    try:
        _connect(control.address, control.port).close()
    except OSError as exc:
        return exc.strerror or f"no answer within {CONNECT:g} s"
    return ""


def judge_control(greeting: Greeting, problem: str) -> Row:
    """`problem`: why it cannot be connected to."""
    control, check = greeting.control, f"{greeting.host}: control port"
    where = f"TCP {control.address} port {control.port}"
    if problem:
        return fail(check, f"{where}: {problem}", f"let {where} in on {greeting.host} and between; "
                    f"[daemon] control_port fixes the number")  # fmt: skip
    return good(check, f"{where} answers{', where a daemon runs' if control.held else ''}")


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
                yield _no_way(greeting.host, end, locals_[end.path], exc)
                continue
            stack.callback(prober.close)
            probers.append((end, prober))
        replies = ask([(prober, Wish()) for _, prober in probers], FIRST)
    for number, (end, prober) in enumerate(probers):
        yield judge_reach(greeting.host, end, number in replies, refused=prober.refused)
    if replies:
        yield judge_offset(greeting.host, replies[min(replies)], time.time() - time.monotonic())
    first = dict[int, tuple[End, Reply]]()
    for number, reply in sorted(replies.items(), reverse=True):
        first[probers[number][0].path] = probers[number][0], reply
    mtus = _mtus()
    for path, (end, reply) in sorted(first.items()):
        yield from judge(_look(config, greeting, (locals_[path], mtus), end, reply))


def _no_way(host: str, end: End, local: str, exc: OSError) -> Row:
    return fail(
        f"{host}, path {end.path}: UDP",
        f"no way from {local} to {end.address}: {exc.strerror}",
        "addresses of one network, or a route between them (ip route get), for this path on both",
    )


def judge_reach(host: str, end: End, answered: bool, *, refused: bool) -> Row:
    """Of one data port."""
    check, where = f"{host}, path {end.path}: UDP", f"UDP {end.address} port {end.port}"
    if answered:
        beside = " (a daemon has the configured port; this one is beside it)" if end.held else ""
        return good(check, f"{where} answers{beside}")
    why = "refused by an ICMP message" if refused else "no answer to 3 datagrams"
    return fail(
        check, f"{where}: {why}",
        f"let UDP in on {host} and between (nft add rule inet filter input udp dport {end.port} "
        f"accept); [network] paths fixes the ports",
    )  # fmt: skip


def judge_offset(host: str, reply: Reply, wall_at_zero: float) -> Row:
    """`wall_at_zero`: this host's wall clock less its monotonic one, seconds."""
    check = f"{host}: clock"
    middle = (reply.sent_at + reply.arrived_at) / 2 + wall_at_zero
    half = (reply.arrived_at - reply.sent_at) / 2
    offset = reply.answer.wall / 1e6 - middle
    said = f"{offset * 1e3:+.1f} ms from ours, give or take {half * 1e3:.1f} ms"
    if abs(offset) - half > CLOCKS:
        return warn(check, f"{said}: logs and traces of both cannot be read together",
                    "chronyd or systemd-timesyncd on both hosts")  # fmt: skip
    return good(check, f"{said}; dlcpd needs no equal clocks")


def _mtus() -> dict[str, int]:
    """Of this host's interfaces, by address."""
    try:
        known: Sequence[Interface] = look_at_interfaces()
    except OSError:
        return {}
    return {interface.address: interface.mtu for interface in known}


def _look(
    config: Config, greeting: Greeting, near: tuple[str, dict[str, int]], end: End, reply: Reply
) -> Way:
    """Ask everything about one path. Routes come first and sizes last: routers limit their ICMP."""
    local, mtus = near
    rtt = reply.arrived_at - reply.sent_at
    patience = min(max(LEAST_PATIENCE, ROUND_TRIPS * rtt), FIRST)
    network, remote = config.network, (end.address, end.port)
    with ExitStack() as stack:
        probers = [Prober(local, remote, greeting.token) for _ in range(PORTS)]
        for prober in probers:
            stack.callback(prober.close)
        routes = questions.ask_routes(probers)
        wanted = sorted(set(tos_of_tags(network.drop_rank)))
        marks = questions.ask_marks(probers[0], wanted, patience)
        losses = questions.ask_losses(probers, FIRST)
        mtu = questions.ask_mtu(probers[0], patience)
    return Way(
        greeting.host, end.path, local, remote, interface_mtu=mtus.get(local, 0),
        entropy=network.entropy, alarm_loss=network.alarm_loss, rtt=rtt, routes=routes,
        marks=marks, losses=losses, mtu=mtu,
    )  # fmt: skip
