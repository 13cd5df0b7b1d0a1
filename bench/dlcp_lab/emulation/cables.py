"""Delays of links: a program (cable.c) carries frames between two interfaces and holds them.

A link with a delay has two veth pairs instead of one, and a cable between them in namespace `c0`.
Linux needs the module netem to delay packets, which not every kernel has; a cable needs a compiler.
"""

import shutil
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Final

from dlcp_lab.emulation.condition import Condition
from dlcp_lab.emulation.namespaces import command, inside, owner
from dlcp_lab.emulation.plan import MAX_DELAY, FabricError, Plan
from dlcp_lab.emulation.scratch import scratch_folder
from dlcp_lab.emulation.topology import Direction, Link, Port, links
from dlcpd.ipc.scratch import Scratch

SOURCE: Final = Path(__file__).with_name("cable.c")
COMPILERS: Final = ("cc", "gcc", "clang")
NODE: Final = "c0"  # the namespace of all cables of a fabric
MTU: Final = 65535  # bytes: the ends of the link decide, not the cable
ARP_WAIT: Final = int(MAX_DELAY * 3e3)  # ms between requests: more than a link there and back
ROOM: Final = 8 << 20  # bytes that wait in a cable beyond the product of rate and delay
FASTEST: Final = 125_000_000  # bytes per second: a cable holds a delay's bytes of 1 Gb/s
MOST_ROOM: Final = 256 << 20  # bytes; a tenth of a second of 20 Gb/s, or 10 s of 200 Mb/s


def cabled(plan: Plan, conditions: Mapping[str, Condition]) -> list[Link]:
    """The links that have a delay in at least one direction."""
    return [
        link for link in links(plan) if any(conditions[way.name].delay for way in link.directions)
    ]


def link_lines(name: str, link: Link) -> Iterator[str]:
    """Lines for `ip -batch` that make the two halves of a link with a cable."""
    for port, way in zip((link.low, link.high), link.directions, strict=True):
        yield (
            f"link add {port.device} netns {name}-{port.node} type veth "
            f"peer name {_end(way)} netns {name}-{NODE}"
        )


def patience(port: Port) -> str:
    """Shell command that lets a port wait for answers to ARP; three seconds are the default."""
    return f"echo {ARP_WAIT} > /proc/sys/net/ipv4/neigh/{port.device}/retrans_time_ms"


def settings(made: list[Link], off: str) -> Iterator[str]:
    """Shell commands for the namespace of the cables; `off`: offloads that ethtool turns off."""
    # The kernel of this namespace must send nothing of its own into the links.
    yield "for each in all default; do echo 1 > /proc/sys/net/ipv6/conf/$each/disable_ipv6; done"
    for end in (_end(way) for link in made for way in link.directions):
        yield f"ethtool -K {end} {off}"
        yield f"ip link set {end} mtu {MTU} up"


def start(name: str, made: list[Link], conditions: Mapping[str, Condition]) -> None:
    """Start the cables of a fabric. They end with its namespaces, and with its owner.

    Raises: FabricError.
    """
    arguments = [str(owner(name))]
    for link in made:
        delays = [round(conditions[way.name].delay * 1e9) for way in link.directions]
        arguments += [_end(way) for way in link.directions]
        arguments += map(str, delays)
        arguments += [str(min(ROOM + FASTEST * delay // 10**9, MOST_ROOM)) for delay in delays]
    command(*inside(f"{name}-{NODE}", str(compiled()), *arguments))


def _end(way: Direction) -> str:
    """Name of the cable's end at the source of a direction."""
    return f"{way.source.node}.{way.target.node}"


def compiler() -> str:
    """Path of a C compiler; "" if there is none."""
    return next((path for name in COMPILERS if (path := shutil.which(name))), "")


@cache
def _programs() -> Scratch:
    """Folder of the program until this process ends; a running program stays without its file."""
    return scratch_folder()


@cache
def compiled() -> Path:
    """The program. Raises: FabricError."""
    found = compiler()
    if not found:
        raise FabricError(
            f"delays of links: no C compiler found ({', '.join(COMPILERS)}); "
            "install gcc and libc6-dev"
        )
    out = Path(_programs().name) / "cable"
    command(found, "-O2", "-std=gnu11", "-o", str(out), str(SOURCE))
    return out
