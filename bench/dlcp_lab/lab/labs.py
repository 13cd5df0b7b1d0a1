"""Fabrics that outlive the process that made them, by name, until they are taken down.

/run/dlcpd-lab/NAME.json has the plan and conditions of a lab. After a crash its remains are found
by the names of its namespaces.
"""

import json
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

from dlcp_lab.emulation import namespaces
from dlcp_lab.emulation.condition import Condition, LinkCut
from dlcp_lab.emulation.fabric import Fabric
from dlcp_lab.emulation.plan import FabricError, Plan

FOLDER: Final = Path("/run/dlcpd-lab")
_NAME: Final = re.compile(r"[a-z0-9]{1,16}")  # no dash: one lab's names must not begin another's


def names() -> list[str]:
    """Names of all labs, complete or not."""
    pieces = {name.split("-")[2] for name in namespaces.namespaces() if "-lab-" in name}
    return sorted(pieces | {path.stem for path in FOLDER.glob("*.json")})


def up(name: str, plan: Plan) -> Fabric:
    """Make a lab. After a failure nothing of it remains.

    Raises: FabricError.
    """
    namespaces.check_available()
    if name in names():
        raise FabricError(f"lab {name!r} is already up; `dlcpctl lab down --name {name}` ends it")
    made = Fabric(_namespace_prefix(name), plan)
    try:
        made.build()
        _store(name, made)
    except BaseException:
        down(name)
        raise
    return made


def load(name: str) -> Fabric:
    """A lab that is up.

    Raises: FabricError.
    """
    namespaces.check_available()
    try:
        state = json.loads(_file(name).read_text())
        lists = {key: state["plan"].pop(key) for key in ("delays", "limits", "place")}
        delays = tuple((link, seconds) for link, seconds in lists["delays"])
        limits = tuple((link, rate) for link, rate in lists["limits"])
        place = tuple(lists["place"])
        plan = Plan(**state["plan"], delays=delays, limits=limits, place=place)
        conditions = {
            way: Condition(**values | {"cut": LinkCut(values["cut"])})
            for way, values in state["conditions"].items()
        }
    except FileNotFoundError as exc:
        known = ", ".join(names()) or "none"
        raise FabricError(
            f"there is no lab {name!r}; the labs are: {known}; see `dlcpctl lab up`"
        ) from exc
    except (ValueError, KeyError, TypeError) as exc:
        raise FabricError(f"{_file(name)}: {exc}; remove the lab and create it again") from exc
    return Fabric(_namespace_prefix(name), plan, conditions)


@contextmanager
def changing(name: str) -> Iterator[Fabric]:
    """A lab whose links the block changes; the changes are stored.

    Raises: FabricError.
    """
    lab = load(name)
    try:
        yield lab
    finally:
        _store(name, lab)


def down(name: str) -> list[str]:
    """Kill all processes of a lab and remove it; returns the namespaces removed.

    Raises: FabricError.
    """
    namespaces.check_available()
    left = namespaces.namespaces(_namespace_prefix(name))
    namespaces.remove(left)
    for file in _file(name), _draft(name):
        file.unlink(missing_ok=True)
    return left


def _namespace_prefix(name: str) -> str:
    if not _NAME.fullmatch(name):
        raise FabricError(f"lab {name!r}: a name has 1..16 characters of a-z and 0-9")
    return f"dlcpd-lab-{name}"


def _file(name: str) -> Path:
    _namespace_prefix(name)  # raises for an invalid name, before it is part of a path
    return FOLDER / f"{name}.json"


def _draft(name: str) -> Path:
    return _file(name).with_suffix(".draft")


def _store(name: str, lab: Fabric) -> None:
    conditions = {way: asdict(condition) for way, condition in lab.conditions.items()}
    FOLDER.mkdir(mode=0o755, exist_ok=True)
    draft = _draft(name)
    draft.write_text(json.dumps({"plan": asdict(lab.plan), "conditions": conditions}))
    draft.replace(_file(name))  # atomic: a crash leaves the old or the new state
