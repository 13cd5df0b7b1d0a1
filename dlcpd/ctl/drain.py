"""`dlcpctl drain`: lets no new jobs in, and waits until the running ones have ended."""

import argparse
import time
from typing import Any, Final

from dlcpd.cli.output import Output
from dlcpd.contract.inquiries import CordonRequest
from dlcpd.ctl.cordon import AGAIN, ask
from dlcpd.inspection.report import query, titled

LOOK: Final = 1.0  # seconds between looks at the sessions
MAX_JOBS: Final = 8  # names in a line of progress


def drain(options: argparse.Namespace, output: Output) -> int:
    """Exit code 0: no session is left; 1: some are after `--wait` seconds. Nothing is ended, and
    the daemon stays cordoned, also where this is interrupted.

    Raises: NotPermitted; as Conversation does.
    """
    request = CordonRequest(on=True, kept=not options.once, why=options.why or "draining")
    output.line(f"{ask(options.socket, request).text}; {AGAIN}")
    until, said = time.monotonic() + options.wait, ""
    while sessions := query(options.socket, 0)["sessions"]:
        if (running := _running(sessions)) != said:
            said = running
            output.line(f"  still running: {said}")
        left = until - time.monotonic()
        if left <= 0:
            output.line(f"{len(sessions)} sessions are left after {options.wait} s; they go on")
            break
        time.sleep(min(LOOK, left))
    else:
        output.line("no session is left: it is safe to stop the daemon or the host")
    output.document({"drained": not sessions, "sessions": len(sessions)})
    return 1 if sessions else 0


def _running(sessions: list[dict[str, Any]]) -> str:
    """Jobs with their numbers of local ranks."""
    ranks: dict[str, int] = {}
    for session in sessions:
        ranks[titled(session)] = ranks.get(titled(session), 0) + 1
    names = [f"{job} ({count} ranks)" for job, count in list(ranks.items())[:MAX_JOBS]]
    more = len(ranks) - len(names)
    return ", ".join(names) + (f", and {more} further jobs" if more else "")
