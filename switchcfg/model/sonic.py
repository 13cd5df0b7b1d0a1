"""Model of a SONiC switch, from its CONFIG_DB. Pure.

Sources: qosorch.cpp, bufferorch.cpp and buffermgr.cpp of sonic-swss (which row is valid for which
port and queue); the SAI headers saiport.h and saiqueue.h (defaults of maps that are not bound).
"""

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from switchcfg.model.values import (
    DSCPS,
    PCPS,
    PauseBuffer,
    PortModel,
    SwitchModel,
    Treatment,
    Way,
    first_number,
    port_model,
)

Row = Mapping[str, Any]
Tables = Mapping[str, Mapping[str, Row]]

QUEUE_TABLES: Final = ("QUEUE", "BUFFER_QUEUE", "BUFFER_PG")
# Fields of a port's row that this model uses
PORT_FIELDS: Final = re.compile(
    "(dscp|dot1p)_to_tc_map|tc_to_(queue|pg|dscp|dot1p)_map|pfc_to_(queue|pg)_map|pfc_enable|"
    "pfcwd_sw_enable|scheduler|mpls_tc_to_tc_map"
)
# Fields -> the table of their maps
MAPS: Final = {
    "dscp_to_tc_map": "DSCP_TO_TC_MAP",
    "dot1p_to_tc_map": "DOT1P_TO_TC_MAP",
    "tc_to_queue_map": "TC_TO_QUEUE_MAP",
    "tc_to_pg_map": "TC_TO_PRIORITY_GROUP_MAP",
    "pfc_to_queue_map": "MAP_PFC_PRIORITY_TO_QUEUE",
    "pfc_to_pg_map": "PFC_PRIORITY_TO_PRIORITY_GROUP_MAP",
    "tc_to_dscp_map": "TC_TO_DSCP_MAP",
    "tc_to_dot1p_map": "TC_TO_DOT1P_MAP",
}
_COMPUTED: Final = re.compile(r"NULL|pg_lossless_\w+")  # profiles that the switch makes itself
_TUNNEL_MAP: Final = re.compile(r"(en|de)cap_\w+_map")
_SHAPERS: Final = ("meter_type", "cir", "cbs", "pir", "pbs")
_TRIM: Final = "packet_discard_action"
_MOST: Final = 64  # numbers of one range


def model(text: str, payloads: Sequence[str] = ()) -> SwitchModel:
    """The model of a CONFIG_DB after patches: RFC 6902 if a list, else RFC 7396."""
    tables: dict[str, Any] = json.loads(text)
    for payload in payloads:
        change = json.loads(payload)
        if isinstance(change, list):
            for step in change:
                _patch(tables, step)
        else:
            _merge(tables, change)
    found = {
        name: {key: row for key, row in rows.items() if isinstance(row, dict)}
        for name, rows in tables.items()
        if isinstance(rows, dict)
    }
    rows = _by_port(found)
    ports = {
        name: _SonicPort(found, name, rows.get(name, {})).model() for name in _ports(found, rows)
    }
    return SwitchModel(ports, _SonicPort(found, "", {}).model(), _notes(found))


def _notes(tables: Tables) -> dict[str, list[str]]:
    """Tunnels with maps of their own (tunneldecaporch.cpp, muxorch.cpp), and ports with asymmetric
    PFC, which pause every queue when the neighbour says so (sonic-port.yang)."""
    out: dict[str, list[str]] = {"": []}
    for name, row in tables.get("TUNNEL", {}).items():
        if maps := sorted(field for field in row if _TUNNEL_MAP.fullmatch(field)):
            out[""].append(
                f"tunnel: TUNNEL|{name} has {', '.join(maps)}: these maps choose queues and code "
                "points of its packets, and a plan changes none of them"
            )
    for name, row in tables.get("PORT", {}).items():
        if str(row.get("pfc_asym", "off")) == "on":
            out[name] = [f"pfc_asym: {name} has it on: the neighbour can pause every queue"]
    return out


def _patch(tables: dict[str, Any], step: Row) -> None:
    *above, last = [p.replace("~1", "/").replace("~0", "~") for p in step["path"].split("/")[1:]]
    at = tables
    for part in above:
        at = at[part]
    if step["op"] == "remove":
        del at[last]
    else:
        at[last] = step["value"]


def _merge(target: dict[str, Any], change: Row) -> None:
    for key, value in change.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            _merge(target.setdefault(key, {}), value)
        else:
            target[key] = value


def _by_port(tables: Tables) -> dict[str, dict[tuple[str, int], list[Row]]]:
    """Port -> (table, queue or group) -> all rows whose key covers it."""
    out: dict[str, dict[tuple[str, int], list[Row]]] = {}
    for table in QUEUE_TABLES:
        for key, row in tables.get(table, {}).items():
            *_, ports, numbers = ["", *key.split("|")]
            for port in ports.split(","):
                for number in _numbers(numbers):
                    out.setdefault(port, {}).setdefault((table, number), []).append(row)
    return out


def _numbers(text: str) -> Sequence[int]:
    first, _, last = text.partition("-")
    if not first.isdecimal() or not (last or first).isdecimal():
        return ()
    low, high = int(first), int(last or first)
    return range(low, min(high, low + _MOST) + 1)


def _ports(tables: Tables, rows: Mapping[str, object]) -> Iterator[str]:
    keys = (key for key in tables.get("PORT_QOS_MAP", {}) if key != "global")
    bound = (port for key in keys for port in key.rpartition("|")[2].split(","))
    yield from dict.fromkeys((*tables.get("PORT", {}), *bound, *filter(None, rows)))


class _SonicPort:
    """One port of a CONFIG_DB."""

    def __init__(
        self, tables: Tables, name: str, rows: Mapping[tuple[str, int], list[Row]]
    ) -> None:
        self.tables, self.name, self.rows = tables, name, rows
        self.bound: dict[str, str] = {}
        bindings = tables.get("PORT_QOS_MAP", {})
        if point_map := bindings.get("global", {}).get("dscp_to_tc_map"):
            self.bound["dscp_to_tc_map"] = point_map
        for key, row in bindings.items():
            if key != "global" and name in key.rpartition("|")[2].split(","):
                self.bound |= {field: str(value) for field, value in row.items()}

    def model(self) -> PortModel:
        return port_model([*self._ways()], self._treatment)

    def _ways(self) -> Iterator[Way]:
        """IP packets by the map of code points, if there is one; frames by PCP otherwise."""
        points = self._map("dscp_to_tc_map")
        tags = self._map("dot1p_to_tc_map")
        for dscp in range(DSCPS):
            if points is None:
                yield Way("port" if tags is None else "PCP", "0", default=True)
            else:
                name = self.bound["dscp_to_tc_map"]
                yield Way("DSCP", str(points.get(str(dscp), "0")), classifier=name)
        how = "PCP, unless IP" if points is not None else "PCP"
        for pcp in range(PCPS):
            if tags is None:
                yield Way("port" if points is None else "port, unless IP", "0", default=True)
            else:
                yield Way(how, str(tags.get(str(pcp), "0")))

    def _treatment(self, tc: str) -> Treatment:
        queues = self._map("tc_to_queue_map")
        queue = str((queues or {}).get(tc, "none" if queues else "0"))
        groups = self._map("tc_to_pg_map")
        group = str((groups or {}).get(tc, "0"))
        own, unknown = self._row("QUEUE", queue)
        limit, more = self._row("BUFFER_QUEUE", queue)
        room, most = self._row("BUFFER_PG", group)
        unknown += more + most + self._unread()
        scheduler = self._profile("SCHEDULER", own.get("scheduler", ""))
        shaper = {k: v for k, v in scheduler.items() if k in _SHAPERS}
        whole = self._profile("SCHEDULER", self.bound.get("scheduler", ""))
        profile = self._profile("BUFFER_PROFILE", limit.get("profile", ""))
        return Treatment(
            traffic_class=tc,
            queue=queue,
            group=group,
            headroom=self._headroom(str(room.get("profile", "")), group),
            buffer=self._buffer(limit.get("profile", ""), profile),
            pfc=self._pfc(queue, group),
            mark=_said(self._profile("WRED_PROFILE", own.get("wred_profile", ""))),
            share=_said({k: v for k, v in scheduler.items() if k not in shaper}),
            shaper="; ".join(filter(None, (_said(shaper), _said(whole)))),
            rewrite=self._rewriting(tc),
            unknown="; ".join(dict.fromkeys(unknown)),
            rank=first_number(queue) if scheduler.get("type") == "STRICT" else None,
            weight=first_number(str(scheduler.get("weight", ""))),
            cables=frozenset(k for k, row in self._cables() if self.name in row),
            pausing=frozenset(filter(None, [self.bound.get("pfc_to_queue_map")])),
            pauses=self._reacts(queue) | self._enabled("pfc_enable") & self._sending(group),
            pause_buffer=self._pause_buffer(str(room.get("profile", "")), group),
        )

    def _unread(self) -> list[str]:
        """Fields of the port that are not understood, and maps that are not there."""
        return [
            f"PORT_QOS_MAP {field} {name}"
            for field, name in self.bound.items()
            if not PORT_FIELDS.fullmatch(field)
            or (field in MAPS and name not in self.tables.get(MAPS[field], {}))
        ]

    def _row(self, table: str, number: str) -> tuple[Row, list[str]]:
        """(the row of a queue or group, what is unclear about it)."""
        found = self.rows.get((table, int(number)), []) if number.isdecimal() else []
        if any(row != found[0] for row in found):
            return found[-1], [f"{table}: two rows for {self.name}|{number} differ"]
        return (found[0] if found else {}), []

    def _headroom(self, profile: str, group: str) -> str:
        fields = self._profile("BUFFER_PROFILE", profile)
        paused = self._enabled("pfc_enable") & self._sending(group)
        if (not profile and paused) or _COMPUTED.fullmatch(profile):
            rows = (row for _, row in self._cables())
            length = next((row[self.name] for row in rows if self.name in row), "none")
            speed = self.tables.get("PORT", {}).get(self.name, {}).get("speed", "unknown")
            return f"computed for cable {length} and speed {speed}"
        return self._buffer(profile, fields)

    def _pause_buffer(self, profile: str, group: str) -> PauseBuffer | None:
        """The `xoff` of a group that pauses; None: the switch computes it, or has none."""
        xoff = str(self._profile("BUFFER_PROFILE", profile).get("xoff", ""))
        if not xoff.isdecimal() or not self._enabled("pfc_enable") & self._sending(group):
            return None
        port = self.tables.get("PORT", {}).get(self.name, {})
        lengths = (str(row[self.name]) for _, row in self._cables() if self.name in row)
        rate = first_number(str(port.get("speed", ""))) * 10**6  # of Mbit/s
        frame = first_number(str(port.get("mtu", "")))
        return PauseBuffer(int(xoff), first_number(next(lengths, "")), rate, frame)

    def _cables(self) -> Iterable[tuple[str, Row]]:
        return self.tables.get("CABLE_LENGTH", {}).items()

    def _buffer(self, name: str, fields: Row) -> str:
        if name and not fields:
            return f"profile {name}"
        out = dict(fields)
        if pool := self.tables.get("BUFFER_POOL", {}).get(out.get("pool", "")):
            out["pool"] = f"{out['pool']} ({_said(pool)})"
        if out.get(_TRIM) == "trim":
            out[_TRIM] = f"trim ({_said(self.tables.get('SWITCH_TRIMMING', {}).get('GLOBAL', {}))})"
        return _said(out)

    def _enabled(self, field: str) -> set[str]:
        return set(filter(None, self.bound.get(field, "").split(",")))

    def _sending(self, group: str) -> set[str]:
        """Priorities that a full priority group pauses at the neighbour."""
        to = self._map("pfc_to_pg_map") or {}
        return {str(each) for each in range(PCPS) if str(to.get(str(each), each)) == group}

    def _reacts(self, queue: str) -> frozenset[str]:
        """Enabled priorities that pause a queue."""
        to = self._map("pfc_to_queue_map") or {}
        return frozenset(
            each for each in self._enabled("pfc_enable") if str(to.get(each, each)) == queue
        )

    def _pfc(self, queue: str, group: str) -> str:
        enabled, guarded = self._enabled("pfc_enable"), self._enabled("pfcwd_sw_enable")
        pausing = self._reacts(queue)
        sending = enabled & self._sending(group)
        parts = (("pauses by", pausing), ("sends", sending))
        out = [f"{word} {','.join(sorted(them))}" for word, them in parts if them]
        if watched := guarded & (pausing | sending):
            out.append(f"watchdog {','.join(sorted(watched))}")
        return ", ".join(out)

    def _rewriting(self, tc: str) -> str:
        maps = (("DSCP", "tc_to_dscp_map"), ("PCP", "tc_to_dot1p_map"))
        found = ((word, self._map(field)) for word, field in maps)
        return ", ".join(f"{word} {to.get(tc, 'kept')}" for word, to in found if to is not None)

    def _map(self, field: str) -> Row | None:
        """The map that a port has bound; None: no map."""
        name = self.bound.get(field)
        return None if not name else self.tables.get(MAPS[field], {}).get(name, {})

    def _profile(self, table: str, name: str) -> Row:
        return self.tables.get(table, {}).get(name, {}) if name else {}


def _said(fields: Row) -> str:
    return ", ".join(f"{key} {value}" for key, value in sorted(fields.items()))
