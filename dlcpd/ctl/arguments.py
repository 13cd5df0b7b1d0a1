"""What can be typed after `dlcpctl`: the operating commands, and what other packages add."""

import argparse
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Final

from dlcpd import __version__
from dlcpd.ctl import completion, configuration, keys, trace
from dlcpd.ctl.doctor import command as doctor
from dlcpd.ctl.drain import drain
from dlcpd.ctl.extensions import extend, installed
from dlcpd.ctl.grammar import Commands, command, whole
from dlcpd.ctl.ledger import ledger, steps
from dlcpd.ctl.page.command import DEFAULT as PAGE
from dlcpd.ctl.page.command import page
from dlcpd.ctl.replay import replay_ledgers
from dlcpd.ctl.report.command import report
from dlcpd.ctl.sessions import paths, sessions
from dlcpd.ctl.status import peers, status
from dlcpd.ctl.top import top
from dlcpd.daemon.config import IDENTITY, KEYS, DaemonTable

EXIT_CODES: Final = (
    "Exit codes: 0 done, and nothing is wrong; 1 it failed, or something does not hold; "
    "2 the command line, the configuration or a file is wrong; 130 interrupted."
)
MAX_LEDGER: Final = 1000  # rows; what a daemon gives out at once


def parser(
    environ: Mapping[str, str], extensions: Iterable[EntryPoint] = ()
) -> argparse.ArgumentParser:
    """The whole grammar. `options.run(options, output)` is the command."""
    top = argparse.ArgumentParser(
        prog="dlcpctl",
        description="Inspect, measure and verify dlcpd.",
        epilog=EXIT_CODES,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"dlcpctl {__version__}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")
    _add_inspection(commands, environ)
    _add_trace(commands, environ)
    _add_report(commands)
    _add_keys(commands)
    _add_ledger(commands, environ)
    _add_replay(commands)
    doctor.add(commands, environ)
    configuration.add(commands)
    completion.add(commands, top)
    extend(commands, extensions)
    return top


def documented() -> argparse.ArgumentParser:
    """The grammar as manual pages show it: all that is installed, and nobody's environment."""
    return parser({}, installed())


def _add_inspection(commands: Commands, environ: Mapping[str, str]) -> None:
    made = {}
    for name, run, text in (
        ("status", status, "Show a daemon's sessions, paths and counters."),
        ("top", top, "Show rates, losses and who is late, again and again."),
        ("sessions", sessions, "Show a daemon's sessions, a row each."),
        ("peers", peers, "Show the peers of a daemon's sessions, path by path."),
        ("paths", paths, "Show each class of datagrams on each path to each peer."),
        ("page", page, "Serve a daemon's status to a browser, live, until Ctrl-C."),
        ("drain", drain, "End a daemon as SIGTERM does, and say what it waits for."),
    ):
        made[name] = command(commands, name, run, text)
        _add_socket(made[name], environ)
    made["status"].add_argument(
        "--ledger",
        type=whole(0, MAX_LEDGER),
        default=0,
        metavar="N",
        help="newest rows of the loss ledger to show",
    )
    made["top"].add_argument("--once", action="store_true", help="one picture, and end")
    made["top"].add_argument(
        "--interval", type=whole(1, 3600), default=2, metavar="N", help="seconds (%(default)s)"
    )
    made["page"].add_argument(
        "--listen",
        default=PAGE,
        metavar="A:P",
        help="address and port (%(default)s); beyond loopback browsers need a token, which the "
        "URL that is printed has",
    )
    made["page"].add_argument(
        "--token-file",
        type=Path,
        metavar="FILE",
        help="with the token, of mode 0600, instead of a new one; also on loopback",
    )
    made["drain"].add_argument(
        "--wait",
        type=whole(1, 86_400),
        default=60,
        metavar="N",
        help="seconds until it should have ended (%(default)s)",
    )


def _add_socket(made: argparse.ArgumentParser, environ: Mapping[str, str]) -> None:
    """None where nobody says which: the usual one, or a private daemon's."""
    made.add_argument(
        "--socket",
        default=environ.get("DLCPD_SOCKET") or None,
        metavar="S",
        help=f"session socket (DLCPD_SOCKET, {DaemonTable().socket}, or that of a private daemon)",
    )


def _add_trace(commands: Commands, environ: Mapping[str, str]) -> None:
    text = "Record some steps of a daemon's sessions, and write a timeline for Perfetto."
    made = command(commands, "trace", trace.trace, text)
    _add_socket(made, environ)
    made.add_argument(
        "--steps",
        type=whole(1, trace.MAX_STEPS),
        default=5,
        metavar="N",
        help="until a session's first bucket has come again N times",
    )
    made.add_argument(
        "--timeout",
        type=whole(1, trace.MAX_TIMEOUT),
        default=60,
        metavar="S",
        help="seconds to wait for them (%(default)s)",
    )
    made.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("trace.json"),
        metavar="FILE",
        help="(%(default)s)",
    )
    made.add_argument(
        "--join",
        type=Path,
        nargs=2,
        metavar=("TRACE", "PROFILE"),
        help="record nothing: write both, on torch.profiler's clock",
    )


def _add_report(commands: Commands) -> None:
    text = "Write what a training or a benchmark left as one HTML file, to look at."
    made = command(commands, "report", report, text)
    made.add_argument(
        "runs",
        nargs="+",
        type=Path,
        metavar="RUN",
        help="JSON of dlcpctl bench, demo or verify; a file of dlcpctl trace; "
        "metrics of a training; a folder with ledgers",
    )
    made.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("report.html"),
        metavar="FILE",
        help="(%(default)s)",
    )


def _add_keys(commands: Commands) -> None:
    text = "Make this host's identity, and say which hosts may be its peers."
    actions = commands.add_parser("keys", help=text, description=text).add_subparsers(
        dest="action", required=True, metavar="ACTION"
    )
    made = _keys_command(actions, "new", keys.new, "Make this host's identity.")
    made.add_argument("--host", default="", metavar="NAME", help="(default: this host's name)")
    _keys_command(actions, "show", keys.show, "Print its public key, as other hosts want it.")
    made = _keys_command(actions, "authorise", keys.authorise, "Let hosts be peers of this one.")
    made.add_argument("files", nargs="+", type=Path, metavar="FILE", help="printed by keys show")
    made.add_argument("--replace", action="store_true", help="revoke all other keys of these hosts")
    made = _keys_command(actions, "revoke", keys.revoke, "Let a host be no peer any more.")
    made.add_argument("host", metavar="HOST")
    made.add_argument("--key", type=keys.check_key, metavar="KEY", help="only this one of its keys")
    _keys_command(actions, "list", keys.list_hosts, "Show the hosts that may be peers.")


def _keys_command(
    actions: Commands, name: str, run: Callable[..., int], text: str
) -> argparse.ArgumentParser:
    made = command(actions, name, run, text)
    made.add_argument(
        "--keys", type=Path, default=KEYS, metavar="DIR", help="folder of the keys (%(default)s)"
    )
    if name in ("new", "show", "list"):
        made.add_argument(
            "--identity", type=Path, metavar="FILE", help=f"(default: {IDENTITY} in the folder)"
        )
    return made


def _add_ledger(commands: Commands, environ: Mapping[str, str]) -> None:
    text = "Sum up what was waived: by rank, way, path, name and step, and the worst transfers."
    made = command(commands, "ledger", ledger, text)
    made.add_argument(
        "folders",
        nargs="*",
        type=Path,
        metavar="FOLDER",
        help="with ledgers, or above them; none: ask a daemon",
    )
    _add_socket(made, environ)
    made.add_argument("--job", default="", metavar="NAME", help="only of this job")
    made.add_argument(
        "--steps", type=steps, metavar="A-B", help="only these, from 0; with FOLDER (all)"
    )
    made.add_argument(
        "--worst",
        type=whole(0, 10_000),
        default=10,
        metavar="N",
        help="transfers to list (%(default)s)",
    )


def _add_replay(commands: Commands) -> None:
    text = "Compute bounded operations again from ledgers of all ranks, and compare bit for bit."
    made = command(commands, "replay", replay_ledgers, text)
    made.add_argument(
        "ledgers", nargs="+", metavar="LEDGER", help="folder with ledgers of ranks, or above them"
    )
    made.add_argument(
        "--inputs",
        metavar="FILE.py:FUNCTION",
        help="makes what a rank contributed: function(rank, operation) -> array; by default "
        "what was recorded beside the ledgers",
    )
