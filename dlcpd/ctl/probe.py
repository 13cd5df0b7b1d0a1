"""`dlcpctl probe`: the rates of a job's hosts and racks, measured over its own flows."""

import argparse
from collections.abc import Iterator, Mapping
from typing import Any, Final

from dlcpd.cli import table
from dlcpd.cli.output import Output
from dlcpd.contract.inquiries import Probed, ProbeRequest
from dlcpd.inspection.conversation import Conversation
from dlcpd.planning.rates import in_words

PATIENCE: Final = 120.0  # seconds; 38 rounds on slow links take a minute
HEADER: Final = ("host", "rack", "send", "receive")
UPLINKS: Final = ("rack", "out of it", "into it")


def probe(options: argparse.Namespace, output: Output) -> int:
    """Probe a job, and offer it the result. Raises: BadOperation, ProbeFailed, TooMany; as
    Conversation does."""
    with Conversation(options.socket, PATIENCE) as daemon:
        request = ProbeRequest(options.job, adopt=not options.dry_run)
        found = daemon.ask(request, Probed).read()
    output.line("\n".join(_lines(found, options.dry_run)))
    output.document({"command": "probe", **found})
    return 0


def _lines(found: Mapping[str, Any], dry_run: bool) -> Iterator[str]:  # of the call
    hosts: dict[str, dict[str, Any]] = found["hosts"]
    rows = [
        [host, one["rack"] or None, in_words(sum(one["out_bps"])), in_words(sum(one["in_bps"]))]
        for host, one in hosts.items()
    ]
    yield table.render(HEADER, rows, left=2)
    racks = {one["rack"]: (one["up_bps"], one["down_bps"]) for one in hosts.values()}
    if uplinks := [[rack, *map(in_words, rates)] for rack, rates in racks.items() if rack]:
        yield "\n" + table.render(UPLINKS, uplinks)
    yield f"\nracks: {found['racks']}"
    for job in found["beside"]:
        yield f"note: traffic of job {job!r} ran beside the probe: rates may be too low"
    if found["differs"]:
        yield f"note: {found['differs']}"
    yield f"plan: {found['plan']}"
    offered = "offered to the job" if found["offered"] else "not offered: the job adopts another"
    yield f"{found['rounds']} rounds in {found['seconds']:.1f} s; " + (
        "not offered (--dry-run)" if dry_run else offered
    )
