"""Records of applied plans, on the machine that applied them: for rollback, drift and history.

FOLDER/DEVICE/TIME.json: the plan, its operator, the device's configuration before, and a hash over
all. TIME.pending: not confirmed, may revert. TIME.undone: rolled back.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dlcpd.ipc.held_folder import PRIVATE_FOLDER, HeldFolder, holding
from dlcpd.ipc.safe_path import UnsafePath
from switchcfg.errors import BadPlan, NotKept
from switchcfg.intent.table import among
from switchcfg.plan import plan as plans
from switchcfg.plan.plan import Plan

VERSION: Final = 1
ENDING: Final = ".json"
UNDONE, PENDING = ".undone", ".pending"  # endings of records rolled back, and not confirmed yet
STATES: Final = {ENDING: "applied", PENDING: "pending", UNDONE: "rolled back"}
PROBE: Final = ".probe"  # a file that tests whether the folder can be written
KEPT: Final = 100  # records per device; the oldest are removed
TIME: Final = "%Y%m%dT%H%M%S"


def default_folder() -> Path:
    """The state folder of switchcfg (XDG Base Directory Specification)."""
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "switchcfg"


@dataclass(frozen=True, slots=True)
class Record:
    """One applied plan."""

    file: Path
    plan: Plan
    snapshot: str  # the device's configuration before
    who: str  # USER@HOST; "": not recorded
    undone: str  # USER@HOST and time of the rollback; "": not rolled back
    diff: str | None  # the device's own diff; None: not requested, or the device has none

    @property
    def state(self) -> str:
        """The state of the record: applied, pending or rolled back."""
        return STATES[self.file.suffix]

    @property
    def when(self) -> str:
        """ISO 8601, UTC."""
        return _when(self.file)


@dataclass(frozen=True, slots=True)
class Damaged:
    """A record that cannot be read."""

    file: Path
    why: str

    @property
    def when(self) -> str:
        """ISO 8601, UTC."""
        return _when(self.file)


def prepare(folder: Path, device: str) -> None:
    """Check, before a change, that a record can be written. Raises: NotKept."""
    with _writing(folder), HeldFolder.open(folder / device, make=PRIVATE_FOLDER) as home:
        home.replace(PROBE, b"")
        home.remove(PROBE)


def keep(
    folder: Path,
    plan: Plan,
    snapshot: str,
    *,
    who: str = "",
    pending: bool = False,
    diff: str | None = None,
) -> Path:
    """Write a record that only this user may read. Of more than KEPT, the oldest are removed.

    Raises: NotKept.
    """
    settle(folder, plan.device, confirmed=False)  # an earlier pending commit has reverted
    home = folder / plan.device
    body = {
        "switchcfg record": VERSION,
        "plan": plans.dump(plan),
        "snapshot": snapshot,
        "who": who,
        "diff": diff,
    }
    nanoseconds = time.time_ns()
    now = time.strftime(TIME, time.gmtime(nanoseconds // 10**9))
    file = home / f"{now}-{nanoseconds % 10**9:09}{PENDING if pending else ENDING}"
    with _writing(folder), HeldFolder.open(home, make=PRIVATE_FOLDER) as held:
        _write(held, file.name, body)
        for old in _names(held)[:-KEPT]:
            held.remove(old)
    return file


def _write(home: HeldFolder, name: str, body: Mapping[str, object]) -> None:
    """Write a record with its seal, atomically."""
    home.replace(name, json.dumps({**body, "seal": _seal(body)}).encode())


def _names(home: HeldFolder) -> list[str]:
    """File names of the records of a device, the oldest first."""
    return sorted(name for name in home.names() if "-" in name and Path(name).suffix in STATES)


@contextmanager
def _reading(folder: Path, device: str) -> Iterator[HeldFolder | None]:
    """Open the folder of a device's records; None: there is none. Raises: BadPlan."""
    try:
        home = HeldFolder.open(folder / device)
    except FileNotFoundError:
        yield None
        return
    except OSError as exc:
        raise BadPlan(
            f"{folder}: cannot read the records: {exc.strerror}; choose the folder with --records"
        ) from exc
    with home:
        yield home


def _records_of(folder: Path, device: str) -> list[Path]:
    """Files of the records of a device, the oldest first. Raises: BadPlan."""
    with _reading(folder, device) as home:
        return [folder / device / name for name in _names(home)] if home else []


def history(folder: Path, devices: Sequence[str], most: int) -> list[tuple[str, Record | Damaged]]:
    """(device, record) of the last `most` records of these devices, or of all; the oldest first.

    Raises: BadPlan for a device without records.
    """
    homes = sorted(home.name for home in folder.glob("*") if home.is_dir())
    there = [name for name in homes if _records_of(folder, name)]
    for name in devices:
        if name not in there:
            raise BadPlan(f"no record of {name!r} in {folder}{among(name, there)}")
    files = [file for name in devices or there for file in _records_of(folder, name)]
    found: list[tuple[str, Record | Damaged]] = []
    for file in sorted(files, key=lambda file: file.name)[-most:]:
        try:
            found.append((file.parent.name, _load(file)))
        except BadPlan as exc:
            found.append((file.parent.name, Damaged(file, str(exc))))
    return found


def _when(file: Path) -> str:
    try:
        noted = time.strptime(file.name.partition("-")[0], TIME)
    except ValueError:
        return file.name
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", noted)


def settle(folder: Path, device: str, *, confirmed: bool) -> None:
    """Mark pending records as confirmed, or remove them. Raises: NotKept."""
    with _writing(folder), suppress(FileNotFoundError), HeldFolder.open(folder / device) as home:
        for name in home.names():
            if name.endswith(PENDING):
                if confirmed:
                    home.rename(name, name.removesuffix(PENDING) + ENDING)
                else:
                    home.remove(name)


def last(folder: Path, device: str) -> Record:
    """The last confirmed record that was not rolled back. Raises: BadPlan."""
    found = [file for file in _records_of(folder, device) if file.suffix == ENDING]
    if not found:
        raise BadPlan(f"{device}: no record in {folder}: this host has applied no change to it")
    return _load(found[-1])


def applied(folder: Path, device: str) -> list[Plan] | None:
    """The confirmed plans of a device that were not rolled back, the oldest first. None: there are
    none, or the oldest may be gone. Raises: BadPlan."""
    files = _records_of(folder, device)
    found = [_load(file).plan for file in files if file.suffix == ENDING]
    return found if found and len(files) < KEPT else None


def undo(record: Record, who: str = "") -> None:
    """Mark a record as rolled back. Raises: NotKept."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    body = {
        "switchcfg record": VERSION,
        "plan": plans.dump(record.plan),
        "snapshot": record.snapshot,
        "who": record.who,
        "undone": f"{who} {now}".strip(),
        "diff": record.diff,
    }
    file = record.file
    with _writing(file.parent), holding(file) as (home, name):
        _write(home, name, body)
        home.rename(name, file.with_suffix(UNDONE).name)


@contextmanager
def _writing(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as exc:
        why = exc.strerror or exc
        raise NotKept(
            f"{folder}: cannot write records: {why}; choose the folder with --records"
        ) from exc


def _load(file: Path) -> Record:
    try:
        with holding(file) as (home, name):
            body = json.loads(home.read(name))
        seal = body.pop("seal")
        plan, snapshot = body["plan"], body["snapshot"]
    except UnsafePath as exc:
        raise BadPlan(f"{file}: {exc.strerror}") from exc
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as exc:
        raise BadPlan(f"{file}: is not a record of switchcfg ({type(exc).__name__})") from exc
    if seal != _seal(body):
        raise BadPlan(f"{file}: was edited or damaged since it was written")
    who, undone = str(body.get("who", "")), str(body.get("undone", ""))
    return Record(file, plans.load(plan, str(file)), snapshot, who, undone, body.get("diff"))


def _seal(body: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
