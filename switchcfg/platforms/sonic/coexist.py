"""Adapts lossless classes to the PFC that a SONiC switch has. Pure.

Foreign PFC that matches the intent is used: switchcfg does not change it, and a removal leaves it.
Foreign objects that differ must be named in [keep] replaces.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from switchcfg.intent.intent import Device, Intent
from switchcfg.intent.lossless import Lossless
from switchcfg.plan.kept import left_out
from switchcfg.plan.state import Place, State
from switchcfg.platforms.platform import Fit, is_ours
from switchcfg.platforms.sonic.lossless import (
    BUFFER,
    CABLES,
    HEADROOM,
    INGRESS,
    MAP_PFC,
    MAP_PG,
    MODEL,
    Tables,
    binding_of,
    headroom,
    numbered,
    pfc_is_ours,
    pfc_of_others,
)

MAP_PFC_PG: Final = "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP"
# Kind of a lossless class's objects -> the field that refers to such an object.
REFERRED: Final = {
    MAP_PFC: "pfc_to_queue_map",
    MAP_PG: "tc_to_pg_map",
    "SCHEDULER": "scheduler",
    "WRED_PROFILE": "wred_profile",
}


def coexist(intent: Intent, device: Device, state: State, tables: Tables) -> Fit:
    """The wanted state, adapted to a switch's PFC. `tables`: the switch's present state."""
    return _SonicCoexistence(intent, device, state, tables).fit()


class _SonicCoexistence:
    """The parts of a `Fit` while they are made."""

    def __init__(self, intent: Intent, device: Device, state: State, tables: Tables) -> None:
        self.intent, self.device, self.tables = intent, device, tables
        self.state = dict(state)
        self.gives_way: set[Place] = set()
        self.problems: list[str] = []
        self._lengths: dict[str, str] = {}  # port with switchcfg's PFC -> its wanted CABLE_LENGTH
        self._groups: dict[tuple[str, str], str] = {}  # (map, kept traffic class) -> its group
        self.wanted = {each.priority for each in intent.lossless}

    def fit(self) -> Fit:
        """All ports, then what the whole switch has."""
        self._cables()
        for port in self.device.ports if self.intent.lossless else ():
            if pfc_of_others(self.intent, self.tables, port):
                self._theirs(port)
            else:
                self._ours(port)
        self._ended()
        if self.intent.lossless:
            self._unused()
            self._fits()
        return Fit(self.state, frozenset(self.gives_way), tuple(self.problems))

    # --- foreign PFC ---------------------------------------------------------------------

    def _theirs(self, port: str) -> None:
        """A port with foreign PFC: switchcfg sets only scheduler and curve, if they differ."""
        binding = binding_of(self.tables, port)
        enabled = {int(each) for each in binding["pfc_enable"].split(",") if each.isdecimal()}
        if absent := sorted(self.wanted - enabled):
            self.problems.append(
                f"lossless: {port} has foreign PFC on {binding['pfc_enable']}, and not on "
                f"{_list(absent)}: a port has one list of priorities: add {_list(absent)} to "
                "pfc_enable there"
            )
        groups = self._bound(binding, "tc_to_pg_map", MAP_PG)
        queues = self._bound(binding, "pfc_to_queue_map", MAP_PFC)
        for each in self.intent.lossless:
            priority = str(each.priority)
            sharing = [tc for tc, group in sorted(groups.items()) if group == priority]
            if sharing != [priority]:
                self.problems.append(
                    f"lossless: {port}: traffic classes {_list(sharing) or 'none'} go to priority "
                    f"group {priority} by {binding.get('tc_to_pg_map', 'no map')}, not {priority} "
                    f"alone"
                )
            if queues.get(priority, priority) != priority:
                self.problems.append(
                    f"lossless: {port}: PFC of priority {priority} pauses queue "
                    f"{queues[priority]} by {binding['pfc_to_queue_map']}, not {priority}"
                )
            self._pauses(port, binding, each)
            self._queue(port, each)
            self._drop("BUFFER_QUEUE", f"{port}|{priority}", "profile")
        for field in ("pfc_enable", "pfc_to_queue_map", "tc_to_pg_map"):
            self._drop("PORT_QOS_MAP", port, field)
        self._length(port)
        if not is_ours(self.intent, binding.get("dscp_to_tc_map", "")):
            points = self._bound(binding, "dscp_to_tc_map", "DSCP_TO_TC_MAP")
            to = self._bound(binding, "tc_to_queue_map", "TC_TO_QUEUE_MAP")
            today = {int(dscp): to.get(tc, tc) for dscp, tc in points.items() if dscp.isdecimal()}
            known = {dscp: int(queue) for dscp, queue in today.items() if queue.isdecimal()}
            self.problems += left_out(self.intent, port, known)

    def _pauses(self, port: str, binding: Mapping[str, str], each: Lossless) -> None:
        """Check the map of priorities to priority groups, which some platforms have; switchcfg
        never changes it."""
        priority = str(each.priority)
        group = self._bound(binding, "pfc_to_pg_map", MAP_PFC_PG).get(priority, "none")
        if "pfc_to_pg_map" in binding and group != priority:
            self.problems.append(
                f"lossless: {port}: priority {priority} belongs to priority group {group} by "
                f"{binding['pfc_to_pg_map']} (pfc_to_pg_map), not {priority}"
            )

    def _length(self, port: str) -> None:
        """Report a changed CABLE_LENGTH: a port has one, which foreign PFC uses as well."""
        for name, row in self.tables.get("CABLE_LENGTH", {}).items():
            wanted = self.state.get(Place("CABLE_LENGTH", name, port))
            there = row.get(port, "0m")
            if (
                wanted not in {None, there}
                and there != "0m"
                and name not in self.intent.keep.replaces
            ):
                self.problems.append(
                    f"kept: {port} has CABLE_LENGTH {there}, and the intent says {wanted}: write "
                    f'cable = "{there}", or name {name!r} in [keep] replaces'
                )

    def _queue(self, port: str, each: Lossless) -> None:
        """Keep a queue's scheduler and curve if they match the intent; else [keep] replaces must
        name them."""
        key = f"{port}|{each.priority}"
        row = self._row("QUEUE", port, each.priority)
        used = {
            "scheduler": self._scheduler(row.get("scheduler", ""), each),
            "wred_profile": self._curve(row.get("wred_profile", ""), each),
        }
        stay = [field for field, why in used.items() if why == ""]
        for field, why in used.items():
            if why and (name := row[field]) not in self.intent.keep.replaces:
                self.problems.append(
                    f"kept: {port} queue {each.priority} has {field} {name!r}, {why}, or name "
                    f"{name!r} in [keep] replaces"
                )
        if len(stay) == len(used):
            self._drop("QUEUE", key, *used)
            return
        for field in stay:  # a row with one field of switchcfg needs the other's value, too
            if field in row:
                self.state[Place("QUEUE", key, field)] = row[field]
        self.gives_way.add(Place("QUEUE", key, "wred_profile"))  # if the intent has none

    def _scheduler(self, name: str, each: Lossless) -> str | None:
        """How a foreign scheduler differs from the intent; "": not at all. None: set
        switchcfg's."""
        if not name or is_ours(self.intent, name):
            return None
        found = self.tables.get("SCHEDULER", {}).get(name, {})
        kind, weight = found.get("type", ""), found.get("weight", "")
        if (kind, weight) == ("DWRR", str(each.share)):
            return ""
        hint = f"write share = {weight}" if kind == "DWRR" else "which is not DWRR"
        return f"{kind} {weight}".strip() + f", and the intent says DWRR {each.share}: {hint}"

    def _curve(self, name: str, each: Lossless) -> str | None:
        """As `_scheduler`, for a curve."""
        if is_ours(self.intent, name) or (not name and each.mark):
            return None
        found = self.tables.get("WRED_PROFILE", {}).get(name, {})
        marks = found.get("ecn", "ecn_none") in {"ecn_all", "ecn_green"}
        fields = ("green_min_threshold", "green_max_threshold")
        there = tuple(found.get(field, "") for field in fields) if marks else None
        if there == (tuple(map(str, each.mark)) if each.mark else None):
            return ""
        hint = f"write mark = [{', '.join(there)}]" if there else "write ecn = false"
        marked = " to ".join(map(str, each.mark)) if each.mark else "none"
        shown = " to ".join(there) if there else "none"
        return f"which marks {shown}, and the intent says {marked}: {hint}"

    # --- PFC of switchcfg ------------------------------------------------------------------

    def _ours(self, port: str) -> None:
        binding = self.tables.get("PORT_QOS_MAP", {}).get(port, {})
        name = self.state[Place("PORT_QOS_MAP", port, "tc_to_pg_map")]
        for tc, group in self._bound(binding, "tc_to_pg_map", MAP_PG).items():
            if tc.isdecimal() and int(tc) in self.intent.keep.queues:
                if self._groups.setdefault((name, tc), group) != group:
                    self.problems.append(
                        f"kept: {port}: traffic class {tc} goes to priority group {group}, and "
                        "to another on a port of the same group: give the port its own `group`"
                    )
                self.state[Place(MAP_PG, name, tc)] = group
        rows = self.tables.get("CABLE_LENGTH", {}).values()
        there = next((row[port] for row in rows if port in row), "0m")
        longest = max(each.cable for each in self.intent.lossless)
        self._lengths[port] = f"{longest}m" if longest else there
        if self._lengths[port] == "0m":
            self.problems.append(
                f"lossless: {port} has no CABLE_LENGTH, from which the switch computes headroom: "
                "write cable in [[lossless]]"
            )
        self.gives_way |= headroom(self.tables, port, beyond=self.wanted)
        for each in self.intent.lossless:
            self._pauses(port, binding, each)
            self._buffer(port, each, name)
            self._headroom(port, each)

    def _headroom(self, port: str, each: Lossless) -> None:
        """Request headroom in the dynamic buffer model; in the traditional one it follows PFC."""
        if self.tables.get(MODEL.kind, {}).get(MODEL.name, {}).get(MODEL.field) != "dynamic":
            return
        for key, fields in self.tables.get("BUFFER_PG", {}).items():
            members = set(numbered(port, key))
            there = HEADROOM.fullmatch(fields.get("profile", ""))
            if each.priority in members and members <= self.wanted and there:
                return
        self.state[Place("BUFFER_PG", f"{port}|{each.priority}", "profile")] = "NULL"

    def _buffer(self, port: str, each: Lossless, name: str) -> None:
        """The queue already has the lossless buffer profile, or gets a copy of it with switchcfg's
        name, which can be removed again."""
        key = f"{port}|{each.priority}"
        if self._row("BUFFER_QUEUE", port, each.priority).get("profile") == BUFFER:
            self._drop("BUFFER_QUEUE", key, "profile")
            return
        there = self.tables.get("BUFFER_PROFILE", {}).get(BUFFER)
        if there is None:
            self.problems.append(
                f"lossless: {self.device.name} has no BUFFER_PROFILE|{BUFFER}, which sets the "
                "size of a lossless queue"
            )
            return
        profile = f"{name}_Q{each.priority}"
        self.state[Place("BUFFER_QUEUE", key, "profile")] = profile
        self.state |= {Place("BUFFER_PROFILE", profile, field): v for field, v in there.items()}

    def _ended(self) -> None:
        """Release PFC of switchcfg that the intent no longer has, and its headroom."""
        for port in self.tables.get("PORT_QOS_MAP", {}):
            if not pfc_is_ours(self.intent, self.tables, port):
                continue
            place = Place("PORT_QOS_MAP", port, "pfc_enable")
            wanted = {int(each) for each in self.state.get(place, "").split(",") if each}
            self.gives_way |= {place} | headroom(self.tables, port, beyond=wanted)

    def _fits(self) -> None:
        """Report headroom that exceeds the pool, if the switch shows the sizes.

        A pool with xoff is not checked: its headroom is shared and oversubscribed.
        """
        profiles = self.tables.get("BUFFER_PROFILE", {})
        pool = self.tables.get("BUFFER_POOL", {}).get(INGRESS, {})
        needed = {
            f"{port}|{each.priority}": f"pg_lossless_{self._speed(port)}_{length}_profile"
            for port, length in self._lengths.items()
            for each in self.intent.lossless
        }
        for key, fields in self.tables.get("BUFFER_PG", {}).items():
            port = key.rpartition("|")[0]
            if fields.get("profile") in profiles and port not in self._lengths:
                needed |= {f"{port}|{index}": fields["profile"] for index in numbered(port, key)}
        sizes = [profiles.get(name, {}).get("size", "") for name in needed.values()]
        total = sum(int(size) for size in sizes if size.isdecimal())
        room = pool.get("size", "")
        if room.isdecimal() and "xoff" not in pool and total > int(room):
            self.problems.append(
                f"headroom: {self.device.name}: {len(needed)} priority groups need {total} "
                f"bytes, and {INGRESS} has only {room}"
            )

    def _speed(self, port: str) -> str:
        return self.tables.get("PORT", {}).get(port, {}).get("speed", "")

    # --- of the whole switch ------------------------------------------------------------------

    def _cables(self) -> None:
        """Use the row of CABLE_LENGTH, whatever its name, if there is only one."""
        rows = list(self.tables.get("CABLE_LENGTH", {}))
        if len(rows) == 1 and rows != [CABLES]:
            for place in [each for each in self.state if each.kind == "CABLE_LENGTH"]:
                self.state[place._replace(name=rows[0])] = self.state.pop(place)

    def _unused(self) -> None:
        """Leave out maps and profiles that no port refers to, because foreign ones are used."""
        bindings = ("PORT_QOS_MAP", "QUEUE")
        used = {
            (place.field, value) for place, value in self.state.items() if place.kind in bindings
        }
        for place in list(self.state):
            field = REFERRED.get(place.kind)
            if field and is_ours(self.intent, place.name) and (field, place.name) not in used:
                del self.state[place]

    def _bound(self, binding: Mapping[str, str], field: str, table: str) -> Mapping[str, str]:
        return self.tables.get(table, {}).get(binding.get(field, ""), {})

    def _row(self, table: str, port: str, index: int) -> Mapping[str, str]:
        """The fields of a queue or priority group, whose row may be a range."""
        rows = self.tables.get(table, {})
        return next((rows[key] for key in rows if index in numbered(port, key)), {})

    def _drop(self, kind: str, name: str, *fields: str) -> None:
        for field in fields:
            self.state.pop(Place(kind, name, field), None)


def _list(numbers: Sequence[object]) -> str:
    return ", ".join(map(str, numbers))
