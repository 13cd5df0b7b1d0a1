"""The command line of `switchcfg`; main.py runs the commands."""

import argparse
from importlib.metadata import version
from pathlib import Path
from typing import Any, NoReturn

from switchcfg.cli import records
from switchcfg.cli.option_types import rate, seconds, up_to
from switchcfg.cli.workflow import REVERT_AFTER
from switchcfg.errors import BadUsage
from switchcfg.intent.known import KNOWN


class _Parser(argparse.ArgumentParser):
    """argparse that raises BadUsage, and refuses abbreviated options such as --rec."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options, allow_abbrev=False)

    def error(self, message: str) -> NoReturn:
        raise BadUsage(message, self.format_usage())


def parser(description: str | None) -> argparse.ArgumentParser:
    """The parser; it stores the name of the command as `command`."""
    made = _Parser(prog="switchcfg", description=description)
    made.add_argument("--version", action="version", version=f"switchcfg {version('dlcpd')}")
    commands = made.add_subparsers(required=True, metavar="COMMAND", dest="command")
    _add_planning(commands)
    _add_importing(commands)
    _add_changing(commands)
    _add_asking(commands)
    return made


def documented() -> argparse.ArgumentParser:
    """The parser as manual pages and completions show it."""
    return parser("Configure switches so that they honour dlcpd's traffic classes.")


def _add_planning(commands: Any) -> None:
    made = commands.add_parser(
        "render",
        help="print the configuration that the intent requires, in each device's own language",
    )
    _common(made)
    made.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="write one file per device to this folder instead of stdout",
    )
    _add_ports(commands)
    made = commands.add_parser("plan", help="compare devices with the intent, and show the changes")
    _common(made)
    made.add_argument(
        "--present",
        type=Path,
        metavar="PATH",
        help=(
            "read the present configuration from this file, or from files DEVICE.* in this "
            "folder, instead of the devices"
        ),
    )
    made.add_argument(
        "--remove",
        action="store_true",
        help="plan the removal of everything that switchcfg configured",
    )
    made.add_argument(
        "--out",
        type=Path,
        metavar="DIR",
        help="save the plan of each device as DEVICE.plan.json in this folder",
    )
    made.add_argument(
        "--yang",
        type=Path,
        metavar="DIR",
        help="also check SONiC switches against the YANG models in this folder, such as a "
        "switch's own /usr/local/yang-models",
    )
    _add_records(made)
    _add_reaching(made)
    made = commands.add_parser(
        "show", help="show a saved plan: its changes, and the commands for the device"
    )
    made.add_argument("file", type=Path, metavar="PLAN")
    _add_json(made)


def _add_ports(commands: Any) -> None:
    made = commands.add_parser(
        "ports",
        help=(
            "show queues, classes and thresholds of each port, or what two configurations treat "
            "differently by code point"
        ),
    )
    made.add_argument("intent", type=Path, metavar="INTENT", nargs="?", help="intent file (TOML)")
    _add_selection(made)
    made.add_argument(
        "--before", type=Path, metavar="FILE", help="a configuration, as for plan --present"
    )
    made.add_argument("--after", type=Path, metavar="FILE", help="another of the same switch")
    made.add_argument("--platform", choices=tuple(KNOWN), help="platform of these configurations")
    _add_json(made)


def _add_importing(commands: Any) -> None:
    made = commands.add_parser(
        "import", help="print an intent that keeps the present configuration of a device"
    )
    made.add_argument("name", metavar="NAME", help="name of the device")
    made.add_argument("--platform", required=True, choices=sorted(KNOWN))
    made.add_argument(
        "--address", default="", metavar="HOST", help="address of the device (default: NAME)"
    )
    made.add_argument(
        "--ports",
        action="append",
        metavar="NAME[,NAME...]",
        help="ports or ranges of ports, such as Ethernet[1-48] (default: all ports of the device)",
    )
    made.add_argument(
        "--rate",
        type=rate,
        default=0,
        metavar="RATE",
        help="rate of the ports, such as 100Gbit (default: the rate that the device reports)",
    )
    made.add_argument(
        "--present",
        type=Path,
        metavar="FILE",
        help="read the present configuration from this file instead of the device",
    )
    _add_ssh(made)
    _add_json(made)
    made.set_defaults(at_once=1)


def _add_changing(commands: Any) -> None:
    made = commands.add_parser(
        "diff", help="show the changes of saved plans as the devices compute them"
    )
    _add_plans(made)
    _add_reaching(made)
    made = commands.add_parser("apply", help="apply saved plans to devices")
    _add_plans(made)
    made.add_argument(
        "--pending",
        action="store_true",
        help=(
            "leave the change pending: `switchcfg confirm` keeps it, otherwise the device "
            "reverts it"
        ),
    )
    made.add_argument(
        "--diff", action="store_true", help="also show the change as the device computes it"
    )
    _add_save(made)
    _add_traffic(
        made,
        "before a change is confirmed, also test the network between two hosts: SSH names of "
        "the sender and the receiver, and the receiver's IPv4 address on the fabric",
    )
    _add_reverting(made)
    made = commands.add_parser("rollback", help="undo the last change that this host applied")
    made.add_argument("intent", type=Path, metavar="INTENT", help="intent file (TOML)")
    _add_selection(made, required=True)
    _add_save(made)
    _add_reverting(made)
    for name, text in (
        ("confirm", "confirm pending changes"),
        ("abort", "revert pending changes now"),
    ):
        made = commands.add_parser(name, help=text)
        _common(made)
        _add_records(made)
        if name == "confirm":
            _add_save(made)
        _add_reaching(made)


def _add_plans(made: argparse.ArgumentParser) -> None:
    made.add_argument("intent", type=Path, metavar="INTENT", help="intent file (TOML)")
    made.add_argument(
        "plans", type=Path, nargs="+", metavar="PLAN", help="plan files, or folders with plan files"
    )
    _add_selection(made)


def _add_reverting(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--revert-after",
        type=seconds,
        metavar="S",
        help=(
            "seconds until a device reverts a change that is not confirmed (default: "
            f"{REVERT_AFTER}, and the time that long steps take)"
        ),
    )
    made.add_argument(
        "--no-wait",
        dest="wait",
        action="store_false",
        help="do not wait until a device has its LLDP neighbours and BGP sessions of before",
    )
    _add_records(made)
    _add_reaching(made)


def _add_save(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--save",
        action="store_true",
        help="afterwards, save the device's running configuration so that it survives a restart",
    )


def _add_records(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--records",
        type=Path,
        default=records.default_folder(),
        metavar="DIR",
        help="folder with the records of applied changes (default: %(default)s)",
    )


def _add_asking(commands: Any) -> None:
    made = commands.add_parser(
        "fabric",
        help="show the links between devices, what differs at their ends, and the order of changes",
    )
    _common(made)
    made.add_argument(
        "--present",
        type=Path,
        metavar="FOLDER",
        help="read configurations from files DEVICE.* in this folder, and links from the intent",
    )
    _add_reaching(made)
    for name, text in (
        ("verify", "check that devices match the intent"),
        ("drift", "check that devices match the last change that this host applied"),
        ("doctor", "check that devices can be configured"),
    ):
        made = commands.add_parser(name, help=text)
        _common(made)
        _add_records(made)
        _add_reaching(made)
        made.set_defaults(remove=False, yang=None)
        if name == "verify":
            _add_traffic(
                made,
                "test the network between two hosts instead of the devices: SSH names of the "
                "sender and the receiver, and the receiver's IPv4 address on the fabric",
            )

    made = commands.add_parser(
        "history", help="list the changes that this host applied, with user and time"
    )
    made.add_argument(
        "device", nargs="*", metavar="DEVICE", help="only these devices (default: all)"
    )
    made.add_argument(
        "--last",
        type=up_to(1000),
        default=20,
        metavar="N",
        help="number of records (default: %(default)s)",
    )
    _add_records(made)
    _add_json(made)


def _add_traffic(made: argparse.ArgumentParser, text: str) -> None:
    made.add_argument("--traffic", nargs=3, metavar=("SENDER", "RECEIVER", "ADDRESS"), help=text)
    made.add_argument(
        "--load",
        type=rate,
        default=0,
        metavar="RATE",
        help=(
            "with --traffic: also send at this rate, above the capacity of the route, to test "
            "the order of drops"
        ),
    )


def _common(made: argparse.ArgumentParser) -> None:
    made.add_argument("intent", type=Path, metavar="INTENT", help="intent file (TOML)")
    _add_selection(made)


def _add_selection(made: argparse.ArgumentParser, *, required: bool = False) -> None:
    """The options that select devices of the intent."""
    made.add_argument(
        "--only",
        "--device",
        action="append",
        metavar="NAME[,NAME...]",
        required=required,
        help="only these devices; names may contain * and ?; the option may be repeated",
    )
    made.add_argument(
        "--skip", action="append", metavar="NAME[,NAME...]", help="all devices except these"
    )


def _add_reaching(made: argparse.ArgumentParser) -> None:
    """The options of connections to devices, and of the output."""
    _add_ssh(made)
    made.add_argument(
        "--at-once",
        type=up_to(256),
        default=8,
        metavar="N",
        help="devices per side to work on at the same time (default: %(default)s)",
    )
    _add_json(made)


def _add_ssh(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--ssh-config", type=Path, metavar="FILE", help="SSH configuration (default: ~/.ssh/config)"
    )


def _add_json(made: argparse.ArgumentParser) -> None:
    made.add_argument("--json", action="store_true", help="print JSON, also for errors")
