"""What was applied, kept on the machine that applied it: to roll back, and to tell drift from work.

FOLDER/DEVICE/TIME.json: the plan, what the device was before, and a hash over both. While nobody
has confirmed it, TIME.pending: it may revert.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from switchcfg.errors import BadPlan, NotKept
from switchcfg.plan import plan as plans
from switchcfg.plan.plan import Plan

VERSION: Final = 1
ENDING: Final = ".json"
UNDONE, PENDING = ".undone", ".pending"  # of a record that was rolled back; not confirmed yet


def default_folder() -> Path:
    """Where XDG wants state."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "switchcfg"


@dataclass(frozen=True, slots=True)
class Record:
    """One apply that was confirmed."""

    file: Path
    plan: Plan
    snapshot: str  # what the device said of itself before


def prepare(folder: Path, device: str) -> None:
    """Before a device is touched: can it be written down? Raises: NotKept."""
    with _writing(folder):
        (folder / device).mkdir(parents=True, exist_ok=True, mode=0o700)
        probe = folder / device / ".draft"
        probe.touch(0o600)
        probe.unlink()


def keep(folder: Path, plan: Plan, snapshot: str, *, pending: bool = False) -> Path:
    """Write a record; other users may not read it. Raises: NotKept."""
    settle(folder, plan.device, confirmed=False)  # one that was pending before has reverted
    home = folder / plan.device
    body = {"switchcfg record": VERSION, "plan": plans.dump(plan), "snapshot": snapshot}
    now = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{time.time_ns() % 10**9:09}"
    file = home / f"{now}{PENDING if pending else ENDING}"
    draft = file.with_suffix(".draft")
    with _writing(folder):
        home.mkdir(parents=True, exist_ok=True, mode=0o700)
        draft.touch(0o600)
        draft.write_text(json.dumps({**body, "seal": _seal(body)}), encoding="utf-8")
        draft.replace(file)
    return file


def settle(folder: Path, device: str, *, confirmed: bool) -> None:
    """What was pending was confirmed, or it is gone. Raises: NotKept."""
    with _writing(folder):
        for file in (folder / device).glob(f"*{PENDING}"):
            if confirmed:
                file.rename(file.with_suffix(ENDING))
            else:
                file.unlink()


def last(folder: Path, device: str) -> Record:
    """The last one that was not rolled back. Raises: BadPlan."""
    found = sorted((folder / device).glob(f"*{ENDING}"))
    if not found:
        raise BadPlan(f"{device}: no record in {folder}: nothing was applied from here")
    return _load(found[-1])


def undo(record: Record) -> None:
    """It was rolled back. Raises: NotKept."""
    with _writing(record.file.parent):
        record.file.rename(record.file.with_suffix(UNDONE))


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        raise NotKept(f"{folder}: records cannot be written: {exc}; see --records") from exc


def _load(file: Path) -> Record:
    try:
        body = json.loads(file.read_text(encoding="utf-8"))
        seal = body.pop("seal")
        plan, snapshot = body["plan"], body["snapshot"]
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as exc:
        raise BadPlan(f"{file}: no record of switchcfg ({type(exc).__name__})") from exc
    if seal != _seal(body):
        raise BadPlan(f"{file}: was edited or damaged since it was written")
    return Record(file, plans.load(plan, str(file)), snapshot)


def _seal(body: dict[str, object]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
