"""`dlcpctl lab`: an emulated leaf-spine fabric that stays until it is taken down.

It has its own network namespaces and never changes this machine's interfaces.
"""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final

from dlcp_lab.emulation import Fabric, FabricError, Plan, namespaces, scratch
from dlcp_lab.lab import labs, ranks
from dlcp_lab.report.amounts import show_duration
from dlcpd.cli import table
from dlcpd.cli.output import Output
from dlcpd.contract.errors import BadConfig

DEFAULT_HOSTS: Final = 4
DEFAULT_LEAVES: Final = 1
COUNTERS: Final = {
    "sent_packets": "packets",
    "sent_bytes": "bytes",
    "dropped_packets": "dropped",
    "early_packets": "early",
    "marked_packets": "marked",
    "lost_packets": "lost",
    "cut_packets": "cut",
}


def up(options: argparse.Namespace, output: Output) -> int:
    """Make a lab."""
    fields = (
        "rails",
        "buffer_bytes",
        "loss",
        "burst_loss",
        "burst_length",
        "classes",
        "ecn_bytes",
        "bare",
        "seed",
        "place",
    )
    wishes = {field: getattr(options, field) for field in fields}
    wishes |= _shape(options)
    wishes |= {"delays": tuple(options.delays), "limits": tuple(options.limits)}
    rates = {"host_rate": options.rate, "spine_rate": options.spine_rate or options.rate}
    with _refusals():
        lab = labs.up(options.name, Plan(**wishes, **rates))
        _show_hosts(lab, output)
        output.document(_description(options.name, lab))
    return 0


def status(options: argparse.Namespace, output: Output) -> int:
    """Show the labs that are up, or the one that was named, with the counters of its links."""
    with _refusals():
        found = {name: labs.load(name) for name in _chosen(options)}
        documents = [_description(name, lab) for name, lab in found.items()]
        for lab, document in zip(found.values(), documents, strict=True):
            _show_hosts(lab, output)
            _show_links(document["links"], output)
    if not documents:
        output.line("no lab is up; start one with dlcpctl lab up")
    output.document(documents)
    return 0


def run(options: argparse.Namespace, output: Output) -> int:
    """Run a program on one host, or on all as ranks of a job; returns its exit status."""
    if not options.argv:
        raise BadConfig("lab run: give a program after --, such as: dlcpctl lab run -- ip address")
    with _refusals():
        lab = labs.load(options.name)
        if options.host is None:
            code = ranks.run_ranks(lab, options.argv, timeout=options.timeout, each=options.ranks)
        else:
            code = ranks.run_on(
                lab, options.host, options.argv, timeout=options.timeout, each=options.ranks
            )
    output.document({"status": code})
    return code if code >= 0 else 128 - code  # ended by a signal: as a shell reports it


def down(options: argparse.Namespace, output: Output) -> int:
    """Remove labs and end their processes; with --all, also the remains of killed runs."""
    with _refusals():
        names = labs.names() if options.all else [options.name]
        removed = [namespace for name in names for namespace in labs.down(name)]
        if options.all:
            removed += namespaces.cleanup()
    output.line(f"{len(removed)} namespaces removed")
    if options.all:
        output.line(f"{len(scratch.cleanup())} folders of killed runs removed")
        for owner in namespaces.owners():
            output.line(f"process {owner} still runs and uses its fabric; end it first")
    output.document(removed)
    return 0


def change(options: argparse.Namespace, output: Output) -> int:
    """Cut, restore, limit or impair a link, one direction of it, or all links."""
    with _refusals(), labs.changing(options.name) as lab:
        if options.change == "cut":
            lab.cut(options.link, silent=options.silent)
        elif options.change == "restore":
            lab.restore(options.link)
        elif options.change == "limit":
            lab.limit(options.link, options.rate)
        else:
            lab.lose(options.loss, options.link, burst_length=options.burst_length)
        document = _description(options.name, lab)
    output.line(f"{options.link or 'all links'}: {options.change} done")
    output.document(document)
    return 0


def _shape(options: argparse.Namespace) -> dict[str, int]:
    """Hosts, leaves and spines; those that were not given follow from `--place`, if it was."""
    place = options.place
    leaves = options.leaves or (max(place) + 1 if place else DEFAULT_LEAVES)
    spines = options.spines
    if spines is None:
        spines = int(bool(place) and leaves > 1)
    return {
        "hosts": options.hosts or len(place) or DEFAULT_HOSTS,
        "leaves": leaves,
        "spines": spines,
    }


@contextmanager
def _refusals() -> Iterator[None]:
    """Raises: BadConfig in place of FabricError."""
    try:
        yield
    except FabricError as exc:
        raise BadConfig(f"lab: {exc}") from exc


def _chosen(options: argparse.Namespace) -> list[str]:
    return [options.name] if options.name else labs.names()


def _description(name: str, lab: Fabric) -> dict[str, Any]:
    counters = lab.statistics()
    return {
        "name": name,
        "plan": asdict(lab.plan),
        "features": lab.features(),
        "hosts": [
            {
                "host": host,
                "namespace": lab.host_namespace(host),
                "addresses": [lab.address(host, rail) for rail in range(lab.plan.rails)],
            }
            for host in range(lab.hosts)
        ],
        "links": [
            {"direction": way, **asdict(condition), **asdict(counters[way])}
            for way, condition in lab.conditions.items()
        ],
    }


def _show_hosts(lab: Fabric, output: Output) -> None:
    rows = [
        [
            host,
            lab.host_namespace(host),
            " ".join(lab.address(host, rail) for rail in range(lab.plan.rails)),
        ]
        for host in range(lab.hosts)
    ]
    output.line(table.render(("host", "namespace", "addresses"), rows, left=3))


def _show_links(links: list[dict[str, Any]], output: Output) -> None:
    rows = [
        [link["direction"], link["rate"] or None, _state(link), *(link[key] for key in COUNTERS)]
        for link in links
    ]
    header = ("link", "rate", "state", *COUNTERS.values())
    output.line(table.render(header, rows, left=3))


def _state(link: dict[str, Any]) -> str:
    faults = [f"{link[key]:.3g} {key}" for key in ("loss", "burst_loss") if link[key]]
    if link["delay"]:
        faults.insert(0, f"{show_duration(link['delay'])} delay")
    if link["cut"] != "no":
        faults.insert(0, f"cut ({link['cut']})")
    return ", ".join(faults) or "up"
