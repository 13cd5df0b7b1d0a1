"""Platform SONiC: CONFIG_DB tables as objects, their fields as values. Pure.

Source of table and field names, value ranges and refusals of orchagent: sonic-yang-models and
qosorch.cpp of sonic-swss (master of 2026-08). All values in CONFIG_DB are strings.
"""

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from switchcfg.errors import BadState
from switchcfg.intent.intent import QUEUES, Device, Intent, PortGroup
from switchcfg.plan.queues import Abilities, Layout, Queue, lay_out
from switchcfg.plan.state import Change, Owns, Place, State, after, natural, objects
from switchcfg.platforms.json_patch import merge_patch, patch
from switchcfg.platforms.platform import (
    Fit,
    GivenBack,
    Rendered,
    Shell,
    Step,
    Taken,
    is_ours,
    read_json,
    render_groups,
)
from switchcfg.platforms.sonic import asics
from switchcfg.platforms.sonic.existing import POOL, fit
from switchcfg.platforms.sonic.lossless import MODEL, MOST, degraded, given_back
from switchcfg.platforms.sonic.lossless import settings as lossless_settings
from switchcfg.platforms.sonic.releases import HWSKU, VERSION, doubts, refuses
from switchcfg.platforms.sonic.rules import check
from switchcfg.platforms.sonic.trimming import ACTION, USELESS, settings
from switchcfg.platforms.sonic.trimming import problems as trimming_problems

MAPS: Final = (
    "DSCP_TO_TC_MAP", "TC_TO_QUEUE_MAP", "TC_TO_PRIORITY_GROUP_MAP", "MAP_PFC_PRIORITY_TO_QUEUE",
)  # fmt: skip
PROFILES: Final = ("SCHEDULER", "WRED_PROFILE", "BUFFER_PROFILE")
BINDINGS: Final = ("QUEUE", "PORT_QOS_MAP", "BUFFER_QUEUE", "BUFFER_PG")
# Tables that foreign PORT_QOS_MAP rows refer to: without them, YANG finds dangling references.
THEIRS: Final = (
    "DOT1P_TO_TC_MAP", "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP", "TC_TO_DSCP_MAP",
)  # fmt: skip
READ: Final = (
    *MAPS, *PROFILES, *BINDINGS, *THEIRS, "BUFFER_POOL", "CABLE_LENGTH", "SWITCH_HASH",
    "SWITCH_TRIMMING", "PORT",
)  # fmt: skip
LISTS: Final = ("ecmp_hash", "lag_hash")  # fields that hold a list; comma-separated in a State
HASH: Final = "SRC_IP,DST_IP,IP_PROTOCOL,L4_SRC_PORT,L4_DST_PORT"
CHECKPOINT: Final = "switchcfg"
TIMEOUT: Final = 900.0  # seconds for one script; SONiC's own tests allow a patch as much
RELOADS: Final = (
    "the whole switch restarts its services: all its ports are down and nothing passes it, for "
    "minutes"
)
PATIENCE: Final = 600  # seconds that ports may take to come up after a reload
RELOAD: Final = 20  # minutes; services restart and bring ports up in 2 to 5
SNAPSHOT: Final = "sonic-cfggen -d --print-data"
ROLL_BACK: Final = f"""\
[ -e "${{0%/*}}/checkpoint" ] || exit 0  # nothing was done
config rollback {CHECKPOINT}
config delete-checkpoint {CHECKPOINT}
"""
# A patch back would be refused as well. -f: the reload to undo may still be running.
RELOAD_BACK: Final = f"""\
before=${{0%/*}}/before.json
if [ ! -e "$before" ] || {SNAPSHOT} | cmp -s - "$before"; then exit 0; fi  # nothing was done
config reload -y -f "$before"
"""
MERGE: Final = """\
import json, sys

def merge(target, patch):  # RFC 7396
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            merge(target.setdefault(key, {}), value)
        else:
            target[key] = value

whole = json.load(open(sys.argv[1]))
merge(whole, json.load(open(sys.argv[2])))
json.dump(whole, sys.stdout, indent=4)
"""
LEAST_ALPHA, MOST_ALPHA = -8, 7  # of dynamic_th: a queue may take 2**th of the free buffer

ABLE: Final = Abilities(curves=1, own_mark=False, spray=("hash",), trim=True, lossless=MOST)


class Sonic:
    """Community SONiC. releases.py lists the releases that take switchcfg's patches."""

    name: Final = "sonic"

    def render(self, intent: Intent, device: Device) -> Rendered:
        found = render_groups(intent, device, ABLE, _group)
        state = dict(found.state)
        state[Place("SCHEDULER", f"{intent.prefix}_STRICT", "type")] = "STRICT"
        if intent.spray == "hash":
            state[Place("SWITCH_HASH", "GLOBAL", "ecmp_hash")] = HASH
        buffers = "shares of the buffer become dynamic thresholds: steps of a factor of two"
        layouts = [lay_out(intent, group, ABLE) for group in device.groups]
        trims = (USELESS,) if intent.queueing.trim else ()
        return Rendered(state, (*found.degraded, buffers, *trims, *degraded(intent, layouts)))

    def owns(self, intent: Intent) -> Owns:
        def owns(place: Place, value: str) -> bool:
            if place.kind in (*MAPS, *PROFILES):
                return is_ours(intent, place.name)
            return place.kind in BINDINGS and is_ours(intent, value)

        return owns

    def write(self, state: State) -> str:
        return json.dumps(document(state), indent=2) + "\n"

    def read(self, text: str) -> State:
        return _read(text)

    def check(self, state: State, device: Device) -> Sequence[str]:
        return check(state, device)

    def fit(self, intent: Intent, device: Device, rendered: State, present: State) -> Fit:
        found = fit(intent, device, rendered, present)
        problems = (*found.problems, *trimming_problems(intent, rendered, present))
        state = _thresholds(intent, device, found.state, present)
        return replace(found, state=state, problems=problems)

    def takes(self, present: State, changes: Sequence[Change]) -> Taken:
        return Taken((), tuple(doubts(present, changes)), tuple(refuses(present, changes)))

    def given_back(self, intent: Intent, device: Device, present: State) -> GivenBack:
        """As `SharedPlatform`, for PFC that switchcfg set, and its headroom."""
        return given_back(intent, device, present)

    def restore(self, before: State, changes: Sequence[Change]) -> str:
        return RELOAD_BACK if refuses(before, changes) else ROLL_BACK

    def shell(self, intent: Intent, device: Device) -> Shell:
        tools = ("config", "sonic-cfggen", "sonic-db-cli", "python3")
        ask = f"{asics.ASK}{SNAPSHOT}\n"
        return Shell(ask, tools, _script, TIMEOUT, "config save -y >/dev/null\n")

    def steps(self, present: State, changes: Sequence[Change]) -> Sequence[Step]:
        if refuses(present, changes):  # planning required the operator's consent
            return (_reload(present, changes),)
        return tuple(_steps(present, changes))


def document(state: State) -> dict[str, dict[str, dict[str, Any]]]:
    """Table -> key -> fields, in the form of CONFIG_DB."""
    out: dict[str, dict[str, dict[str, Any]]] = {}
    for table, key, values in objects(state):
        fields = {
            name: value.split(",") if name in LISTS else value for name, value in values.items()
        }
        fields.pop("", None)  # CONFIG_DB has {} for an object without fields
        out.setdefault(table, {})[key] = fields
    return out


# --- intent to state -----------------------------------------------------------------


def _name(intent: Intent, group: PortGroup, queue: Queue | None = None) -> str:
    parts = [intent.prefix, group.name, f"Q{queue.index}" if queue else ""]
    return "_".join(filter(None, parts))


def _group(intent: Intent, group: PortGroup, layout: Layout) -> dict[Place, str]:
    state = dict(_maps(intent, group, layout))
    if intent.queueing.trim:
        state |= dict(settings(intent, layout))
    if layout.lossless:
        state |= dict(lossless_settings(_name(intent, group), layout, group.ports))
    for each in layout.lossless:
        state |= _curve(f"{_name(intent, group)}_Q{each.priority}", each.mark)
    for queue in layout.queues:
        state |= _curve(_name(intent, group, queue), queue.mark)
        state |= _buffer(_buffer_name(intent, group, layout, queue), queue)
        if _trims(intent, layout, queue):
            state[Place("BUFFER_PROFILE", _buffer_name(intent, group, layout, queue), ACTION)] = (
                "trim"
            )
    for port in group.ports:
        state |= _bindings(intent, group, layout, port)
    return state


def _maps(intent: Intent, group: PortGroup, layout: Layout) -> Iterator[tuple[Place, str]]:
    name = _name(intent, group)
    for dscp, queue in sorted(layout.queue_of(intent).items()):
        yield Place("DSCP_TO_TC_MAP", name, str(dscp)), str(queue)
    for tc in range(QUEUES):
        yield Place("TC_TO_QUEUE_MAP", name, str(tc)), str(tc)
        if not intent.keep.queues:  # kept queues have a foreign map of priority groups
            yield Place("TC_TO_PRIORITY_GROUP_MAP", name, str(tc)), "0"


def _trims(intent: Intent, layout: Layout, queue: Queue) -> bool:
    """Whether a queue trims: all but the first queue, which takes the trimmed packets."""
    return bool(intent.queueing.trim) and queue.index != layout.queues[0].index


def _buffer_name(intent: Intent, group: PortGroup, layout: Layout, queue: Queue) -> str:
    """A queue's buffer profile. A trimming one has another name: neither orchagent nor the
    validators of patches can remove the field again."""
    return _name(intent, group, queue) + "_TRIM" * _trims(intent, layout, queue)


def _curve(name: str, mark: tuple[int, int] | None) -> Iterator[tuple[Place, str]]:
    if mark:
        begin, certain = mark
        for field, value in (
            ("ecn", "ecn_green"),
            ("green_drop_probability", "100"),
            ("green_max_threshold", str(certain)),
            ("green_min_threshold", str(begin)),
            ("wred_green_enable", "true"),
        ):
            yield Place("WRED_PROFILE", name, field), value


def _buffer(name: str, queue: Queue) -> Iterator[tuple[Place, str]]:
    yield Place("BUFFER_PROFILE", name, "pool"), POOL
    yield Place("BUFFER_PROFILE", name, "size"), "0"
    yield Place("BUFFER_PROFILE", name, "dynamic_th"), str(_alpha(queue))


def _thresholds(intent: Intent, device: Device, state: State, present: State) -> State:
    """The state, with thresholds in bytes for profiles of a static pool, which requires them."""
    out = dict(state)
    for group in device.groups:
        layout = lay_out(intent, group, ABLE)
        for queue in layout.queues:
            profile = _buffer_name(intent, group, layout, queue)
            pool = state[Place("BUFFER_PROFILE", profile, "pool")]
            if present.get(Place("BUFFER_POOL", pool, "mode")) == "static":
                del out[Place("BUFFER_PROFILE", profile, "dynamic_th")]
                out[Place("BUFFER_PROFILE", profile, "static_th")] = str(queue.limit)
    return out


def _alpha(queue: Queue) -> int:
    """log2 of the power of two nearest to share / (1 - share), with which a queue alone takes its
    share."""
    share = min(max(queue.share, 2.0**LEAST_ALPHA), 0.99)
    return min(max(round(math.log2(share / (1 - share))), LEAST_ALPHA), MOST_ALPHA)


def _bindings(
    intent: Intent, group: PortGroup, layout: Layout, port: str
) -> Iterator[tuple[Place, str]]:
    name = _name(intent, group)
    yield Place("PORT_QOS_MAP", port, "dscp_to_tc_map"), name
    yield Place("PORT_QOS_MAP", port, "tc_to_queue_map"), name
    if not intent.keep.queues:
        yield Place("PORT_QOS_MAP", port, "tc_to_pg_map"), name
    for queue in layout.queues:
        key, profile = f"{port}|{queue.index}", _buffer_name(intent, group, layout, queue)
        yield Place("QUEUE", key, "scheduler"), f"{intent.prefix}_STRICT"
        if queue.mark:
            yield Place("QUEUE", key, "wred_profile"), _name(intent, group, queue)
        yield Place("BUFFER_QUEUE", key, "profile"), profile


# --- text to state -------------------------------------------------------------------


def _read(text: str) -> dict[Place, str]:
    tables = read_json(text, "CONFIG_DB")
    asics.refuse_several(tables)
    out: dict[Place, str] = {}
    for table in READ:
        rows = tables.get(table, {})
        if not isinstance(rows, dict):
            raise BadState(f"{table} is no table")
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
    return out


def _row(tables: Mapping[str, Any], place: Place) -> Mapping[str, Any]:
    """The fields of a row; {} if there is none."""
    rows = tables.get(place.kind, {})
    row = rows.get(place.name, {}) if isinstance(rows, dict) else {}
    return row if isinstance(row, dict) else {}


def _value(place: Place, value: object) -> str:
    if isinstance(value, list) and all(isinstance(each, str) for each in value):
        return ",".join(value)
    if not isinstance(value, str):
        raise BadState(f"{place.kind}|{place.name} {place.field}: {value!r} is no string")
    return value


# --- changes to steps ----------------------------------------------------------------


def _steps(present: State, changes: Sequence[Change]) -> Iterator[Step]:
    """Define, bind port by port, remove: no binding ever dangles.

    One patch that unbinds and removes took upstream's sorter 146 steps and 97 s; two patches took
    22 steps and 4.5 s. A binding takes its port down, so each port is a step.
    """
    define = [c for c in changes if c.place.kind not in BINDINGS and c.after is not None]
    remove = [c for c in changes if c.place.kind not in BINDINGS and c.after is None]
    bind: dict[str, list[Change]] = {}
    for change in changes:
        if change.place.kind in BINDINGS:
            bind.setdefault(change.place.name.partition("|")[0], []).append(change)
    now = dict(present)
    for title, part, disrupts in (
        ("define maps and profiles", define, ()),
        *(
            (f"bind {port}", bind[port], (f"{port} goes down and up",))
            for port in sorted(bind, key=natural)
        ),
        ("remove maps and profiles", remove, ()),
    ):
        if part:
            then = after(now, part)
            payload = json.dumps(patch(document(now), document(then)), indent=2)
            yield Step(title, payload + "\n", disrupts)
            now = then


def _reload(present: State, changes: Sequence[Change]) -> Step:
    """One step: the switch reloads its configuration with the changes."""
    then = document(after(present, changes))
    payload = json.dumps(merge_patch(document(present), then), indent=2)
    return Step("reload the switch", f"{payload}\n", (RELOADS,), RELOAD)


def _script(step: Step) -> str:
    """Shell commands that run a step."""
    return _reloading(step) if step.minutes else _patching(step)


def _patching(step: Step) -> str:
    """Apply a step's patch. The first step takes the checkpoint that the restore uses."""
    return (
        'if [ ! -e "$dir/checkpoint" ]; then\n'
        f"    config delete-checkpoint {CHECKPOINT} >/dev/null 2>&1 || :\n"
        f"    config checkpoint {CHECKPOINT}\n"
        '    : >"$dir/checkpoint"\n'
        "fi\n"
        f"cat >\"$dir/patch\" <<'PATCH'\n{step.payload}\nPATCH\n"
        'config apply-patch "$dir/patch"\n'
    )


def _reloading(step: Step) -> str:
    """Reload with a step's changes; ends when all ports that were up are up again."""
    return f"""\
dir=${{0%/*}}
up() {{
    sonic-db-cli APPL_DB KEYS 'PORT_TABLE:Ethernet*' | sort | while read -r key; do
        state=$(sonic-db-cli APPL_DB HGET "$key" oper_status)
        if [ "$state" = up ]; then echo "${{key#PORT_TABLE:}}"; fi
    done
}}
up >"$dir/up"
cat >"$dir/patch" <<'PATCH'
{step.payload}
PATCH
cat >"$dir/merge" <<'MERGE'
{MERGE}
MERGE
{SNAPSHOT} >"$dir/now.json"
python3 -I "$dir/merge" "$dir/now.json" "$dir/patch" >"$dir/after.json"
mv "$dir/now.json" "$dir/before.json"
config reload -y "$dir/after.json"
down() {{ up | comm -13 - "$dir/up"; }}
tries={PATIENCE // 5}
while [ -n "$(down)" ]; do
    tries=$((tries - 1))
    if [ "$tries" = 0 ]; then
        echo "these were up and do not come back:" $(down)
        exit 1
    fi
    sleep 5
done
"""
