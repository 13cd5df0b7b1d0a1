"""What can be typed after `dlcpctl`: the operating commands, and what other packages add."""

import argparse
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Final

from dlcpd import __version__
from dlcpd.ctl.doctor import arguments as doctor
from dlcpd.ctl.extensions import extend, installed
from dlcpd.ctl.grammar import Commands, LateParser, Need, OnDemand, command, complete, whole
from dlcpd.daemon.config import IDENTITY, KEYS, DaemonTable

EXIT_CODES: Final = (
    "Exit codes: 0 done, and nothing is wrong; 1 it failed, or something does not hold; "
    "2 the command line, the configuration or a file is wrong; 130 interrupted."
)
MAX_LEDGER: Final = 1000  # rows; what a daemon gives out at once
MAX_STEPS: Final = 1000  # of a trace: a recording has room for 65,536 events
MAX_TIMEOUT: Final = 3600  # seconds that a trace may take
PAGE: Final = "127.0.0.1:7480"
SHELLS: Final = ("bash", "zsh", "tcsh")
SHTAB: Final = Need("shtab", "shtab", "completion")
_KEYS: Final = "dlcpd.ctl.keys"


def parser(
    environ: Mapping[str, str], extensions: Iterable[EntryPoint] = ()
) -> argparse.ArgumentParser:
    """The whole grammar. `options.run(options, output)` is the command."""
    top = LateParser(
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
    _add_config(commands)
    _add_completion(commands, top)
    extend(commands, extensions)
    return top


def documented() -> argparse.ArgumentParser:
    """The grammar as manual pages show it: all that is installed, and nobody's environment."""
    made = parser({}, installed())
    complete(made)
    return made


def _add_inspection(commands: Commands, environ: Mapping[str, str]) -> None:
    made = {}
    for name, module, text in (
        ("status", "dlcpd.ctl.status", "Show a daemon's sessions, paths and counters."),
        ("top", "dlcpd.ctl.top", "Show rates, losses and who is late, again and again."),
        ("sessions", "dlcpd.ctl.sessions", "Show a daemon's sessions, a row each."),
        ("peers", "dlcpd.ctl.status", "Show the peers of a daemon's sessions, path by path."),
        ("paths", "dlcpd.ctl.sessions", "Show each class of datagrams on each path to each peer."),
        (
            "page",
            "dlcpd.ctl.page.command",
            "Serve a daemon's status to a browser, live, until Ctrl-C.",
        ),
        ("drain", "dlcpd.ctl.drain", "End a daemon as SIGTERM does, and say what it waits for."),
    ):
        made[name] = command(commands, name, OnDemand(module, name), text)
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
    made = command(commands, "trace", OnDemand("dlcpd.ctl.trace", "trace"), text)
    _add_socket(made, environ)
    made.add_argument(
        "--steps",
        type=whole(1, MAX_STEPS),
        default=5,
        metavar="N",
        help="until a session's first bucket has come again N times",
    )
    made.add_argument(
        "--timeout",
        type=whole(1, MAX_TIMEOUT),
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
    made = command(commands, "report", OnDemand("dlcpd.ctl.report.command", "report"), text)
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
    made = _keys_command(actions, "new", OnDemand(_KEYS, "new"), "Make this host's identity.")
    made.add_argument("--host", default="", metavar="NAME", help="(default: this host's name)")
    _keys_command(
        actions, "show", OnDemand(_KEYS, "show"), "Print its public key, as other hosts want it."
    )
    made = _keys_command(
        actions, "authorise", OnDemand(_KEYS, "authorise"), "Let hosts be peers of this one."
    )
    made.add_argument("files", nargs="+", type=Path, metavar="FILE", help="printed by keys show")
    made.add_argument("--replace", action="store_true", help="revoke all other keys of these hosts")
    made = _keys_command(
        actions, "revoke", OnDemand(_KEYS, "revoke"), "Let a host be no peer any more."
    )
    made.add_argument("host", metavar="HOST")
    made.add_argument(
        "--key", type=OnDemand(_KEYS, "check_key"), metavar="KEY", help="only this one of its keys"
    )
    _keys_command(
        actions, "list", OnDemand(_KEYS, "list_hosts"), "Show the hosts that may be peers."
    )


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


def _add_config(commands: Commands) -> None:
    text = "Check, show and explain the daemon's configuration."
    actions = commands.add_parser("config", help=text, description=text).add_subparsers(
        dest="action", required=True, metavar="ACTION"
    )
    made = _config_command(actions, "check", "Say whether files are valid, and change nothing.")
    made.add_argument("files", nargs="+", type=Path, metavar="FILE")
    made = _config_command(actions, "show", "Print what a file comes to on this host, as TOML.")
    made.add_argument("file", nargs="?", type=Path, metavar="FILE", help="(the defaults)")
    made.add_argument("--changed", action="store_true", help="only what is not the default")
    made = _config_command(actions, "explain", "Say what a setting means.")
    made.add_argument(
        "key", nargs="?", metavar="KEY", help="like network.entropy, entropy or network (all)"
    )


def _config_command(actions: Commands, name: str, text: str) -> argparse.ArgumentParser:
    return command(actions, name, OnDemand("dlcpd.ctl.configuration", name), text)


def _add_completion(commands: Commands, top: argparse.ArgumentParser) -> None:
    text = "Print a script for a shell, so that it completes commands, options and files."
    run = partial(OnDemand("dlcpd.ctl.completion", "completion"), top)
    made = command(commands, "completion", run, text, needs=(SHTAB,))
    made.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"({', '.join(SHELLS)})")


def _add_ledger(commands: Commands, environ: Mapping[str, str]) -> None:
    text = "Sum up what was waived: by rank, way, path, name and step, and the worst transfers."
    made = command(commands, "ledger", OnDemand("dlcpd.ctl.ledger", "ledger"), text)
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
        "--steps",
        type=OnDemand("dlcpd.ctl.ledger", "steps"),
        metavar="A-B",
        help="only these, from 0; with FOLDER (all)",
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
    made = command(commands, "replay", OnDemand("dlcpd.ctl.replay", "replay_ledgers"), text)
    made.add_argument(
        "ledgers", nargs="+", metavar="LEDGER", help="folder with ledgers of ranks, or above them"
    )
    made.add_argument(
        "--inputs",
        metavar="FILE.py:FUNCTION",
        help="makes what a rank contributed: function(rank, operation) -> array; by default "
        "what was recorded beside the ledgers",
    )
