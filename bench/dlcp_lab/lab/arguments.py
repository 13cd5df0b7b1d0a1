"""The grammar of `dlcpctl lab`."""

import argparse
import re
from collections.abc import Callable
from typing import Final

from dlcp_lab.emulation.plan import (
    MAX_HOSTS,
    MAX_RAILS,
    SHALLOW_BUFFER,
    FabricError,
    bits_per_second,
)
from dlcp_lab.lab import command as lab
from dlcp_lab.report.amounts import duration, fraction, size
from dlcpd.cli.grammar import Commands, command, whole

MAX_RANKS: Final = 64  # on a host


def fill(parser: argparse.ArgumentParser) -> None:
    """Add the actions."""
    actions = parser.add_subparsers(dest="action", required=True, metavar="ACTION")
    _add_lab_up(_lab_command(actions, "up", lab.up, "Create a fabric, which exists until `down`."))
    made = command(actions, "status", lab.status, "Show hosts, links and counters.")
    made.add_argument("--name", default="", help="name of a fabric (default: all)")
    text = "Run a program on one host, or as one rank per host."
    made = _lab_command(actions, "run", lab.run, text)
    made.add_argument("--host", type=whole(0, MAX_HOSTS), help="number of a host (default: all)")
    made.add_argument(
        "--ranks",
        type=whole(1, MAX_RANKS),
        default=1,
        metavar="N",
        help="ranks on each host (%(default)s)",
    )
    made.add_argument("--timeout", type=float, default=3600.0, help="seconds (%(default)s)")
    made.add_argument("argv", nargs="*", metavar="PROGRAM", help="program and arguments, after --")
    made = _lab_command(actions, "down", lab.down, "Remove a fabric, and end its processes.")
    made.add_argument(
        "--all", action="store_true", help="remove all fabrics, with the remains of killed runs"
    )
    _add_lab_changes(actions)


def _lab_command(
    actions: Commands, name: str, run: Callable[..., int], text: str
) -> argparse.ArgumentParser:
    made = command(actions, name, run, text)
    made.add_argument("--name", default="lab", help="name of the fabric (%(default)s)")
    return made


def _add_lab_up(made: argparse.ArgumentParser) -> None:
    _add_shape(made)
    _add_queues(made)
    _add_losses(made)
    made.add_argument(
        "--delay",
        dest="delays",
        action="append",
        type=_delay,
        default=[],
        metavar="[LINK=]TIME",
        help="delay each way of a link (l0-s1), of one direction of it (l0:s1), or of all links; "
        "such as 2.5ms. Several are possible; the last one that names a link counts",
    )
    made.add_argument(
        "--seed", type=whole(1, 1 << 30), default=1, help="seed of the ECMP hash (%(default)s)"
    )


def _place(text: str) -> tuple[int, ...]:
    """The leaf of each host. Raises: ArgumentTypeError."""
    if not re.fullmatch(r"\d{1,3}(,\d{1,3})*", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of leaves; write it as 0,0,1,1")
    return tuple(map(int, text.split(",")))


def _limit(text: str) -> tuple[str, str]:
    """A link and its rate. Raises: ArgumentTypeError."""
    link, _, rate = text.partition("=")
    if not link or not rate:
        raise argparse.ArgumentTypeError(f"{text!r} is not a limit; write it as l0-s0=50mbit")
    try:
        bits_per_second(rate)
    except FabricError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from exc
    return link, rate


def _delay(text: str) -> tuple[str, float]:
    """A link, "" for all, and its delay in seconds. Raises: ArgumentTypeError."""
    link, _, time = text.rpartition("=")
    return link, duration(time)


def _add_shape(made: argparse.ArgumentParser) -> None:
    """Hosts, switches and the rates of their links."""
    hosts, leaves = lab.DEFAULT_HOSTS, lab.DEFAULT_LEAVES
    for name, least, most, default, text in (
        ("hosts", 1, MAX_HOSTS, None, f"number of hosts ({hosts}, or as --place)"),
        ("leaves", 1, MAX_HOSTS, None, f"leaf switches per rail ({leaves}, or as --place)"),
        ("spines", 0, MAX_HOSTS, None, "spine switches per rail (0; 1 for leaves of --place)"),
        ("rails", 1, MAX_RAILS, 1, "interfaces per host (%(default)s)"),
    ):
        made.add_argument(f"--{name}", type=whole(least, most), default=default, help=text)
    made.add_argument(
        "--place",
        type=_place,
        default=(),
        metavar="LIST",
        help="leaf of each host, such as 0,0,1,1 (default: the leaves in turn)",
    )
    made.add_argument("--rate", default="1gbit", help="rate from leaf to host (%(default)s)")
    made.add_argument(
        "--spine-rate",
        default="",
        metavar="RATE",
        help="rate from leaf to spine (default: as --rate)",
    )
    made.add_argument(
        "--limit",
        dest="limits",
        action="append",
        type=_limit,
        default=[],
        metavar="LINK=RATE",
        help="rate of each way of a link (l0-s0=50mbit), or of one direction of it (h0:l0=25mbit). "
        "Several are possible; the last one that names a link counts",
    )


def _add_queues(made: argparse.ArgumentParser) -> None:
    """Queues of the switch ports."""
    made.add_argument(
        "--buffer",
        dest="buffer_bytes",
        type=size,
        default=SHALLOW_BUFFER,
        metavar="BYTES",
        help="buffer per switch port (%(default)s)",
    )
    made.add_argument("--classes", action="store_true", help="one queue per traffic class")
    made.add_argument(
        "--ecn",
        dest="ecn_bytes",
        type=size,
        default=0,
        metavar="BYTES",
        help="queue length above which ports mark and drop early",
    )
    made.add_argument("--bare", action="store_true", help="switches without queues and rate limits")


def _add_losses(made: argparse.ArgumentParser) -> None:
    """Losses that no queue explains."""
    made.add_argument(
        "--loss", type=fraction, default=0.0, metavar="F", help="random loss at every switch output"
    )
    made.add_argument(
        "--burst-loss",
        type=fraction,
        default=0.0,
        metavar="F",
        help="loss in bursts at every switch output",
    )
    _add_burst_length(made, 8.0, "mean packets per burst (%(default)s)")


def _add_burst_length(made: argparse.ArgumentParser, default: float, text: str) -> None:
    made.add_argument("--burst-length", type=float, default=default, metavar="N", help=text)


def _add_lab_changes(actions: Commands) -> None:
    link = "a link (l0-s1), or one direction of it (l0:s1)"
    cut = _lab_command(actions, "cut", lab.change, "Take a link out of service.")
    cut.add_argument("link", metavar="LINK", help=f"{link}; a direction needs --silent")
    cut.add_argument("--silent", action="store_true", help="drop packets, but change no route")
    restore = _lab_command(actions, "restore", lab.change, "Put a link back into service.")
    restore.add_argument("link", metavar="LINK", nargs="?", default="", help="(default: all)")
    limit = _lab_command(actions, "limit", lab.change, "Change the rate of a link.")
    limit.add_argument("link", metavar="LINK", help=link)
    limit.add_argument("rate", metavar="RATE", help="such as 100mbit")
    lose = _lab_command(actions, "lose", lab.change, "Drop a fraction of a link's packets.")
    lose.add_argument("loss", metavar="F", type=fraction, help="0.01 or 1%%; 0 = no loss")
    lose.add_argument("link", metavar="LINK", nargs="?", default="", help=f"{link} (default: all)")
    _add_burst_length(lose, 0.0, "lose packets in bursts of this mean length")
    for name, made in {"cut": cut, "restore": restore, "limit": limit, "lose": lose}.items():
        made.set_defaults(change=name)
