"""Reads the files that a command names: intents, plans, saved configurations."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from switchcfg.errors import BadPlan, BadState, SwitchcfgError
from switchcfg.intent.intent import Device
from switchcfg.plan.state import State
from switchcfg.platforms.commands import CommandPlatform
from switchcfg.platforms.platform import Platform

PLAN: Final = ".plan.json"  # after the name of a device


def state(platform: Platform, file: Path) -> State:
    """The state in a saved configuration. Raises: BadState."""
    said = read(file, BadState)
    try:
        found = platform.read(said)
        if isinstance(platform, CommandPlatform) and said.strip() and not said.endswith("\n"):
            raise BadState(
                "the last line has no end, so the file may be cut: save the whole output of "
                f"`{platform.said}`"
            )
        return found
    except BadState as exc:
        raise BadState(f"{file}: {exc}") from exc


def plan_files(paths: Sequence[Path]) -> Iterator[Path]:
    """The files, and the plan files of folders. Raises: BadPlan for a folder without any."""
    for path in paths:
        found = sorted(path.glob(f"*{PLAN}")) if path.is_dir() else [path]
        if not found:
            raise BadPlan(f"{path}: contains no file *{PLAN}")
        yield from found


def saved_configuration(path: Path, device: Device) -> Path:
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


def read(file: Path, error: type[SwitchcfgError]) -> str:
    """The text of a file. Raises: `error`."""
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise error(f"{file}: cannot be read: {exc}") from exc
