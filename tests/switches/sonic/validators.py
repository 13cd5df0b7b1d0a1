"""What a SONiC release's patch validators say to a change of CONFIG_DB.

Which operations on which fields, for which ASIC: facts of sonic-utilities, branches 202305 to
202605, generic_config_updater/gcu_field_operation_validators.conf.json and
field_operation_validators.py. They are asked of each operation of the difference between what is
and what shall be, by the same library as upstream's.
"""

import re
from collections.abc import Iterator
from typing import Any

import jsonpatch

# HWSKU -> its ASIC, and the first release that knows it: some of each list.
ASICS = {
    "Force10-S6000": ("td2", 202305),
    "Arista-7260CX3-C64": ("th2", 202305),
    "ACS-MSN2700": ("spc1", 202305),
    "ACS-SN5600": ("spc4", 202305),
    "ACS-SN5640": ("spc5", 202505),
    "Arista-7060X6-64PE": ("th5", 202505),
    "Nokia-IXR7220-H6-64": ("th6", 202605),
}
HEADROOM_FIXED = {"td2"}  # its platforms have "" for xoff
TRIM = {"spc4": 202511, "spc5": 202511, "th5": 202511, "th6": 202605}
GREEN = ("green_min_threshold", "green_max_threshold", "green_drop_probability")


def problems(before: dict[str, Any], after: dict[str, Any]) -> Iterator[str]:
    version = before.get("VERSIONS", {}).get("DATABASE", {}).get("VERSION", "")
    named = re.fullmatch(r"version_(\d{6})_\d+", version)
    release = int(named[1]) if named else 202211
    asic = _asic(before, release)
    for op in jsonpatch.JsonPatch.from_diff(before, after):
        table, *rest = [part.replace("~1", "/") for part in op["path"].split("/")[1:]]
        if table in TABLES and not TABLES[table](release, asic, rest, op):
            yield f"Modification of {table} table is illegal ({op['op']} {op['path']})"


def _asic(tables: dict[str, Any], release: int) -> str:
    hwsku = tables.get("DEVICE_METADATA", {}).get("localhost", {}).get("hwsku", "")
    asic, since = ASICS.get(hwsku, ("", 0))
    return asic if release >= since else ""


def _fields(rest: list[str], op: dict[str, Any], *, ports_go: bool) -> list[str]:
    """The fields that an operation is about. Parts with a digit count as names of ports, and go."""
    at = [part for part in rest if not (ports_go and re.search(r"\d", part))]
    name = "/".join(at).lower()
    if isinstance(op.get("value"), dict):
        return [f"{name}/{key}" if name else key for key in op["value"]]
    return [name]


def _buffer_pool(release: int, asic: str, rest: list[str], op: dict[str, Any]) -> bool:
    if release >= 202511 or not asic or asic == "td2" or op["op"] != "replace":
        return False
    known = ("ingress_lossless_pool/xoff", "ingress_lossless_pool/size", "egress_lossy_pool/size")
    return all(field in known for field in _fields(rest, op, ports_go=True))


def _buffer_profile(release: int, asic: str, rest: list[str], op: dict[str, Any]) -> bool:
    objects = release >= 202511
    if objects and len(rest) == 1:
        return op["op"] in ("add", "remove", "replace")
    if not asic:
        return False
    for field in _fields(rest, op, ports_go=not objects):
        last = field.rpartition("/")[2] if objects else field
        allowed: dict[str, tuple[str, ...]] = {"dynamic_th": ("replace",)}
        if asic not in HEADROOM_FIXED:
            allowed["xoff"] = ("replace",)
        if release >= TRIM.get(asic, release + 1):
            allowed["packet_discard_action"] = ("add", "replace")
        if op["op"] not in allowed.get(last, ()):
            return False
    return True


def _wred_profile(release: int, asic: str, rest: list[str], op: dict[str, Any]) -> bool:
    if release >= 202511:
        return True  # it has no validator any more
    if not asic or op["op"] != "replace":
        return False
    if release >= 202505:
        fields = [each.rpartition("/")[2] for each in _fields(rest, op, ports_go=False)]
        return all(field in GREEN for field in fields)
    known = [f"azure_lossless/{field}" for field in GREEN]
    return all(field in known for field in _fields(rest, op, ports_go=True))


TABLES = {
    "BUFFER_POOL": _buffer_pool,
    "BUFFER_PROFILE": _buffer_profile,
    "WRED_PROFILE": _wred_profile,
}
