"""The command `switchcfg`. Exit code: 0 no change (or done), 1 error, 2 changes are to be made."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, NoReturn

from switchcfg import plan_text
from switchcfg.errors import BadIntent, BadPlan, BadState, SwitchcfgError
from switchcfg.intent import Device, Intent, parse
from switchcfg.plan import Plan, dump, load, plan, removal
from switchcfg.platforms.known import PLATFORMS

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
        "--present", type=Path, required=True, metavar="PATH",
        help="what the device says of itself: a file, or a folder with a file DEVICE.* for each",
    )  # fmt: skip
    made.add_argument("--remove", action="store_true", help="take away all that switchcfg made")
    made.add_argument("--out", type=Path, metavar="DIR", help="save DEVICE.plan.json here")
    made.add_argument("--json", action="store_true", help="print JSON")
    made.set_defaults(run=_plan)
    made = commands.add_parser("show", help="a saved plan, and what the device would be told")
    made.add_argument("file", type=Path, metavar="PLAN")
    made.set_defaults(run=_show)
    return parser


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
    make = removal if options.remove else plan
    plans = []
    for device in devices:
        platform = PLATFORMS[device.platform]
        present = platform.read(_present(options.present, device, alone=len(devices) == 1))
        plans.append(make(intent, device, platform, present))
    if options.out:
        options.out.mkdir(parents=True, exist_ok=True)
        for each in plans:
            (options.out / f"{each.device}.plan.json").write_text(dump(each), encoding="utf-8")
    _print(plans, as_json=options.json)
    return CHANGES if any(each.changes for each in plans) else SAME


def _show(options: argparse.Namespace) -> int:
    found = load(_read(options.file, BadPlan), str(options.file))
    _print([found], as_json=False)
    for step in found.steps:
        sys.stdout.write(f"\n# {step.title}\n{step.payload}")
    return CHANGES if found.changes else SAME


def _print(plans: Sequence[Plan], *, as_json: bool) -> None:
    if as_json:
        document: dict[str, Any] = {
            "summary": plan_text.summary(plans),
            "plans": [asdict(each) for each in plans],
        }
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
        return
    for each in plans:
        sys.stdout.writelines(f"{line}\n" for line in plan_text.lines(each))
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
