"""Where the hosts of a benchmark run: on loopback, on an emulated switch, in namespaces."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from dlcp_lab.emulation.plan import SHALLOW_BUFFER
from dlcp_lab.ranks.hosts import MAX_HOSTS, HostPlan, apart, network_table, on_loopback
from dlcp_lab.ranks.switched import in_namespaces, switched
from dlcp_lab.report.amounts import fraction, injected, show_fraction, show_size, size
from dlcp_lab.report.arguments import add_settings
from dlcp_lab.report.machine import properties, tcp_congestion_control
from dlcpd import __version__
from dlcpd.cli.grammar import whole
from dlcpd.contract.errors import BadConfig
from dlcpd.core.wire.header import MAX_PATHS


def add_places(made: argparse.ArgumentParser) -> None:
    """Add the options that `places` reads."""
    made.add_argument(
        "--hosts", type=whole(2, MAX_HOSTS), default=2, help="number of hosts (%(default)s)"
    )
    add_settings(made)
    made.add_argument(
        "--pin", action="store_true", help="give each host its own CPUs, if the machine has enough"
    )
    made.add_argument(
        "--loss",
        type=injected,
        default=0.0,
        metavar="F",
        help="fraction of datagrams to drop at each loopback host's sockets",
    )
    made.add_argument(
        "--paths", type=whole(1, MAX_PATHS), default=1, help="loopback paths per host (%(default)s)"
    )
    where = made.add_mutually_exclusive_group()
    where.add_argument(
        "--switch",
        metavar="RATE",
        default="",
        help="connect the hosts by an emulated switch (root) of this rate, e.g. 1gbit",
    )
    where.add_argument(
        "--netns",
        action="append",
        default=[],
        metavar="NS=ADDRESS",
        help="run a host in a network namespace (root); once per host, instead of --hosts",
    )
    made.add_argument(
        "--switch-loss",
        type=fraction,
        default=0.0,
        metavar="F",
        help="with --switch: random loss at every port (%(default)s)",
    )
    made.add_argument(
        "--switch-buffer",
        type=size,
        default=SHALLOW_BUFFER,
        metavar="BYTES",
        help="with --switch: buffer per port (%(default)s)",
    )


def check_places(options: argparse.Namespace) -> None:
    """Refuse impossible options. Raises: BadConfig."""
    if len(options.netns) == 1:
        raise BadConfig("--netns needs at least two hosts: give one --netns per host")
    network_table(options.set)


@contextmanager
def places(options: argparse.Namespace) -> Iterator[Sequence[HostPlan]]:
    """The hosts of the options; an emulated switch is removed afterwards.

    Raises: BadConfig.
    """
    with _standing(options) as plans:
        yield apart(plans) if options.pin else plans


@contextmanager
def _standing(options: argparse.Namespace) -> Iterator[list[HostPlan]]:
    network = network_table(options.set)
    if options.switch:
        with switched(
            options.hosts,
            rate=options.switch,
            loss=options.switch_loss,
            buffer_bytes=options.switch_buffer,
            network=network,
        ) as plans:
            yield plans
    elif options.netns:
        yield in_namespaces(options.netns, network=network)
    else:
        yield on_loopback(
            options.hosts, options.paths, network=network, loss=options.loss, seed=options.seed
        )


def where(options: argparse.Namespace, plans: Sequence[HostPlan], *, gloo: bool) -> str:
    """Where the hosts run, in words."""
    text = f"{len(plans)} hosts, one machine"
    if options.switch:
        text = (
            f"{len(plans)} hosts, switch {options.switch}, loss "
            f"{show_fraction(options.switch_loss)}, buffer {show_size(options.switch_buffer)}"
        )
    elif options.netns:
        text = f"{len(plans)} hosts, given namespaces"
    if plans[0].place.cpus:
        text += f", {len(plans[0].place.cpus)} CPU(s) per host"
    if gloo and (options.switch or options.netns):
        text += f", Gloo over TCP {tcp_congestion_control()}"
    return text + (f", INJECTED loss {show_fraction(options.loss)}" if options.loss else "")


def document(
    command: str, options: argparse.Namespace, plans: Sequence[HostPlan]
) -> dict[str, Any]:
    """The same for --json, with properties of the machine."""
    return {
        "command": command,
        "version": __version__,
        "machine": properties(),
        "hosts": len(plans),
        "cpus_per_host": len(plans[0].place.cpus),  # 0 = hosts share all
        "switch": options.switch,
        "switch_loss": options.switch_loss if options.switch else 0.0,
        "switch_buffer": options.switch_buffer if options.switch else 0,
        "injected_loss": options.loss,
        "settings": list(options.set),
    }
