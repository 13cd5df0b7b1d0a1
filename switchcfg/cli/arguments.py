"""The command line of `switchcfg`: what may be said. What is done about it: main.py."""

import argparse
from collections.abc import Callable
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from switchcfg.cli import records
from switchcfg.cli.workflow import REVERT_AFTER
from switchcfg.errors import BadUsage
from switchcfg.intent.port_names import PORT_PATTERNS
from switchcfg.intent.table import bits_per_second


class _Parser(argparse.ArgumentParser):
    """argparse, but an error is one of ours; and half an option is none, such as --rec."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise BadUsage(message, self.format_usage())


def parser(description: str | None) -> argparse.ArgumentParser:
    """Its options name the command as `command`."""
    made = _Parser(prog="switchcfg", description=description)
    made.add_argument("--version", action="version", version=f"switchcfg {version('dlcpd')}")
    commands = made.add_subparsers(required=True, metavar="COMMAND", dest="command")
    _add_planning(commands)
    _add_importing(commands)
    _add_changing(commands)
    _add_asking(commands)
    return made


def documented() -> argparse.ArgumentParser:
    """The grammar as manual pages and completions show it."""
    return parser("Configure switches so that they honour dlcpd's traffic classes.")


def _add_planning(commands: Any) -> None:
    made = commands.add_parser("render", help="what devices shall be, in their own language")
    _common(made)
    made.add_argument("--out", type=Path, metavar="DIR", help="a file per device, not stdout")
    made = commands.add_parser("ports", help="what each port gets: queues, classes, thresholds")
    _common(made)
    _add_json(made)
    made = commands.add_parser("plan", help="what devices would be told")
    _common(made)
    made.add_argument(
        "--present",
        type=Path,
        metavar="PATH",
        help="what the device says of itself, instead of asking it: a file, or a folder with a "
        "file DEVICE.* for each",
    )
    made.add_argument("--remove", action="store_true", help="take away all that switchcfg made")
    made.add_argument("--out", type=Path, metavar="DIR", help="save DEVICE.plan.json here")
    made.add_argument(
        "--yang",
        type=Path,
        metavar="DIR",
        help="check SONiC switches against the YANG models in this folder too, such as a "
        "switch's own /usr/local/yang-models",
    )
    _add_reaching(made)
    made = commands.add_parser("show", help="a saved plan, and what the device would be told")
    made.add_argument("file", type=Path, metavar="PLAN")
    _add_json(made)


def _add_importing(commands: Any) -> None:
    made = commands.add_parser("import", help="an intent that keeps what a device has today")
    made.add_argument("name", metavar="NAME", help="of the device")
    made.add_argument("--platform", required=True, choices=sorted(PORT_PATTERNS))
    made.add_argument("--address", default="", metavar="HOST", help="where it answers (NAME)")
    made.add_argument(
        "--ports",
        action="append",
        metavar="NAME[,NAME...]",
        help="ports or ranges of them, such as Ethernet[1-48]; all that it tells of",
    )
    made.add_argument("--rate", type=_rate, default=0, metavar="RATE", help="of its ports")
    made.add_argument(
        "--present", type=Path, metavar="FILE", help="what it says of itself, not asked for now"
    )
    _add_ssh(made)
    _add_json(made)
    made.set_defaults(at_once=1)


def _add_changing(commands: Any) -> None:
    made = commands.add_parser(
        "diff", help="what devices themselves say that saved plans would change"
    )
    _add_plans(made)
    _add_reaching(made)
    made = commands.add_parser("apply", help="bring devices to what saved plans want")
    _add_plans(made)
    made.add_argument("--pending", action="store_true", help="leave it to `confirm` or to time")
    made.add_argument(
        "--diff", action="store_true", help="show what the device itself says that this changes"
    )
    _add_save(made)
    _add_traffic(
        made,
        "before a change is kept, ask the network too: two hosts by their SSH names, and the "
        "second one's IPv4 address on the fabric",
    )
    _add_reverting(made)
    made = commands.add_parser("rollback", help="take back what was last applied from here")
    made.add_argument("intent", type=Path, metavar="INTENT", help="TOML file")
    _add_selection(made, required=True)
    _add_save(made)
    _add_reverting(made)
    for name, text in (
        ("confirm", "keep what is pending"),
        ("abort", "revert what is pending, now"),
    ):
        made = commands.add_parser(name, help=text)
        _common(made)
        _add_records(made)
        if name == "confirm":
            _add_save(made)
        _add_reaching(made)


def _add_plans(made: argparse.ArgumentParser) -> None:
    made.add_argument("intent", type=Path, metavar="INTENT", help="TOML file")
    made.add_argument("plans", type=Path, nargs="+", metavar="PLAN", help="files, or folders")
    _add_selection(made)


def _add_reverting(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--revert-after",
        type=_seconds,
        metavar="S",
        help="seconds until a device reverts what was not confirmed "
        f"({REVERT_AFTER}; more where a step takes longer)",
    )
    _add_records(made)
    _add_reaching(made)


def _add_save(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--save",
        action="store_true",
        help="then have the device save all that it runs, so that a restart keeps it",
    )


def _add_records(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--records",
        type=Path,
        default=records.default_folder(),
        metavar="DIR",
        help="where what was applied is kept (%(default)s)",
    )


def _add_asking(commands: Any) -> None:
    for name, text in (
        ("verify", "are devices as the intent wants them?"),
        ("drift", "are devices as they were last applied from here?"),
        ("doctor", "can devices be configured?"),
    ):
        made = commands.add_parser(name, help=text)
        _common(made)
        _add_records(made)
        _add_reaching(made)
        made.set_defaults(remove=False, yang=None)
        if name == "verify":
            _add_traffic(
                made,
                "ask the network and not the devices: two hosts by their SSH names, and the "
                "second one's IPv4 address on the fabric",
            )

    made = commands.add_parser("history", help="who applied what from here, and when")
    made.add_argument("device", nargs="*", metavar="DEVICE", help="these; all where none is named")
    made.add_argument(
        "--last", type=_up_to(1000), default=20, metavar="N", help="so many records (%(default)s)"
    )
    _add_records(made)
    _add_json(made)


def _add_traffic(made: argparse.ArgumentParser, text: str) -> None:
    made.add_argument("--traffic", nargs=3, metavar=("SENDER", "RECEIVER", "ADDRESS"), help=text)
    made.add_argument(
        "--load",
        type=_rate,
        default=0,
        metavar="RATE",
        help="with --traffic: also overload the way, with more than it carries",
    )


def _rate(text: str) -> int:
    try:
        return bits_per_second(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None


def _up_to(most: int) -> Callable[[str], int]:
    def number(text: str) -> int:
        if not text.isdecimal() or not 1 <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r}: need 1..{most}")
        return int(text)

    return number


def _seconds(text: str) -> int:
    if not text.isdecimal() or not 5 <= int(text) <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r}: need 5..86400 seconds")
    return int(text)


def _common(made: argparse.ArgumentParser) -> None:
    made.add_argument("intent", type=Path, metavar="INTENT", help="TOML file")
    _add_selection(made)


def _add_selection(made: argparse.ArgumentParser, *, required: bool = False) -> None:
    """Partial work: which devices of the intent are meant."""
    made.add_argument(
        "--only",
        "--device",
        action="append",
        metavar="NAME[,NAME...]",
        required=required,
        help="these devices; a name may have * and ?, and the option may be repeated",
    )
    made.add_argument(
        "--skip", action="append", metavar="NAME[,NAME...]", help="all devices but these"
    )


def _add_reaching(made: argparse.ArgumentParser) -> None:
    """How devices are reached, and how what became of it is told."""
    _add_ssh(made)
    made.add_argument(
        "--at-once",
        type=_up_to(256),
        default=8,
        metavar="N",
        help="devices of one side at a time (%(default)s)",
    )
    _add_json(made)


def _add_ssh(made: argparse.ArgumentParser) -> None:
    made.add_argument("--ssh-config", type=Path, metavar="FILE", help="instead of ~/.ssh/config")


def _add_json(made: argparse.ArgumentParser) -> None:
    made.add_argument("--json", action="store_true", help="print JSON, errors too")
