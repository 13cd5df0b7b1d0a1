"""The grammar of `dlcpctl`: the commands of this package and of other packages."""

import argparse
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Final

from dlcpd.cli.extensions import extend, installed
from dlcpd.cli.grammar import (
    Commands,
    GroupedHelp,
    LateParser,
    Need,
    OnDemand,
    command,
    complete,
    whole,
)
from dlcpd.ctl import operating
from dlcpd.ctl.operating import add_socket
from dlcpd.daemon.config.tables import IDENTITY, KEYS
from dlcpd.daemon.show_versions import ShowVersions
from dlcpd.doctor import arguments as doctor

EXIT_CODES: Final = (
    "Exit codes: 0 success; 1 the command failed, or a check did; "
    "2 the command line, the configuration or a file is wrong; 130 interrupted."
)
MAX_STEPS: Final = 1000  # of a trace; a recording holds at most 65,536 events
MAX_TIMEOUT: Final = 3600  # seconds that a trace may take
GROUPS: Final = (  # headings of --help, and commands
    (
        "look",
        (
            *("status", "health", "top", "sessions", "peers", "paths", "page"),
            *("trace", "ledger", "report", "doctor", "bugreport"),
        ),
    ),
    ("act", ("cordon", "uncordon", "drain", "stop", "probe", "keys", "config", "completion")),
    ("measure", ("bench", "demo", "verify", "lab", "replay", "plan")),
)
SHELLS: Final = ("bash", "zsh", "tcsh")
SHTAB: Final = Need("shtab", "shtab", "completion")
_KEYS: Final = "dlcpd.ctl.keys"


class _Help(GroupedHelp):
    """The help of `dlcpctl`."""

    groups = GROUPS


def parser(
    environ: Mapping[str, str], extensions: Iterable[EntryPoint] = ()
) -> argparse.ArgumentParser:
    """The whole grammar. `options.run(options, output)` is the command."""
    top = LateParser(
        prog="dlcpctl",
        description="Inspect, measure and verify dlcpd.",
        epilog=EXIT_CODES,
        formatter_class=_Help,
    )
    top.add_argument("--version", action=ShowVersions)
    commands = top.add_subparsers(
        dest="command", title="commands", required=True, metavar="COMMAND"
    )
    operating.add(commands, environ)
    _add_trace(commands, environ)
    _add_report(commands)
    _add_keys(commands)
    _add_ledger(commands, environ)
    _add_replay(commands)
    _add_plan(commands)
    doctor.add(commands, environ)
    _add_bugreport(commands, environ)
    _add_config(commands, environ)
    _add_completion(commands, top)
    extend(commands, extensions)
    return top


def documented() -> argparse.ArgumentParser:
    """The grammar for manual pages: all installed commands, without environment variables."""
    made = parser({}, installed())
    complete(made)
    return made


def _add_trace(commands: Commands, environ: Mapping[str, str]) -> None:
    text = "Record steps of a daemon's sessions, and write a timeline for Perfetto."
    made = command(commands, "trace", OnDemand("dlcpd.ctl.trace", "trace"), text)
    add_socket(made, environ)
    made.add_argument(
        "--steps",
        type=whole(1, MAX_STEPS),
        default=5,
        metavar="N",
        help="steps to record (%(default)s); a step starts when a session's first bucket repeats",
    )
    made.add_argument(
        "--timeout",
        type=whole(1, MAX_TIMEOUT),
        default=60,
        metavar="S",
        help="seconds to wait for these steps (%(default)s)",
    )
    made.add_argument(
        "-o",
        "--output",
        type=Path,
        default=Path("trace.json"),
        metavar="FILE",
        help="output file (%(default)s)",
    )
    made.add_argument(
        "--join",
        type=Path,
        nargs=2,
        metavar=("TRACE", "PROFILE"),
        help="record nothing; join two files, on the clock of torch.profiler",
    )


def _add_report(commands: Commands) -> None:
    text = "Write an HTML report of a training, a benchmark, a trace or ledgers."
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
        help="output file (%(default)s)",
    )


def _add_keys(commands: Commands) -> None:
    text = "Manage this host's key pair, and the keys of hosts that may be its peers."
    actions = commands.add_parser("keys", help=text, description=text).add_subparsers(
        dest="action", required=True, metavar="ACTION"
    )
    made = _keys_command(actions, "new", OnDemand(_KEYS, "new"), "Make this host's key pair.")
    made.add_argument(
        "--host",
        default="",
        metavar="NAME",
        help="name in the key file (default: this host's name)",
    )
    _keys_command(
        actions,
        "show",
        OnDemand(_KEYS, "show"),
        "Print the public key, to authorise it on other hosts.",
    )
    made = _keys_command(
        actions, "authorise", OnDemand(_KEYS, "authorise"), "Allow hosts to be peers of this host."
    )
    made.add_argument("files", nargs="+", type=Path, metavar="FILE", help="output of keys show")
    made.add_argument("--replace", action="store_true", help="revoke all other keys of these hosts")
    made = _keys_command(actions, "revoke", OnDemand(_KEYS, "revoke"), "Revoke the keys of a host.")
    made.add_argument("host", metavar="HOST")
    made.add_argument(
        "--key",
        type=OnDemand(_KEYS, "check_key"),
        metavar="KEY",
        help="revoke only this key of the host",
    )
    _keys_command(
        actions, "list", OnDemand(_KEYS, "list_hosts"), "List the hosts that may be peers."
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
            "--identity",
            type=Path,
            metavar="FILE",
            help=f"file of the key pair (default: {IDENTITY} in that folder)",
        )
    return made


def _add_config(commands: Commands, environ: Mapping[str, str]) -> None:
    text = "Check, show and explain the daemon's configuration."
    actions = commands.add_parser("config", help=text, description=text).add_subparsers(
        dest="action", required=True, metavar="ACTION"
    )
    made = _config_command(actions, "check", "Check whether files are valid.")
    made.add_argument("files", nargs="+", type=Path, metavar="FILE")
    made = _config_command(actions, "show", "Print the values in use on this host, as TOML.")
    made.add_argument(
        "file",
        nargs="?",
        type=Path,
        metavar="FILE",
        help="configuration file (default: none, all settings have defaults)",
    )
    made.add_argument(
        "--changed", action="store_true", help="only settings that differ from the defaults"
    )
    made.add_argument(
        "--running", action="store_true", help="the values that the running daemon uses"
    )
    add_socket(made, environ)
    made = _config_command(actions, "diff", "List settings that the running daemon does not use.")
    made.add_argument("file", type=Path, metavar="FILE", help="its configuration file")
    made.add_argument(
        "--wait",
        type=whole(0, 3600),
        default=0,
        metavar="N",
        help="seconds that a reload may take (%(default)s)",
    )
    add_socket(made, environ)
    made = _config_command(actions, "explain", "Explain settings.")
    made.add_argument(
        "key",
        nargs="?",
        metavar="KEY",
        help="network.entropy, entropy, or a table like network (default: all)",
    )


def _config_command(actions: Commands, name: str, text: str) -> argparse.ArgumentParser:
    return command(actions, name, OnDemand("dlcpd.ctl.configuration", name), text)


def _add_bugreport(commands: Commands, environ: Mapping[str, str]) -> None:
    text = "Collect what a person needs to look into a problem, without secrets, in one archive."
    run = partial(OnDemand("dlcpd.ctl.bugreport", "bugreport"), environ)
    made = command(commands, "bugreport", run, text)
    add_socket(made, environ)
    made.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help="configuration of the daemon (default: /etc/dlcpd/dlcpd.toml, if it exists)",
    )
    made.add_argument(
        "--unit", default="dlcpd", metavar="NAME", help="unit of its log and state (%(default)s)"
    )
    made.add_argument(
        "--log", type=Path, metavar="FILE", help="its log (default: the journal of that unit)"
    )
    made.add_argument(
        "--steps",
        type=whole(0, MAX_STEPS),
        default=2,
        metavar="N",
        help="steps to trace, for 10 s at most, if a job runs (%(default)s); 0 = no trace",
    )
    made.add_argument(
        "-o",
        "--output",
        type=Path,
        metavar="FILE",
        help="archive (default: dlcpd-bugreport-HOST.tar.gz)",
    )


def _add_completion(commands: Commands, top: argparse.ArgumentParser) -> None:
    text = "Print a completion script for a shell."
    run = partial(OnDemand("dlcpd.ctl.completion", "completion"), top)
    made = command(commands, "completion", run, text, needs=(SHTAB,))
    made.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}")


def _add_ledger(commands: Commands, environ: Mapping[str, str]) -> None:
    text = "Sum up waived segments by rank, peer, path, name and step; list the worst transfers."
    made = command(commands, "ledger", OnDemand("dlcpd.ctl.ledger", "ledger"), text)
    made.add_argument(
        "folders",
        nargs="*",
        type=Path,
        metavar="FOLDER",
        help="ledgers, or folders above them (default: ask a running daemon)",
    )
    add_socket(made, environ)
    made.add_argument("--job", default="", metavar="NAME", help="only ledgers of this job")
    made.add_argument(
        "--steps",
        type=OnDemand("dlcpd.ctl.ledger", "steps"),
        metavar="A-B",
        help="only these steps, counted from 0; needs FOLDER (default: all)",
    )
    made.add_argument(
        "--worst",
        type=whole(0, 10_000),
        default=10,
        metavar="N",
        help="transfers to list (%(default)s)",
    )


def _add_replay(commands: Commands) -> None:
    text = (
        "Compute bounded operations again from the ledgers of all ranks, and compare bit for bit."
    )
    made = command(commands, "replay", OnDemand("dlcpd.ctl.replay", "replay_ledgers"), text)
    made.add_argument(
        "ledgers", nargs="+", metavar="LEDGER", help="ledgers of ranks, or folders above them"
    )
    made.add_argument(
        "--inputs",
        metavar="FILE.py:FUNCTION",
        help="function(rank, operation) -> array that makes the input of a rank; by default, the "
        "ledgers have the inputs",
    )


def _add_plan(commands: Commands) -> None:
    text = "Plan all-reduces for the network of a topology file: bound, trees, gain and reasons."
    made = command(commands, "plan", OnDemand("dlcpd.ctl.plan", "plan"), text)
    made.add_argument("file", type=Path, metavar="FILE", help="topology file (docs/planner.md)")
    made.add_argument("--hosts", metavar="A,B", help="hosts of the job (default: all of the file)")
    made.add_argument("--svg", type=Path, metavar="FILE", help="also draw network and trees")
