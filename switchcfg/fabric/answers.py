"""Reads the answers of devices about their neighbours: LLDP, BGP sessions, MTU of ports. Pure.

Answers are not trusted: a reader raises BadState, and nothing else. Sources: lldpd's JSON writer
(json and json0); lldp_syncd of SONiC (LLDP_ENTRY_TABLE); FRR's bgp_vty.c; NAPALM's drivers and
public collectors for EOS and NX-OS; Juniper's XML API Explorer; openconfig-lldp 0.2,
openconfig-bgp 9, openconfig-interfaces 3.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from xml.etree import ElementTree as ET  # expat expands no external entity

from switchcfg.errors import BadState

MAX_TEXT: Final = 1 << 26  # characters of one answer: details of all ports of a chassis
MAX_ROWS: Final = 1 << 14  # neighbours, sessions or ports of one device
MAX_DEPTH: Final = 64
ETHERNET: Final = 14  # bytes of a header, which the MTU of a Junos port includes
_MODULE: Final = re.compile(r"^openconfig-[a-z-]+:")
_ENTITIES: Final = "<!ENTITY"
UP: Final = ("established", "e")  # NX-OS abbreviates


@dataclass(frozen=True, slots=True)
class Heard:
    """A neighbour that a port hears of by LLDP."""

    port: str
    system: str  # name of the neighbour; without one, its chassis id
    ports: tuple[str, ...]  # names that its port may have: its id and its description


Lldp = tuple[Heard, ...]
Sessions = frozenset[str]  # peers of BGP sessions that are up
Mtus = dict[str, int]  # by port, without the Ethernet header


# --- JSON of any shape ----------------------------------------------------------------


def _json(text: str) -> Any:
    if len(text) > MAX_TEXT:
        raise BadState(f"the answer has {len(text)} characters, at most {MAX_TEXT}")
    try:
        return json.loads(text or "{}")
    except (ValueError, RecursionError) as exc:
        raise BadState(f"the answer is not JSON: {exc}") from exc


def _objects(tree: Any, depth: int = MAX_DEPTH) -> Iterator[dict[str, Any]]:
    """Every object of a tree, outer ones first, with keys without OpenConfig's module."""
    if not depth:
        raise BadState(f"the answer is nested more than {MAX_DEPTH} deep")
    if isinstance(tree, dict):
        plain = {_MODULE.sub("", key): value for key, value in tree.items()}
        yield plain
        for each in plain.values():
            yield from _objects(each, depth - 1)
    elif isinstance(tree, list):
        for each in tree:
            yield from _objects(each, depth - 1)


def _with(tree: Any, *keys: str) -> Iterator[dict[str, Any]]:
    """Every object that has these keys; NX-OS writes a list of one as its element."""
    found = 0
    for each in _objects(tree):
        if all(key in each for key in keys):
            found += 1
            if found > MAX_ROWS:
                raise BadState(f"the answer has more than {MAX_ROWS} rows")
            yield each


def _text(value: Any) -> str:
    """A text; of lldpd's lists and objects, the first value."""
    if isinstance(value, list):
        return _text(value[0]) if value else ""
    if isinstance(value, dict):
        return _text(value.get("value", ""))
    return str(value).strip() if isinstance(value, str | int) else ""


def _number(value: Any) -> int:
    try:
        return int(value)
    except (TypeError, ValueError):
        return 0


def _heard(port: Any, system: Any, *ports: Any) -> Heard:
    names = dict.fromkeys(filter(None, map(_text, ports)))
    return Heard(_text(port), _text(system), tuple(names))


# --- LLDP -----------------------------------------------------------------------------


def lldp_of_lldpd(text: str) -> Lldp:
    """`lldpctl -f json`, and json0: names are keys of objects in one, fields in the other."""
    found: list[Heard] = []
    for row in _with(_json(text), "interface"):
        for name, each in _named(row["interface"]):
            port = each.get("port", {})
            port = port[0] if isinstance(port, list) and port else port
            for system, _ in _named(each.get("chassis", {})):
                if isinstance(port, dict):
                    found.append(_heard(name, system, port.get("id"), port.get("descr")))
    return tuple(found)


def _named(value: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    """(name, object) of a list of objects, or of an object by name."""
    for each in value if isinstance(value, list) else [value]:
        if not isinstance(each, dict):
            continue
        if "name" in each or "id" in each:
            yield _text(each.get("name")) or _text(each.get("id")), each
        else:
            yield from ((name, row) for name, row in each.items() if isinstance(row, dict))


def lldp_of_sonic(text: str) -> Lldp:
    """Rows LLDP_ENTRY_TABLE:PORT of APPL_DB, as sonic-db-dump prints them."""
    rows = _json(text)
    found = []
    for key, row in rows.items() if isinstance(rows, dict) else ():
        value = row.get("value", row) if isinstance(row, dict) else {}
        if key.startswith("LLDP_ENTRY_TABLE:") and isinstance(value, dict):
            system = value.get("lldp_rem_sys_name") or value.get("lldp_rem_chassis_id")
            ports = (value.get("lldp_rem_port_id"), value.get("lldp_rem_port_desc"))
            found.append(_heard(key.partition(":")[2], system, *ports))
    return tuple(found)


def lldp_of_eos(text: str) -> Lldp:
    """`show lldp neighbors`."""
    rows = _with(_json(text), "port", "neighborDevice")
    return tuple(_heard(r["port"], r["neighborDevice"], r.get("neighborPort")) for r in rows)


def lldp_of_nxos(text: str) -> Lldp:
    """`show lldp neighbors detail`."""
    return tuple(
        _heard(
            re.sub(r"^Eth(?=\d)", "Ethernet", _text(row["l_port_id"])),
            _text(row.get("sys_name")) or row.get("chassis_id"),
            row.get("port_id"),
            row.get("port_desc"),
        )
        for row in _with(_json(text), "l_port_id")
    )


def lldp_of_junos(text: str) -> Lldp:
    """The reply to <get-lldp-neighbors-information/>."""
    found = []
    for row in _elements(text, "lldp-neighbor-information"):
        port = row.get("lldp-local-port-id") or row.get("lldp-local-interface", "")
        system = row.get("lldp-remote-system-name") or row.get("lldp-remote-chassis-id")
        ports = (row.get("lldp-remote-port-id"), row.get("lldp-remote-port-description"))
        found.append(_heard(port.partition(".")[0], system, *ports))  # without the unit
    return tuple(found)


def lldp_of_openconfig(text: str) -> Lldp:
    """A Get of openconfig-lldp."""
    found = []
    for row in _with(_json(text), "name", "neighbors"):
        for near in _with(row["neighbors"], "port-id"):
            if "system-name" in near or "chassis-id" in near:
                system = near.get("system-name") or near.get("chassis-id")
                ports = (near["port-id"], near.get("port-description"))
                found.append(_heard(row["name"], system, *ports))
    return tuple(dict.fromkeys(found))


# --- BGP ------------------------------------------------------------------------------


def bgp_of_frr(text: str) -> Sessions:
    """`show bgp vrf all summary json`; without BGP, FRR says so in a sentence."""
    if not text.lstrip().startswith("{"):
        return frozenset()
    return _peers(_json(text), "state")


def bgp_of_eos(text: str) -> Sessions:
    """`show ip bgp summary vrf all`, and the same of IPv6."""
    return _peers(_json(text), "peerState")


def _peers(tree: Any, state: str) -> Sessions:
    return frozenset(
        name
        for row in _with(tree, "peers")
        if isinstance(row["peers"], dict)
        for name, peer in row["peers"].items()
        if isinstance(peer, dict) and _text(peer.get(state)).lower() in UP
    )


def bgp_of_nxos(text: str) -> Sessions:
    """`show bgp sessions vrf all`."""
    rows = _with(_json(text), "neighbor-id", "state")
    return frozenset(_text(r["neighbor-id"]) for r in rows if _text(r["state"]).lower() in UP)


def bgp_of_junos(text: str) -> Sessions:
    """The reply to <get-bgp-summary-information/>; a session that is up may show its routes."""
    return frozenset(
        row["peer-address"]
        for row in _elements(text, "bgp-peer")
        if row.get("peer-address")
        and (row.get("peer-state", "").lower() in UP or "/" in row.get("peer-state", ""))
    )


def bgp_of_openconfig(text: str) -> Sessions:
    """A Get of the neighbours of openconfig-bgp."""
    rows = _with(_json(text), "neighbor-address", "session-state")
    return frozenset(
        _text(r["neighbor-address"]) for r in rows if _text(r["session-state"]).lower() in UP
    )


# --- MTU ------------------------------------------------------------------------------


def mtu_of_linux(text: str) -> Mtus:
    """`ip -j link show`."""
    return {
        _text(row["ifname"]): _number(row["mtu"]) for row in _with(_json(text), "ifname", "mtu")
    }


def mtu_of_eos(text: str) -> Mtus:
    """`show interfaces`."""
    return {_text(r["name"]): _number(r["mtu"]) for r in _with(_json(text), "name", "mtu")}


def mtu_of_nxos(text: str) -> Mtus:
    """`show interface`."""
    rows = _with(_json(text), "interface", "eth_mtu")
    return {_text(row["interface"]): _number(row["eth_mtu"]) for row in rows}


def mtu_of_junos(text: str) -> Mtus:
    """The reply to <get-interface-information> with <media/>."""
    rows = _elements(text, "physical-interface")
    return {
        row["name"]: _number(row["mtu"]) - ETHERNET
        for row in rows
        if row.get("mtu", "").isdecimal() and "name" in row
    }


def mtu_of_openconfig(text: str) -> Mtus:
    """A Get of openconfig-interfaces."""
    found = {}
    for row in _with(_json(text), "name", "state"):
        state = next(_objects(row["state"]), {})
        if "mtu" in state and "type" in state:
            found[_text(row["name"])] = _number(state["mtu"])
    return found


# --- XML ------------------------------------------------------------------------------


def _elements(text: str, tag: str) -> Iterator[dict[str, str]]:
    """The texts of the children of every element with this tag, by tag, without namespaces."""
    if len(text) > MAX_TEXT or _ENTITIES in text:
        raise BadState(f"the answer has more than {MAX_TEXT} characters, or entities")
    try:
        root = ET.fromstring(text)  # noqa: S314  # entities are refused above
    except ET.ParseError as exc:
        raise BadState(f"the answer is not XML: {exc}") from exc
    rows = (each for each in root.iter() if _tag(each) == tag)
    for number, row in enumerate(rows):
        if number >= MAX_ROWS:
            raise BadState(f"the answer has more than {MAX_ROWS} rows")
        yield {_tag(each): (each.text or "").strip() for each in row}


def _tag(element: ET.Element) -> str:
    return element.tag.rpartition("}")[2]
