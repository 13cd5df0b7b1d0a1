"""Records of applied plans, on the machine that applied them: for rollback, drift and history.

FOLDER/DEVICE/TIME.json: the plan, its operator, the values that the platform read of the device
before, hashes of the treatments after, and a hash over all. TIME.pending: not confirmed, may
revert. TIME.undone: rolled back.

A record has no line of the configuration, which has secrets. Records of version 1 had all lines;
the next record of the device replaces them.
"""

import hashlib
import json
import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from dlcpd.ipc.held_folder import PRIVATE_FOLDER, HeldFolder, holding
from dlcpd.ipc.safe_path import UnsafePath
from switchcfg.errors import BadPlan, BadState, NotKept
from switchcfg.intent.table import among
from switchcfg.plan import plan as plans
from switchcfg.plan.account import UNREAD
from switchcfg.plan.masking import masked
from switchcfg.plan.plan import Plan
from switchcfg.plan.state import Place, State
from switchcfg.platforms.known import PLATFORMS

WITH_TEXT: Final = 1  # version whose records have the device's whole configuration
VERSION: Final = 2
_OLD: Final = b'{"switchcfg record": 1,'  # the first key of a record of version 1
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
    before: State  # the values that the platform read of the device before
    who: str  # USER@HOST; "": not recorded
    undone: str  # USER@HOST and time of the rollback; "": not rolled back
    diff: str | None  # the device's own diff; None: not requested, or the device has none
    treatments: Mapping[str, str] = field(default_factory=dict)  # `treatments_of` the state after

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


def keep(  # noqa: PLR0913  # four by keyword
    folder: Path,
    plan: Plan,
    before: State,
    *,
    who: str = "",
    pending: bool = False,
    diff: str | None = None,
    treatments: Mapping[str, str] = MappingProxyType({}),
) -> Path:
    """Write a record that only this user may read. Of more than KEPT, the oldest are removed; those
    with the text of a configuration are replaced.

    Raises: NotKept.
    """
    settle(folder, plan.device, confirmed=False)  # an earlier pending commit has reverted
    home = folder / plan.device
    body = _body(plan, before, who=who, diff=diff, treatments=dict(treatments))
    nanoseconds = time.time_ns()
    now = time.strftime(TIME, time.gmtime(nanoseconds // 10**9))
    file = home / f"{now}-{nanoseconds % 10**9:09}{PENDING if pending else ENDING}"
    with _writing(folder), HeldFolder.open(home, make=PRIVATE_FOLDER) as held:
        _write(held, file.name, body)
        for old in _names(held)[:-KEPT]:
            held.remove(old)
        for old in _names(held):
            _drop_text(home, held, old)
    return file


def _body(plan: Plan, before: State, **more: object) -> dict[str, object]:
    """A record without its seal. Lines that were not understood are left out."""
    values = [[*place, value] for place, value in before.items() if place.kind != UNREAD]
    return {
        "switchcfg record": VERSION,
        "plan": plans.dump(plan),
        "before": sorted(values),
        **more,
    }


def _drop_text(home: Path, held: HeldFolder, name: str) -> None:
    """Replace a record that has the text of a configuration. One that cannot be read stays: it is
    shown as damaged."""
    if not held.read(name, len(_OLD)).startswith(_OLD):
        return
    with suppress(BadPlan):
        found = _load(home / name)
        _write(held, name, _as_body(found, found.undone))


def _as_body(record: Record, undone: str) -> dict[str, object]:
    more: dict[str, object] = {"who": record.who, "diff": record.diff}
    more |= {"treatments": dict(record.treatments)} | ({"undone": undone} if undone else {})
    return _body(record.plan, record.before, **more)


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
    body = _as_body(record, f"{who} {now}".strip())
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
        version, plan = body["switchcfg record"], body["plan"]
    except UnsafePath as exc:
        raise BadPlan(f"{file}: {exc.strerror}") from exc
    except (OSError, ValueError, KeyError, AttributeError, TypeError) as exc:
        raise BadPlan(f"{file}: is not a record of switchcfg ({type(exc).__name__})") from exc
    if seal != _seal(body):
        raise BadPlan(f"{file}: was edited or damaged since it was written")
    if version not in (WITH_TEXT, VERSION):
        raise BadPlan(
            f"{file}: is a record of version {version!r}, and this switchcfg reads versions "
            f"{WITH_TEXT} and {VERSION}: use the switchcfg that wrote it"
        )
    done = plans.load(plan, str(file))
    who, undone = str(body.get("who", "")), str(body.get("undone", ""))
    diff = body.get("diff")
    shown = masked(diff) if isinstance(diff, str) else None
    return Record(
        file, done, _before(file, done, body), who, undone, shown, body.get("treatments", {})
    )


def _before(file: Path, done: Plan, body: Mapping[str, Any]) -> State:
    """The values before the plan of a record. Raises: BadPlan."""
    try:
        if "before" in body:
            return {Place(*place): value for *place, value in body["before"]}
        return PLATFORMS[done.platform].read(body["snapshot"])
    except (BadState, KeyError, TypeError, ValueError) as exc:
        raise BadPlan(
            f"{file}: the configuration in this record of version {body['switchcfg record']} "
            f"cannot be read ({exc}): remove the file"
        ) from exc


def _seal(body: Mapping[str, object]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
