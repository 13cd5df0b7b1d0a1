"""The grammar of the commands that look at a running daemon, or end it."""

import argparse
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dlcpd.cli.grammar import Commands, OnDemand, command, whole
from dlcpd.ctl.columns import add_choice
from dlcpd.daemon.config.tables import DaemonTable

MAX_LEDGER: Final = 1000  # rows; the most that a daemon returns at a time
MAX_WAIT: Final = 7 * 86_400  # seconds; the longest that a job is waited for
MAX_REASON: Final = 1000  # characters; a request has room for 1,024
PAGE: Final = "127.0.0.1:7480"
LOOKS: Final = (  # name, module, help
    ("status", "dlcpd.ctl.status", "Show a daemon's sessions, paths and counters."),
    ("health", "dlcpd.ctl.health", "For probes: whether a daemon lives and takes new jobs."),
    ("top", "dlcpd.ctl.top", "Show rates, losses and late ranks, refreshed until Ctrl-C."),
    ("sessions", "dlcpd.ctl.sessions", "Show a daemon's sessions, one row each."),
    ("peers", "dlcpd.ctl.status", "Show the peers of a daemon's sessions, one row per path."),
    ("paths", "dlcpd.ctl.sessions", "Show the traffic classes on each path to each peer."),
    ("probe", "dlcpd.ctl.probe", "Measure the links of an idle job, and offer it a plan for them."),
    ("page", "dlcpd.page.command", "Serve a live status page to browsers, until Ctrl-C."),
)
ENDS: Final = (
    ("cordon", "dlcpd.ctl.cordon", "Let a daemon take no new jobs, also after it starts again."),
    ("uncordon", "dlcpd.ctl.cordon", "Let a daemon take new jobs again."),
    ("drain", "dlcpd.ctl.drain", "Take no new jobs, and wait until the running ones have ended."),
    ("stop", "dlcpd.ctl.stop", "End a daemon as SIGTERM does: running jobs end with an error."),
)


def add(commands: Commands, environ: Mapping[str, str]) -> None:
    """Add all of them."""
    made = {}
    for name, module, text in (*LOOKS, *ENDS):
        made[name] = command(commands, name, OnDemand(module, name), text)
        add_socket(made[name], environ)
    _fill_looks(made)
    for name in ("cordon", "drain"):
        made[name].add_argument(
            "--why",
            type=_reason,
            default="",
            metavar="TEXT",
            help="reason, for the jobs that are refused",
        )
        made[name].add_argument(
            "--once", action="store_true", help="until the daemon ends; the next one takes new jobs"
        )
    made["uncordon"].add_argument(
        "--once",
        action="store_true",
        help="until the daemon ends; the next one is cordoned as before: for a read-only disk",
    )
    made["drain"].add_argument(
        "--wait",
        type=whole(1, MAX_WAIT),
        default=MAX_WAIT,
        metavar="N",
        help="seconds to wait for the end of the jobs (%(default)s); exit code 1 after them",
    )
    made["stop"].add_argument(
        "--wait",
        type=whole(1, 86_400),
        default=60,
        metavar="N",
        help="seconds to wait for the end of the daemon (%(default)s)",
    )


def _reason(text: str) -> str:
    """An argparse type."""
    if len(text) > MAX_REASON:
        raise argparse.ArgumentTypeError(f"is longer than {MAX_REASON} characters")
    return text


def _fill_looks(made: Mapping[str, argparse.ArgumentParser]) -> None:
    """Options of LOOKS."""
    made["status"].add_argument(
        "--ledger",
        type=whole(0, MAX_LEDGER),
        default=0,
        metavar="N",
        help="newest rows of the loss ledger to show",
    )
    made["health"].add_argument(
        "--ready", action="store_true", help="exit code 1 also if no new jobs are taken"
    )
    made["health"].add_argument(
        "--timeout",
        type=whole(1, 3600),
        default=30,
        metavar="N",
        help="seconds to wait for the answer (%(default)s)",
    )
    made["probe"].add_argument(
        "--job", default="", metavar="NAME", help="job (default: the only one of the daemon)"
    )
    made["probe"].add_argument(
        "--dry-run", action="store_true", help="measure only; the job keeps its plan"
    )
    for name in ("peers", "paths"):
        add_choice(made[name])
    made["top"].add_argument(
        "--job", default="", metavar="NAME", help='only this job; the key "j" goes to the next'
    )
    made["top"].add_argument(
        "--sort",
        default="",
        metavar="COLUMN",
        help='sort paths by this column, largest first; the key "s" goes to the next',
    )
    made["top"].add_argument("--once", action="store_true", help="print one frame, then exit")
    made["top"].add_argument(
        "--interval",
        type=whole(1, 3600),
        default=2,
        metavar="N",
        help="seconds between frames (%(default)s)",
    )
    _fill_page(made["page"])


def _fill_page(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--listen",
        default=PAGE,
        metavar="A:P",
        help="address and port (%(default)s); beyond loopback, browsers need a token, which is in "
        "the printed URL",
    )
    made.add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="file with the token, mode 0600, instead of a new token; also for loopback",
    )
    made.add_argument(
        "--job", default="", metavar="NAME", help="show only this job, over the hosts of --of"
    )
    made.add_argument(
        "--of",
        action="append",
        default=[],
        metavar="URL|S",
        help="page of a host, which gets the token of --token-file, or a session socket; repeat it "
        "for each host (default: this host's daemon)",
    )


def add_socket(made: argparse.ArgumentParser, environ: Mapping[str, str]) -> None:
    """The default is None: the usual socket, or that of a private daemon."""
    made.add_argument(
        "--socket",
        default=environ.get("DLCPD_SOCKET") or None,
        metavar="S",
        help=(
            f"session socket (default: DLCPD_SOCKET, {DaemonTable().socket}, or the socket of a "
            "private daemon)"
        ),
    )
