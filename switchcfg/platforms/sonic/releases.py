"""Predicts which changes `config apply-patch` of a SONiC release takes. Pure.

YANG validates a configuration, these rules its changes: an operation on BUFFER_PROFILE or
WRED_PROFILE that no rule of the switch allows fails the whole patch ("Modification of ... table
is illegal"). From sonic-utilities, generic_config_updater: gcu_field_operation_validators.conf.json
and field_operation_validators.py of the branches 202205 to 202605. A rollback to a checkpoint is
a patch as well, so a change is accepted only if its undo is, too.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from switchcfg.plan.state import Change, Place, State, after, tables

VERSION: Final = Place("VERSIONS", "DATABASE", "VERSION")
HWSKU: Final = Place("DEVICE_METADATA", "localhost", "hwsku")
OBJECTS: Final = 202511  # the first release that takes new and removed objects
# Field -> first release that takes a new value for it, if it knows the switch's ASIC. Before
# 202505, WRED fields: only of one foreign profile. Until then, the digit in names of switchcfg's
# profiles matters: a path element with a digit counts as a port name there, and is skipped.
IN_PLACE: Final[Mapping[tuple[str, str], int]] = {
    ("BUFFER_PROFILE", "dynamic_th"): 0,
    ("WRED_PROFILE", "green_min_threshold"): 202505,
    ("WRED_PROFILE", "green_max_threshold"): 202505,
    ("WRED_PROFILE", "green_drop_probability"): 202505,
}
Objects = Mapping[str, Mapping[str, str]]


def release(state: State) -> int | None:
    """The release, such as 202405, from CONFIG_DB's version; 0: before 2023, None: unknown."""
    version = state.get(VERSION)
    if version is None:
        return None
    named = re.fullmatch(r"version_(\d{6})_\d+", version)
    return int(named[1]) if named else 0


def refuses(present: State, changes: Sequence[Change]) -> list[str]:
    """Problems of changes that the switch would not take as a patch; the rule's name first."""
    found = release(present)
    if found is None:
        return []
    before, then = tables(present), tables(after(present, changes))
    name = f"SONiC {found or 'before 2023'}"
    parts = [(table, before.get(table, {}), then.get(table, {})) for table in _guarded(found)]
    if found < OBJECTS:
        changed = [table for table, old, new in parts if old.keys() != new.keys()]
        problems = [
            (
                f"release: {name} refuses a patch that adds or removes a {table}: {OBJECTS} and "
                "later accept it"
            )
            for table in changed
        ]
    else:
        problems = [text for _, old, new in parts for text in _objects(name, old, new)]
    if found < OBJECTS and any(
        change.place.field == "pfc_enable" or change.place.kind == "CABLE_LENGTH"
        for change in changes
    ):
        problems.append(
            f"release: {name} cannot undo a patch that sets PFC or the length of a cable, "
            "because the switch then makes its own BUFFER_PROFILE"
        )
    return problems + [
        f"release: {name} refuses a patch that changes {field} of a {table} in place"
        for (table, field), replaced in sorted(_in_place(parts).items())
        if not replaced or found < IN_PLACE.get((table, field), found + 1)
    ]


def doubts(present: State, changes: Sequence[Change]) -> Iterator[str]:
    """Changes that the switch may refuse; its configuration does not show whether it does."""
    if release(present) is None:
        yield f"release: the configuration does not state it: planned for {OBJECTS} and later"
    before, then = tables(present), tables(after(present, changes))
    found = release(present)
    guarded = _guarded(OBJECTS if found is None else found)
    if _in_place([(table, before.get(table, {}), then.get(table, {})) for table in guarded]):
        hwsku = present.get(HWSKU, "unknown")
        yield (
            "thresholds change in place: the release must know the ASIC of the switch's HWSKU "
            f"({hwsku}); otherwise it refuses the patch before any change"
        )


def _guarded(found: int) -> Sequence[str]:
    return ("BUFFER_PROFILE", "WRED_PROFILE") if found < OBJECTS else ("BUFFER_PROFILE",)


def _objects(name: str, old: Objects, new: Objects) -> Iterator[str]:
    """Problems of BUFFER_PROFILE, in releases that take new and removed objects."""
    if bool(old) != bool(new):
        yield f"release: {name} refuses a patch that adds or removes the whole table BUFFER_PROFILE"
    gone = [old[key] for key in old.keys() - new.keys()]
    if any(new[key] in gone for key in new.keys() - old.keys()):
        yield f"release: {name} refuses a patch that gives a BUFFER_PROFILE another name"


def _in_place(parts: Sequence[tuple[str, Objects, Objects]]) -> dict[tuple[str, str], bool]:
    """(table, field) that changes in objects that stay -> whether all have an old and new value."""
    found: dict[tuple[str, str], bool] = {}
    for table, old, new in parts:
        for key in old.keys() & new.keys():
            for field in old[key].keys() | new[key].keys():
                was, is_ = old[key].get(field), new[key].get(field)
                if was != is_:
                    replaced = was is not None and is_ is not None
                    found[table, field] = replaced and found.get((table, field), True)
    return found
