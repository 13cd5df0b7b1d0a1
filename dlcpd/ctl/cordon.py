"""`dlcpctl cordon` and `dlcpctl uncordon`: whether a daemon takes new jobs."""

import argparse
from typing import Final

from msgspec.structs import asdict

from dlcpd.cli.output import Output
from dlcpd.contract.inquiries import CordonRequest, Health
from dlcpd.inspection.conversation import Conversation

AGAIN: Final = "`dlcpctl uncordon` lets new jobs in again"


def cordon(options: argparse.Namespace, output: Output) -> int:
    """Let no new jobs in. Raises: NotPermitted; as Conversation does."""
    found = ask(options.socket, CordonRequest(on=True, kept=not options.once, why=options.why))
    output.line(f"{found.text}: new jobs are refused, running ones go on; {AGAIN}")
    output.document(asdict(found))
    return 0


def uncordon(options: argparse.Namespace, output: Output) -> int:
    """Let new jobs in. Raises: NotPermitted; as Conversation does."""
    found = ask(options.socket, CordonRequest(on=False, kept=not options.once, why=""))
    output.line("new jobs are taken" if found.ready else f"no new jobs are taken: {found.text}")
    output.document(asdict(found))
    return 0


def ask(socket: str | None, request: CordonRequest) -> Health:
    """The daemon's answer."""
    with Conversation(socket) as daemon:
        return daemon.ask(request, Health)
