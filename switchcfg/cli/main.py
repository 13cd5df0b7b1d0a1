"""The command `switchcfg`. Exit code: 0 no change (or done), 1 error, 2 changes are to be made."""

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from switchcfg.cli import on_devices
from switchcfg.cli.arguments import parser
from switchcfg.errors import BadIntent, BadPlan, BadState, SwitchcfgError
from switchcfg.intent.intent import Device, Intent, parse
from switchcfg.plan import text
from switchcfg.plan.plan import Plan, dump, load
from switchcfg.platforms.known import PLATFORMS

SAME: Final = 0
FAILED: Final = 1
CHANGES: Final = 2  # as `terraform plan -detailed-exitcode` has it


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    options = parser(__doc__).parse_args(arguments)
    try:
        return COMMANDS[options.command](options)
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
    file = _present(options.present, device, alone=alone)
    said = _read(file, BadState)
    try:
        present = platform.read(said)
    except BadState as exc:
        raise BadState(f"{file}: {exc}") from exc
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
    work = on_devices.confirm if options.command == "confirm" else on_devices.abort
    work(intent, _devices(intent, options.device), options)
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
            "summary": text.summary(plans),
            "plans": [asdict(each) for each in plans],
        }
        sys.stdout.write(json.dumps(document, indent=1) + "\n")
        return
    for each in plans:
        sys.stdout.writelines(f"{line}\n" for line in text.lines(each))
    if total:
        sys.stdout.write(text.summary(plans) + "\n")


def _intent(file: Path) -> Intent:
    return parse(_read(file, BadIntent), str(file))


def _devices(intent: Intent, names: Sequence[str] | None) -> list[Device]:
    if not names:
        return list(intent.devices)
    return [intent.device(name) for name in dict.fromkeys(names)]


def _present(path: Path, device: Device, *, alone: bool) -> Path:
    """The file in which the user saved what the device says of itself.

    Raises: BadState.
    """
    if path.is_dir():
        found = sorted(_files_of(path, device.name))
        if len(found) != 1:
            raise BadState(f"{path}: {len(found)} files {device.name}.*, need one")
        return found[0]
    if not alone:
        raise BadState(f"{path}: one file and several devices: give --device, or a folder")
    return path


def _files_of(folder: Path, name: str) -> Iterator[Path]:
    return (each for each in folder.iterdir() if each.stem == name and each.is_file())


def _read(file: Path, error: type[SwitchcfgError]) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise error(f"{file}: cannot be read: {exc}") from exc


COMMANDS: Final = {
    "render": _render, "plan": _plan, "show": _show, "apply": _apply, "rollback": _rollback,
    "confirm": _on_all, "abort": _on_all, "verify": _verify, "drift": _drift, "doctor": _doctor,
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
