"""CONFIG_DB: its tables that switchcfg reads or writes, as a state and as a document. Pure.

Source of table and field names: sonic-yang-models. All values in CONFIG_DB are strings.
"""

from collections.abc import Mapping
from typing import Any, Final

from switchcfg.errors import BadState
from switchcfg.plan.account import UNREAD, Reading, account
from switchcfg.plan.state import Place, State, objects
from switchcfg.platforms.platform import read_json
from switchcfg.platforms.sonic import accounting, asics, shared_keys
from switchcfg.platforms.sonic.accounting import BINDINGS, items, known
from switchcfg.platforms.sonic.lossless import MODEL
from switchcfg.platforms.sonic.releases import HWSKU, VERSION

MAPS: Final = (
    "DSCP_TO_TC_MAP", "TC_TO_QUEUE_MAP", "TC_TO_PRIORITY_GROUP_MAP", "MAP_PFC_PRIORITY_TO_QUEUE",
)  # fmt: skip
PROFILES: Final = ("SCHEDULER", "WRED_PROFILE", "BUFFER_PROFILE")
# Tables that foreign PORT_QOS_MAP rows refer to: without them, YANG finds dangling references.
REFERRED: Final = (
    "DOT1P_TO_TC_MAP", "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP", "TC_TO_DSCP_MAP",
)  # fmt: skip
READ: Final = (
    *MAPS, *PROFILES, *BINDINGS, *REFERRED, "BUFFER_POOL", "CABLE_LENGTH", "SWITCH_HASH",
    "SWITCH_TRIMMING", "PORT",
)  # fmt: skip
LISTS: Final = ("ecmp_hash", "lag_hash")  # fields that hold a list; comma-separated in a State


def document(state: State) -> dict[str, dict[str, dict[str, Any]]]:
    """Table -> key -> fields, in the form of CONFIG_DB."""
    out: dict[str, dict[str, dict[str, Any]]] = {}
    for table, key, values in objects(state):
        if table in (UNREAD, shared_keys.SHARED):
            continue
        fields = {
            name: value.split(",") if name in LISTS else value for name, value in values.items()
        }
        fields.pop("", None)  # CONFIG_DB has {} for an object without fields
        out.setdefault(table, {})[key] = fields
    shared_keys.join(out, (place.name for place in state if place.kind == shared_keys.SHARED))
    return out


def read(text: str) -> Reading:
    """The state in a CONFIG_DB as JSON. Raises: BadState."""
    tables = read_json(text, "CONFIG_DB")
    asics.refuse_several(tables)
    asics.refuse_voq(tables)
    out: dict[Place, str] = {}
    for table in READ:
        rows = tables.get(table, {})
        if not isinstance(rows, dict):
            raise BadState(f"{table} is not a table")
        if table in BINDINGS:
            rows, names = shared_keys.expand(table, rows)
            tables[table] = rows
            out |= {Place(shared_keys.SHARED, name, ""): "" for name in names}
        for key, fields in rows.items():
            if not isinstance(fields, dict):
                raise BadState(f"{table}|{key} has no fields")
            if not fields:
                out[Place(table, key, "")] = ""
            for field, value in fields.items():
                out[Place(table, key, field)] = _value(Place(table, key, field), value)
    for place in (VERSION, HWSKU, MODEL):
        row = _row(tables, place)
        if place.field in row:
            out[place] = _value(place, row[place.field])
    read = account(
        items(tables), lambda line, _: known(line), idle=accounting.IDLE, refused=accounting.REFUSED
    )
    return Reading({**out, **read}, read.lines, read.unread, text)


def _row(tables: Mapping[str, Any], place: Place) -> Mapping[str, Any]:
    """The fields of a row; {} if there is none."""
    rows = tables.get(place.kind, {})
    row = rows.get(place.name, {}) if isinstance(rows, dict) else {}
    return row if isinstance(row, dict) else {}


def _value(place: Place, value: object) -> str:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ",".join(value)
    if not isinstance(value, str):
        raise BadState(f"{place.kind}|{place.name} {place.field}: {value!r} is not a string")
    return value
