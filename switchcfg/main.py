"""The command `switchcfg`. Exit code: 0 no change (or done), 1 error, 2 changes are to be made."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NoReturn

from switchcfg import on_devices, plan_text, records
from switchcfg.errors import BadIntent, BadPlan, BadState, SwitchcfgError
from switchcfg.intent import Device, Intent, parse
from switchcfg.plan import Plan, dump, load
from switchcfg.platforms.known import PLATFORMS
from switchcfg.table import bits_per_second
from switchcfg.workflow import REVERT_AFTER

SAME: Final = 0
FAILED: Final = 1  # of usage too: 2 means changes, as `terraform plan -detailed-exitcode` has it
CHANGES: Final = 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    options = _parser().parse_args(arguments)
    try:
        code: int = options.run(options)
    except SwitchcfgError as exc:
        sys.stderr.write(f"switchcfg: {exc} [{exc.code}]\n")
        return FAILED
    except KeyboardInterrupt:
        sys.stderr.write("switchcfg: interrupted\n")
        return 130  # 128 + SIGINT, as a shell reports it
    except BrokenPipeError:  # `switchcfg plan ... | head`
        sys.stderr.close()  # or the interpreter complains when it flushes at its end
        return FAILED
    except OSError as exc:  # such as a folder that cannot be written
        sys.stderr.write(f"switchcfg: {exc} [os_error]\n")
        return FAILED
    return code


class _Parser(argparse.ArgumentParser):
    """argparse, but wrong usage is an error like others: 2 has a meaning of its own."""

    def error(self, message: str) -> NoReturn:
        self.print_usage(sys.stderr)
        self.exit(FAILED, f"{self.prog}: error: {message}\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(prog="switchcfg", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    made = commands.add_parser("render", help="what devices shall be, in their own language")
    _common(made)
    made.add_argument("--out", type=Path, metavar="DIR", help="a file per device, not stdout")
    made.set_defaults(run=_render)
    made = commands.add_parser("plan", help="what devices would be told")
    _common(made)
    made.add_argument(
        "--present", type=Path, metavar="PATH",
        help="what the device says of itself, instead of asking it: a file, or a folder with a "
        "file DEVICE.* for each",
    )  # fmt: skip
    made.add_argument("--remove", action="store_true", help="take away all that switchcfg made")
    made.add_argument("--out", type=Path, metavar="DIR", help="save DEVICE.plan.json here")
    made.add_argument(
        "--yang", type=Path, metavar="DIR",
        help="check SONiC switches against the YANG models in this folder too, such as a "
        "switch's own /usr/local/yang-models",
    )  # fmt: skip
    on_devices.add_options(made)
    made.set_defaults(run=_plan)
    made = commands.add_parser("show", help="a saved plan, and what the device would be told")
    made.add_argument("file", type=Path, metavar="PLAN")
    made.set_defaults(run=_show)
    _add_changing(commands)
    _add_asking(commands)
    return parser


def _add_changing(commands: Any) -> None:
    made = commands.add_parser("apply", help="bring devices to what saved plans want")
    made.add_argument("intent", type=Path, metavar="INTENT", help="TOML file")
    made.add_argument("plans", type=Path, nargs="+", metavar="PLAN", help="files, or folders")
    made.add_argument("--pending", action="store_true", help="leave it to `confirm` or to time")
    _add_save(made)
    _add_traffic(
        made,
        "before a change is kept, ask the network too: two hosts by their SSH names, and the "
        "second one's IPv4 address on the fabric",
    )
    _add_reverting(made)
    made.set_defaults(run=_apply)
    made = commands.add_parser("rollback", help="take back what was last applied from here")
    made.add_argument("intent", type=Path, metavar="INTENT", help="TOML file")
    made.add_argument("--device", action="append", metavar="NAME", required=True)
    _add_save(made)
    _add_reverting(made)
    made.set_defaults(run=_rollback)
    for name, run, text in (
        ("confirm", on_devices.confirm, "keep what is pending"),
        ("abort", on_devices.abort, "revert what is pending, now"),
    ):
        made = commands.add_parser(name, help=text)
        _common(made)
        _add_records(made)
        if name == "confirm":
            _add_save(made)
        on_devices.add_options(made)
        made.set_defaults(run=_on_all, work=run)


def _add_reverting(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--revert-after", type=_seconds, default=REVERT_AFTER, metavar="S",
        help="seconds until a device reverts what was not confirmed (%(default)s)",
    )  # fmt: skip
    _add_records(made)
    on_devices.add_options(made)


def _add_save(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--save", action="store_true",
        help="then have the device save all that it runs, so that a restart keeps it",
    )  # fmt: skip


def _add_records(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--records", type=Path, default=records.default_folder(), metavar="DIR",
        help="where what was applied is kept (%(default)s)",
    )  # fmt: skip


def _add_asking(commands: Any) -> None:
    for name, run, text in (
        ("verify", _verify, "are devices as the intent wants them?"),
        ("drift", _drift, "are devices as they were last applied from here?"),
        ("doctor", _doctor, "can devices be configured?"),
    ):
        made = commands.add_parser(name, help=text)
        _common(made)
        _add_records(made)
        on_devices.add_options(made)
        made.set_defaults(run=run, remove=False, yang=None)
        if name == "verify":
            _add_traffic(
                made,
                "ask the network and not the devices: two hosts by their SSH names, and the "
                "second one's IPv4 address on the fabric",
            )


def _add_traffic(made: argparse.ArgumentParser, text: str) -> None:
    made.add_argument("--traffic", nargs=3, metavar=("SENDER", "RECEIVER", "ADDRESS"), help=text)
    made.add_argument(
        "--load", type=_rate, default=0, metavar="RATE",
        help="with --traffic: also overload the way, with more than it carries",
    )  # fmt: skip


def _rate(text: str) -> int:
    try:
        return bits_per_second(text)
    except ValueError as exc:
        raise argparse.ArgumentTypeError(str(exc)) from None


def _seconds(text: str) -> int:
    if not text.isdecimal() or not 5 <= int(text) <= 86_400:
        raise argparse.ArgumentTypeError(f"{text!r}: need 5..86400 seconds")
    return int(text)


def _common(made: argparse.ArgumentParser) -> None:
    made.add_argument("intent", type=Path, metavar="INTENT", help="TOML file")
    made.add_argument(
        "--device", action="append", metavar="NAME", help="only this one; may be repeated"
    )


def _render(options: argparse.Namespace) -> int:
    intent = _intent(options.intent)
    for device in _devices(intent, options.device):
        platform = PLATFORMS[device.platform]
        rendered = platform.render(intent, device)
        text = platform.write(rendered.state)
        if options.out:
            options.out.mkdir(parents=True, exist_ok=True)
            (options.out / f"{device.name}.{device.platform}").write_text(text, encoding="utf-8")
        else:
            sys.stdout.write(text)
        for each in rendered.degraded:
            sys.stderr.write(f"{device.name}: degraded: {each}\n")
    return SAME


def _plan(options: argparse.Namespace) -> int:
    intent = _intent(options.intent)
    devices = _devices(intent, options.device)
    if options.present:
        plans = [_from_file(intent, device, options, len(devices) == 1) for device in devices]
    else:
        plans = on_devices.planned(intent, devices, options)
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        for each in plans:
            (options.out / f"{each.device}.plan.json").write_text(dump(each), encoding="utf-8")
    _print(plans, as_json=options.json)
    return CHANGES if any(each.changes for each in plans) else SAME


def _from_file(intent: Intent, device: Device, options: argparse.Namespace, alone: bool) -> Plan:
    platform = PLATFORMS[device.platform]
    present = platform.read(_present(options.present, device, alone=alone))
    return on_devices.planner(options)(intent, device, platform, present)


def _apply(options: argparse.Namespace) -> int:
    if options.pending and options.save:
        raise BadPlan("--save: what is pending may revert; save with `switchcfg confirm --save`")
    plans = [load(_read(file, BadPlan), str(file)) for file in _plan_files(options.plans)]
    return SAME if on_devices.apply(_intent(options.intent), plans, options) else FAILED


def _rollback(options: argparse.Namespace) -> int:
    intent = _intent(options.intent)
    for device in _devices(intent, options.device):
        on_devices.rollback(intent, device, options)
    return SAME


def _on_all(options: argparse.Namespace) -> int:
    intent = _intent(options.intent)
    options.work(intent, _devices(intent, options.device), options)
    return SAME


def _verify(options: argparse.Namespace) -> int:
    intent = _intent(options.intent)
    if options.traffic:
        return SAME if on_devices.traffic(intent, options) else CHANGES
    found = on_devices.planned(intent, _devices(intent, options.device), options)
    _print(found, as_json=options.json)
    return CHANGES if any(each.changes for each in found) else SAME


def _drift(options: argparse.Namespace) -> int:
    intent = _intent(options.intent)
    found = on_devices.drift(intent, _devices(intent, options.device), options)
    _print(found, as_json=options.json, total=False)
    return CHANGES if any(each.changes for each in found) else SAME


def _doctor(options: argparse.Namespace) -> int:
    intent = _intent(options.intent)
    return SAME if on_devices.doctor(intent, _devices(intent, options.device), options) else FAILED


def _plan_files(paths: Sequence[Path]) -> Iterator[Path]:
    """Files as they are, and the plans of folders. Raises: BadPlan."""
    for path in paths:
        found = sorted(path.glob("*.plan.json")) if path.is_dir() else [path]
        if not found:
            raise BadPlan(f"{path}: holds no *.plan.json")
        yield from found


def _show(options: argparse.Namespace) -> int:
    found = load(_read(options.file, BadPlan), str(options.file))
    _print([found], as_json=False)
    for step in found.steps:
        sys.stdout.write(f"\n# {step.title}\n{step.payload}")
    return CHANGES if found.changes else SAME


def _print(plans: Sequence[Plan], *, as_json: bool, total: bool = True) -> None:
    if as_json:
        document: dict[str, Any] = {
            "summary": plan_text.summary(plans),
            "plans": [asdict(each) for each in plans],
        }
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
        return
    for each in plans:
        sys.stdout.writelines(f"{line}\n" for line in plan_text.lines(each))
    if total:
        sys.stdout.write(plan_text.summary(plans) + "\n")


def _intent(file: Path) -> Intent:
    return parse(_read(file, BadIntent), str(file))


def _devices(intent: Intent, names: Sequence[str] | None) -> list[Device]:
    if not names:
        return list(intent.devices)
    return [intent.device(name) for name in dict.fromkeys(names)]


def _present(path: Path, device: Device, *, alone: bool) -> str:
    """What the device says of itself, from a file that the user saved.

    Raises: BadState.
    """
    if path.is_dir():
        found = sorted(_files_of(path, device.name))
        if len(found) != 1:
            raise BadState(f"{path}: {len(found)} files {device.name}.*, need one")
        return _read(found[0], BadState)
    if not alone:
        raise BadState(f"{path}: one file and several devices: give --device, or a folder")
    return _read(path, BadState)


def _files_of(folder: Path, name: str) -> Iterator[Path]:
    return (each for each in folder.iterdir() if each.stem == name and each.is_file())


def _read(file: Path, error: type[SwitchcfgError]) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise error(f"{file}: cannot be read: {exc}") from exc


if __name__ == "__main__":
    sys.exit(main())
