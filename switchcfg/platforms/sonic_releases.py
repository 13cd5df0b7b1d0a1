"""What `config apply-patch` of a SONiC release takes. Pure.

YANG judges what a configuration is, these rules how it may change: an operation on BUFFER_PROFILE
or WRED_PROFILE that no rule of the switch allows ends the whole patch ("Modification of ... table
is illegal"). From sonic-utilities, generic_config_updater: gcu_field_operation_validators.conf.json
and field_operation_validators.py of the branches 202205 to 202605.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from switchcfg.plan.state import Change, Place, State

VERSION: Final = Place("VERSIONS", "DATABASE", "VERSION")
HWSKU: Final = Place("DEVICE_METADATA", "localhost", "hwsku")
OBJECTS: Final = 202511  # the first release that takes new and removed objects
GUARDED: Final = ("BUFFER_PROFILE", "WRED_PROFILE")


def release(state: State) -> int | None:
    """Such as 202405, as the version of CONFIG_DB says; 0: before 2023, None: it says nothing."""
    version = state.get(VERSION)
    if version is None:
        return None
    named = re.fullmatch(r"version_(\d{6})_\d+", version)
    return int(named[1]) if named else 0


def refuses(present: State, changes: Sequence[Change]) -> Iterator[str]:
    """Problems, by name of the rule, of changes that the switch would take no patch for."""
    found = release(present)
    if found is None or found >= OBJECTS:
        return
    tables = sorted({change.place.kind for change in changes} & set(GUARDED))
    if tables:
        yield (
            f"release: SONiC {found or 'before 2023'} takes no patch that adds, removes or changes "
            f"{' and '.join(tables)}: from {OBJECTS} on it does"
        )


def doubts(present: State, changes: Sequence[Change]) -> Iterator[str]:
    """What the switch may refuse, and nothing that is read here says whether it does."""
    if release(present) is None:
        yield f"release: the switch does not say which: planned for {OBJECTS} and later"
    places = {place[:2] for place in present}
    in_place = any(
        change.place.kind == "BUFFER_PROFILE" and change.place[:2] in places for change in changes
    )
    if in_place:
        hwsku = present.get(HWSKU, "unknown")
        yield (
            f"thresholds of buffers change in place: only where the release knows the ASIC of the "
            f"switch's HWSKU ({hwsku}); where it does not, it refuses the patch before anything "
            f"is changed"
        )
