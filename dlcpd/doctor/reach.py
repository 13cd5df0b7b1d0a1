"""Judges whether a peer can be reached, and whether its version and settings fit."""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from dlcpd import __version__
from dlcpd.cli.ranges import ranges
from dlcpd.doctor.greeting import End, Greeting
from dlcpd.doctor.prober import Reply
from dlcpd.doctor.rows import Row, fail, good, warn

CLOCKS: Final = 1.0  # seconds of offset; beyond, logs of two hosts cannot be read together


class Tried(NamedTuple):
    """A data port of the peer, and the result of a probe."""

    end: End
    answered: bool
    refused: bool


def judge_greeting(greeting: Greeting, host: str, ours: dict[str, int]) -> Iterator[Row]:
    """The peer's version, and the settings that must be equal on hosts of a job."""
    name = greeting.host
    if greeting.version != __version__:
        yield warn(
            f"{name}: version",
            f"{greeting.version} there, {__version__} here: daemons of "
            f"different versions may refuse each other",
            "compare the versions for peers that `dlcpd --version` prints there and here: hosts of "
            "a job need one in common",
        )
    else:
        yield good(f"{name}: version", f"{greeting.version}, as here ({host})")
    theirs = greeting.agreed
    differ = [
        f"{key} is {theirs.get(key)} there and {ours[key]} here"
        for key in ours
        if theirs.get(key) != ours[key]
    ]
    check = f"{name}: settings"
    if differ:
        yield fail(check, "; ".join(differ), "give all hosts of a job the same settings")
    else:
        yield good(check, "the settings that must be equal on all hosts of a job are equal")


def judge_control(greeting: Greeting, problem: str) -> Row:
    """`problem`: why the port cannot be reached; empty if it can."""
    control, check = greeting.control, f"{greeting.host}: control port"
    where = f"TCP {control.address} port {control.port}"
    if problem:
        return fail(
            check,
            f"{where}: {problem}",
            f"let {where} through on {greeting.host} and between the hosts; [daemon] "
            "control_port fixes the port",
        )
    return good(check, f"{where} answers{', where a daemon runs' if control.held else ''}")


def no_way(host: str, end: End, local: str, exc: OSError) -> Row:
    """The row for a port towards which no socket could be made."""
    return fail(
        f"{host}, path {end.path}: UDP",
        f"no route from {local} to {end.address}: {exc.strerror}",
        "addresses of one network, or a route between them (ip route get), for this path on both",
    )


def judge_reach(host: str, path: int, tried: Sequence[Tried]) -> Row:
    """`tried`: the data ports of one path, of all engines."""
    check = f"{host}, path {path}: UDP"
    closed = [one for one in tried if not one.answered]
    if not closed:
        held = any(one.end.held for one in tried)
        beside = " (a daemon has the configured ports; the listener uses others)" if held else ""
        return good(check, f"{_named(tried)} answer{'s' if len(tried) == 1 else ''}{beside}")
    refused = all(one.refused for one in closed)
    why = "refused by an ICMP message" if refused else "no answer to 3 datagrams"
    ports = ranges(one.end.port for one in closed)
    return fail(
        check,
        f"{_named(closed)}: {why}",
        f"let UDP through on {host} and between the hosts (nft add rule inet filter input udp "
        f"dport {{ {ports} }} accept); [network] paths fixes the ports",
    )


def _named(tried: Sequence[Tried]) -> str:
    """Ports as text; all are of one path, and so of one address."""
    ports = ranges(one.end.port for one in tried)
    return f"UDP {tried[0].end.address} port{'s' if len(tried) > 1 else ''} {ports}"


def judge_offset(host: str, reply: Reply, wall_at_zero: float) -> Row:
    """`wall_at_zero`: this host's wall clock less its monotonic one, seconds."""
    check = f"{host}: clock"
    middle = (reply.sent_at + reply.arrived_at) / 2 + wall_at_zero
    half = (reply.arrived_at - reply.sent_at) / 2
    offset = reply.answer.wall / 1e6 - middle
    said = (
        f"the clock differs by {offset * 1e3:+.1f} ms, with an uncertainty of {half * 1e3:.1f} ms"
    )
    if abs(offset) - half > CLOCKS:
        return warn(
            check,
            f"{said}: logs and traces of both cannot be read together",
            "run chronyd or systemd-timesyncd on both hosts",
        )
    return good(check, f"{said}; dlcpd does not need equal clocks")
