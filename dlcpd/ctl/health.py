"""`dlcpctl health`: whether a daemon lives and takes new jobs, for probes."""

import argparse

from msgspec.structs import asdict

from dlcpd.cli.output import Output
from dlcpd.contract.inquiries import Health, HealthRequest
from dlcpd.inspection.conversation import Conversation


def health(options: argparse.Namespace, output: Output) -> int:
    """Exit code 1 if the daemon is not healthy; with `--ready` also if it takes no new jobs.

    Raises: as Conversation does.
    """
    with Conversation(options.socket, options.timeout) as daemon:
        found = daemon.ask(HealthRequest(), Health)
    said = "ready" if found.ready else "healthy, not ready" if found.healthy else "not healthy"
    output.line(f"{said}: {found.text}" if found.text else said)
    output.document(asdict(found))
    return 0 if (found.ready if options.ready else found.healthy) else 1
