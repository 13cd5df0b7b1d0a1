"""The command `switchcfg`. Exit code: 0 no change (or done), 1 error, 2 changes are to be made."""

import argparse
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from dlcpd.ipc.held_folder import HeldFolder
from switchcfg.cli import adopt, history, on_devices, ports, records, selection, treatments
from switchcfg.cli.arguments import parser
from switchcfg.cli.output import error_document, put, put_json, put_text, tell
from switchcfg.cli.planning import planner
from switchcfg.cli.rollout import Outcome
from switchcfg.errors import BadIntent, BadPlan, BadState, BadUsage, SwitchcfgError
from switchcfg.intent.intent import Device, Intent, parse
from switchcfg.intent.port_ranges import expand
from switchcfg.plan import text
from switchcfg.plan.plan import Plan, digest, dump, load
from switchcfg.plan.state import State
from switchcfg.platforms.commands import CommandPlatform
from switchcfg.platforms.known import PLATFORMS
from switchcfg.platforms.platform import Platform

SAME: Final = 0
FAILED: Final = 1
CHANGES: Final = 2  # as in `terraform plan -detailed-exitcode`
PLAN: Final = ".plan.json"  # after the name of a device
FOLDER_FOR_ALL, FILE_FOR_ALL = 0o777, 0o666  # before the umask; no secrets


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command."""
    words = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in words  # also for errors of the command line itself
    try:
        options = parser(__doc__).parse_args(words)
        return COMMANDS[options.command](options)
    except BadUsage as exc:
        sys.stderr.write(exc.usage)
        return _failed(exc.code, str(exc), as_json=as_json)
    except SwitchcfgError as exc:
        return _failed(exc.code, str(exc), as_json=as_json)
    except KeyboardInterrupt:
        tell("switchcfg: interrupted")
        return 130  # 128 + SIGINT, as a shell reports it
    except BrokenPipeError:  # `switchcfg plan ... | head`
        sys.stderr.close()  # else the interpreter reports an error when it flushes at exit
        return FAILED
    except OSError as exc:  # such as a folder that cannot be written
        return _failed("os_error", str(exc), as_json=as_json)


def _failed(code: str, message: str, *, as_json: bool) -> int:
    """Report the error that ended the command; returns the exit code."""
    tell(f"switchcfg: {message} [{code}]")
    if as_json:
        put_json({"error": error_document(code, message)})
    return FAILED


def _render(options: argparse.Namespace) -> int:
    intent = _intent(options.intent)
    for device in selection.devices(intent, options):
        if not device.ports:
            tell(f"{device.name}: has no ports in the intent: nothing is configured")
            continue
        platform = PLATFORMS[device.platform]
        rendered = platform.render(intent, device)
        text = platform.write(rendered.state)
        if options.out:
            with HeldFolder.open(options.out, make=FOLDER_FOR_ALL) as out:
                out.replace(f"{device.name}.{device.platform}", text.encode(), FILE_FOR_ALL)
        else:
            put_text(text)
        for each in rendered.degraded:
            tell(f"{device.name}: degraded: {each}")
    return SAME


def _ports(options: argparse.Namespace) -> int:
    if options.before or options.after:
        return _compared(options)
    if options.intent is None:
        raise BadUsage("ports: give INTENT, or --platform, --before and --after")
    intent = _intent(options.intent)
    devices = selection.devices(intent, options)
    if options.json:
        put_json(ports.document(intent, devices))
        return SAME
    for device in devices:
        for line in ports.lines(intent, device):
            put(line)
    return SAME


def _compared(options: argparse.Namespace) -> int:
    """`ports --before FILE --after FILE`: the differences of two configurations."""
    if options.intent or not (options.before and options.after and options.platform):
        raise BadUsage("ports: --platform, --before and --after belong together, without INTENT")
    before, after = (
        treatments.configuration(options.platform, _read(file, BadState), str(file))
        for file in (options.before, options.after)
    )
    return CHANGES if treatments.put_differences(before, after, options) else SAME


def _plan(options: argparse.Namespace) -> int:
    intent = _intent(options.intent)
    devices = selection.devices(intent, options)
    if options.present:
        found = _from_files(intent, devices, options)
    else:
        found = on_devices.planned(intent, devices, options)
    if options.out:
        with HeldFolder.open(options.out, make=FOLDER_FOR_ALL) as out:
            for each in found.plans:
                out.replace(f"{each.device}{PLAN}", dump(each).encode(), FILE_FOR_ALL)
            for name in found.report.outcome.failed:  # else `apply` would take the old plan
                out.remove(f"{name}{PLAN}", missing_ok=True)
    return _print_planned(found, options)


def _from_files(
    intent: Intent, devices: Sequence[Device], options: argparse.Namespace
) -> on_devices.Planned:
    """Plans from saved configurations; errors are reported per device.

    Raises: BadState for several devices and a path that is not a folder.
    """
    if len(devices) > 1 and not options.present.is_dir():
        why = (
            "the intent has several devices: select one with --only, or give a folder with one "
            "file DEVICE.* per device"
        )
        raise BadState(f"{options.present}: {why}")
    plans: dict[str, Plan] = {}
    outcome = Outcome()
    for device in devices:
        try:
            plans[device.name] = _from_file(intent, device, options)
        except SwitchcfgError as exc:
            outcome.failed[device.name] = exc
        else:
            outcome.done.append(device.name)
    return on_devices.as_planned(devices, plans, outcome)


def _from_file(intent: Intent, device: Device, options: argparse.Namespace) -> Plan:
    platform = PLATFORMS[device.platform]
    present = _state(platform, _present(options.present, device))
    return planner(options)(intent, device, platform, present)


def _state(platform: Platform, file: Path) -> State:
    """The state in a saved configuration. Raises: BadState."""
    said = _read(file, BadState)
    try:
        state = platform.read(said)
        if isinstance(platform, CommandPlatform) and said.strip() and not said.endswith("\n"):
            raise BadState(
                "the last line has no end, so the file may be cut: save the whole output of "
                f"`{platform.said}`"
            )
        return state
    except BadState as exc:
        raise BadState(f"{file}: {exc}") from exc


def _import(options: argparse.Namespace) -> int:
    try:
        ports = [name for each in options.ports or () for name in each.split(",")]
        names = tuple(name for each in ports for name in expand(each.strip()))
    except ValueError as exc:
        raise BadIntent(f"--ports: {exc}") from exc
    asked = adopt.Asked(options.name, options.platform, options.address, names, options.rate)
    skeleton = adopt.skeleton(asked)
    [device] = skeleton.devices
    if options.present:
        present = _state(PLATFORMS[device.platform], options.present)
    else:
        present = on_devices.present(skeleton, device, options)
    text = adopt.intent(asked, present)
    if options.json:
        put_json({"intent": text})
    else:
        put_text(text)
    return SAME


def _apply(options: argparse.Namespace) -> int:
    if options.pending and options.save:
        raise BadPlan(
            "--save: the change may still revert with --pending; save with `switchcfg confirm "
            "--save`"
        )
    intent = _intent(options.intent)
    return SAME if on_devices.apply(intent, _saved(intent, options), options) else FAILED


def _diff(options: argparse.Namespace) -> int:
    intent = _intent(options.intent)
    return SAME if on_devices.diff(intent, _saved(intent, options), options) else FAILED


def _saved(intent: Intent, options: argparse.Namespace) -> dict[str, Plan]:
    """The saved plans of the selected devices, by device. Raises: BadPlan, BadIntent."""
    found = [load(_read(file, BadPlan), str(file)) for file in _plan_files(options.plans)]
    return selection.plans(intent, found, options)


def _on_all(options: argparse.Namespace) -> int:
    intent = _intent(options.intent)
    work = {
        "rollback": on_devices.rollback,
        "confirm": on_devices.confirm,
        "abort": on_devices.abort,
        "doctor": on_devices.doctor,
    }[options.command]
    return SAME if work(intent, selection.devices(intent, options), options) else FAILED


def _verify(options: argparse.Namespace) -> int:
    intent = _intent(options.intent)
    if options.traffic:
        return SAME if on_devices.traffic(intent, options) else CHANGES
    found = on_devices.planned(intent, selection.devices(intent, options), options)
    return _print_planned(found, options)


def _drift(options: argparse.Namespace) -> int:
    intent = _intent(options.intent)
    found = on_devices.drift(intent, selection.devices(intent, options), options)
    return _print_planned(found, options, total=False)


def _history(options: argparse.Namespace) -> int:
    found = records.history(options.records, options.device, options.last)
    if options.json:
        put_json(history.document(found))
    elif not found:
        tell(f"{options.records}: contains no records: this host has applied no change")
    else:
        for line in history.lines(found):
            put(line)
    return SAME


def _plan_files(paths: Sequence[Path]) -> Iterator[Path]:
    """The files, and the plan files of folders. Raises: BadPlan for a folder without any."""
    for path in paths:
        found = sorted(path.glob(f"*{PLAN}")) if path.is_dir() else [path]
        if not found:
            raise BadPlan(f"{path}: contains no file *{PLAN}")
        yield from found


def _show(options: argparse.Namespace) -> int:
    found = load(_read(options.file, BadPlan), str(options.file))
    if options.json:
        put_json(
            {"summary": text.summary([found]), "plans": [asdict(found)], "plan": digest(found)}
        )
        return CHANGES if found.changes else SAME
    _print_plans([found])
    put(text.summary([found]))
    put(f"plan {digest(found)[: history.SHORT]}")
    for step in found.steps:
        put("")
        put(f"# {step.title}")
        put_text(step.payload)
    return CHANGES if found.changes else SAME


def _print_plans(plans: Sequence[Plan]) -> None:
    for each in plans:
        for line in text.lines(each):
            put(line)


def _print_planned(
    found: on_devices.Planned, options: argparse.Namespace, *, total: bool = True
) -> int:
    """Print errors, plans, a table of devices and (`total`) a summary; returns the exit code."""
    plans, report = found.plans, found.report
    report.tell_errors()
    if options.json:
        put_json(
            {
                "summary": text.summary(plans),
                "plans": [asdict(each) for each in plans],
                **report.document(),
            }
        )
    else:
        _print_plans(plans)
        for line in report.table():
            put(line)
        if total and plans:
            put(text.summary(plans))
    if report.outcome.failed:
        return FAILED
    return CHANGES if any(each.changes for each in plans) else SAME


def _intent(file: Path) -> Intent:
    return parse(
        _read(file, BadIntent), str(file), lambda named: _read(file.parent / named, BadIntent)
    )


def _present(path: Path, device: Device) -> Path:
    """The file with a device's saved configuration: `path`, or DEVICE.* in this folder.

    Raises: BadState.
    """
    if path.is_dir():
        found = sorted(_files_of(path, device.name))
        if len(found) != 1:
            raise BadState(
                f"{path}: contains {len(found)} files {device.name}.*, and exactly one is needed"
            )
        return found[0]
    return path


def _files_of(folder: Path, name: str) -> Iterator[Path]:
    return (each for each in folder.iterdir() if each.stem == name and each.is_file())


def _read(file: Path, error: type[SwitchcfgError]) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise error(f"{file}: cannot be read: {exc}") from exc


COMMANDS: Final = {
    "render": _render, "ports": _ports, "plan": _plan, "show": _show, "import": _import,
    "diff": _diff, "apply": _apply,
    "rollback": _on_all, "confirm": _on_all, "abort": _on_all,
    "verify": _verify, "drift": _drift, "doctor": _on_all, "history": _history,
}  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
