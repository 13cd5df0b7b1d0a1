"""Parses and checks an intent: a vendor-neutral TOML file of queues and classes. Pure."""

import re
import tomllib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from switchcfg.errors import BadIntent
from switchcfg.intent import inventory
from switchcfg.intent.classes import (
    MAX_CLASSES,
    MAX_DSCP,
    TrafficClass,
    read_classes,
    shared_classes,
)
from switchcfg.intent.known import KNOWN, having
from switchcfg.intent.links import Ends, read_links
from switchcfg.intent.lossless import Lossless, read_cable, read_lossless
from switchcfg.intent.port_names import FASTEST, MEMBERS
from switchcfg.intent.port_ranges import expand
from switchcfg.intent.table import Source, Table, among
from switchcfg.intent.toml_lines import lines_of

SCHEMA: Final = 1  # of the file; incremented by a change that breaks old files
QUEUES: Final = 8  # per port, on every platform here
MAX_TEXT: Final = 1 << 20  # characters of a file: a fabric of a few thousand switches
MAX_DEVICES: Final = 4096
MAX_RATE: Final = FASTEST * MEMBERS  # bit/s, of a port-channel
MIN_BUFFER, MAX_BUFFER = 1 << 14, 1 << 28  # bytes per port: ten packets; more than any chip has
MIN_TRIM, MAX_TRIM = 64, 9216  # bytes: room for the headers; the longest packet
NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")  # RFC 1123, and '_'
PREFIX: Final = re.compile(r"[A-Z][A-Z0-9]{1,11}")  # of objects' names; SONiC: 32 characters in all
GROUP: Final = re.compile(r"[A-Z][A-Z0-9]{0,7}")
NAME_OF_PORT: Final = re.compile(r"[A-Za-z][A-Za-z0-9/:._\[\]-]{0,63}")  # or a range of them
FILE: Final = re.compile(r"[^\x00-\x1f\x7f]{1,255}")
ADDRESS: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9.:-]{0,252}")  # a name, IPv4, or IPv6

Read = Callable[[str], str]

SPRAY: Final = ("hash", "packet", "keep")
# Per drop precedence: the fractions of the queue at which drops begin and at which all are dropped.
# The protected one is dropped when the queue is full; the others so early that it never is.
CURVES: Final = ((1.0, 1.0), (0.5, 0.8), (0.2, 0.5))
MARK: Final = (0.2, 0.5)  # the same for ECN: as the last drop precedence, which sends Not-ECT


@dataclass(frozen=True, slots=True)
class Queueing:
    """How ports queue, drop and mark packets."""

    buffer: int  # bytes of a port, for all classes together
    rest: str  # the class of every DSCP that no class names
    curves: tuple[tuple[float, float], ...]  # [drop precedence] = (begin, certain)
    mark: tuple[float, float] | None  # None: no ECN
    trim: int  # bytes to which a packet without room is cut; 0: it is dropped


@dataclass(frozen=True, slots=True)
class Keep:
    """Foreign configuration that switchcfg must preserve, and profiles that it may replace."""

    dscp: Mapping[int, int]  # DSCP -> its queue, today and after the change
    queues: tuple[int, ...]  # queues that no class may use, those of `dscp` included
    ports: tuple[str, ...]  # ports that no device entry may name
    replaces: tuple[str, ...]  # foreign profiles on ports that switchcfg's may replace


@dataclass(frozen=True, slots=True)
class PortGroup:
    """Ports of one device that are configured alike."""

    name: str  # part of the names of its objects on the device; "" = no such part
    ports: tuple[str, ...]
    rate: int  # bit/s
    buffer: int  # bytes


@dataclass(frozen=True, slots=True)
class Device:
    """One switch."""

    name: str
    platform: str
    address: str  # management address; "" = its name
    side: str  # of the ECMP groups: devices of two sides are never changed at the same time
    pool: str  # SONiC: buffer pool of switchcfg's queues; "" = the only one
    reload: bool  # SONiC: may restart all services where the release takes no patch
    groups: tuple[PortGroup, ...]
    dscp_ipv6: bool = True  # Junos: the chip has separate classifiers for IPv6

    @property
    def ports(self) -> tuple[str, ...]:
        """The ports of all groups, in the file's order."""
        return tuple(port for group in self.groups for port in group.ports)


@dataclass(frozen=True, slots=True)
class Intent:
    """A parsed intent file."""

    fabric: str
    prefix: str  # of the name of every object that switchcfg makes
    spray: str  # "hash": ECMP by layer 4; "packet": per packet where supported; "keep": unchanged
    classes: tuple[TrafficClass, ...]  # by rank
    queueing: Queueing
    keep: Keep
    devices: tuple[Device, ...]
    lossless: tuple[Lossless, ...] = ()  # by priority
    links: tuple[Ends, ...] = ()
    cable: int = 0  # metres of the longest one, to check headrooms; 0: as each switch says

    def device(self, name: str) -> Device:
        """The device of this name. Raises: BadIntent, with the known names."""
        for each in self.devices:
            if each.name == name:
                return each
        known = [each.name for each in self.devices]
        raise BadIntent(f"the intent has no device {name!r}{among(name, known)}")


def parse(text: str, name: str, read: Read | None = None) -> Intent:
    """Read an intent. `name`: of the file, for errors. `read`: returns the text of a file that the
    intent names, or raises BadIntent.

    Raises: BadIntent naming file, line and field.
    """
    if len(text) > MAX_TEXT:
        raise BadIntent(f"{name}: {len(text)} characters, at most {MAX_TEXT}")
    try:
        values = tomllib.loads(text)
    except ValueError as exc:  # TOMLDecodeError names line and column
        raise BadIntent(f"{name}: {exc}") from exc
    except RecursionError as exc:
        raise BadIntent(f"{name}: nested too deeply") from exc
    return _intent(Table(values, (), Source(name, lines_of(text))), read)


def _intent(root: Table, read: Read | None) -> Intent:
    if root.integer("schema", 0, 1 << 16) != SCHEMA:
        raise root.error("schema", f"this version of switchcfg reads schema {SCHEMA} only")
    fabric = root.table("fabric")
    name = fabric.text("name", NAME, "name (letters, digits, '.', '_', '-'; at most 63)")
    prefix = fabric.text("prefix", PREFIX, "prefix (2 to 12 capitals and digits)", "DLCP")
    spray = fabric.one_of("spray", SPRAY, "hash")
    cable = read_cable(fabric)
    fabric.done()
    root.expect("classes", "lossless")
    classes = read_classes(root.table("classes")) if root.has("classes") else shared_classes()
    keep = _keep(root.table("keep"), classes)
    lossless = read_lossless(root, classes, keep.dscp, keep.queues)
    queueing = _queueing(root.table("queues"), classes)
    devices = _devices(root, read, queueing.buffer, keep)
    links = read_links(root, {each.name: each.platform for each in devices})
    root.done()
    return Intent(name, prefix, spray, classes, queueing, keep, devices, lossless, links, cable)


def _queueing(table: Table, classes: tuple[TrafficClass, ...]) -> Queueing:
    curves = table.ramps("drop", CURVES)
    ranks = max(len(each.dscp) for each in classes)
    if len(curves) < ranks:
        raise table.error(
            "drop", f"{len(curves)} curves for {ranks} drop precedences of the classes"
        )
    ecn = table.flag("ecn", True)
    mark = table.ramp("mark", MARK)
    if not ecn and "mark" in table.values:
        raise table.error("mark", "has no effect with ecn = false: remove it")
    found = Queueing(
        table.size("buffer", MIN_BUFFER, MAX_BUFFER, 1 << 19),
        table.one_of("rest", [each.name for each in classes], classes[-1].name),
        curves[:ranks],
        mark if ecn else None,
        table.size("trim", MIN_TRIM, MAX_TRIM, 0),
    )
    table.done()
    return found


def _keep(table: Table, classes: tuple[TrafficClass, ...]) -> Keep:
    rows = table.table("dscp")
    ours = {dscp: each.name for each in classes for dscp in each.dscp}
    dscp: dict[int, int] = {}
    for key in rows.values:
        if not re.fullmatch(r"0|[1-9][0-9]?", key) or int(key) > MAX_DSCP:
            raise rows.error(key, f"must be a DSCP: 0 to {MAX_DSCP}, without leading zeros")
        if int(key) in ours:
            raise rows.error(
                key,
                f"class {ours[int(key)]!r} sends this code point: give the class another "
                "under [classes]",
            )
        dscp[int(key)] = rows.integer(key, 0, QUEUES - 1)
    queues = table.integers("queues", 0, QUEUES - 1, ())
    kept = tuple(sorted({*queues, *dscp.values()}))
    replaces = table.texts("replaces", NAME, "name of a profile or policy on the switch", ())
    found = Keep(dscp, kept, _ports(table, "ports", ()), replaces)
    table.done()
    return found


def _devices(root: Table, read: Read | None, buffer: int, keep: Keep) -> tuple[Device, ...]:
    """The devices of the file, then those of its inventory, each with its template applied."""
    templates = root.table("template")
    rows = [*root.tables("device"), *_inventory(root, read)]
    devices: dict[str, Device] = {}
    for row in rows:
        table = _on_template(row, templates)
        found = _device(table, buffer, keep)
        if found.name in devices:
            raise table.error("name", f"{found.name!r} is the name of two devices")
        devices[found.name] = found
        for name in templates.values:  # unused templates are checked, too
            _refuse_unknown(templates.table(name), table.known)
    if not 1 <= len(devices) <= MAX_DEVICES:
        raise root.error("device", f"{len(devices)} devices: need 1 to {MAX_DEVICES} ([[device]])")
    return tuple(devices.values())


def _refuse_unknown(template: Table, known: Collection[str]) -> None:
    for key in template.values:
        if key not in known:
            raise template.error(key, f"unknown key {key!r}{among(key, known)}")


def _inventory(root: Table, read: Read | None) -> Iterator[Table]:
    file = root.text("inventory", FILE, "name of a file", "")
    if file:
        if read is None:
            raise root.error("inventory", "only an intent in a file can name an inventory")
        yield from inventory.rows(read(file), file)


def _on_template(table: Table, templates: Table) -> Table:
    """The table of a device; its template supplies the keys that it lacks."""
    name = table.text("template", NAME, "name of a template", "")
    if not name:
        return table
    if name not in templates.values:
        raise table.error("template", f"no [template.{name}]{among(name, templates.values)}")
    template = templates.table(name)
    for key in ("name", "address", "template"):
        if key in template.values:
            raise template.error(key, "belongs to [[device]], not to a template")
    return table.on(template)


def _device(table: Table, buffer: int, keep: Keep) -> Device:
    table.has("template")
    name = table.text("name", NAME, "name (letters, digits, '.', '_', '-'; at most 63)")
    platform = table.one_of("platform", tuple(KNOWN))
    address = table.text("address", ADDRESS, "host name or address", "")
    side = table.text("side", NAME, "name of a side", "")
    pool = table.text("pool", NAME, "name of a buffer pool", "")
    reload = table.flag("reload", False)
    dscp_ipv6 = table.flag("dscp_ipv6", True)
    for key in ("pool", "reload", "dscp_ipv6"):
        if key in table.values and key not in KNOWN[platform].settings:
            raise table.error(key, f"only {having(key)} has this setting, not {platform}")
    groups = tuple(_group(row, platform, buffer) for row in table.tables("ports"))
    table.done()
    if not groups and "ports" not in table.values:
        why = "needs [[device.ports]] with names and rate, or a template with them"
        raise table.error(None, f"{why}; `ports = []` leaves the device as it is")
    found = Device(name, platform, address, side, pool, reload, groups, dscp_ipv6)
    _refuse_bad_ports(table, found, keep)
    return found


def _group(table: Table, platform: str, buffer: int) -> PortGroup:
    names = KNOWN[platform].ports
    ports = _ports(table, "names")
    for port in ports:
        if problem := names.problem(port):
            raise table.error("names", problem)
        if not names.matches(port):
            why = f"{port!r} is not a port of {platform}, which has ports such as {names.example}"
            raise table.error("names", why)
    rate = table.rate("rate", 10**6, MAX_RATE)
    for port in ports:
        if problem := names.rate_problem(port, rate):
            raise table.error("rate", problem)
    found = PortGroup(
        table.text("group", GROUP, "group (up to 8 capitals and digits)", ""),
        ports,
        rate,
        table.size("buffer", MIN_BUFFER, MAX_BUFFER, buffer),
    )
    table.done()
    return found


def _ports(table: Table, key: str, *default: tuple[str, ...]) -> tuple[str, ...]:
    """Port names, with ranges expanded."""
    out: list[str] = []
    for text in table.texts(key, NAME_OF_PORT, "name of a port", *default):
        try:
            out += expand(text)
        except ValueError as exc:
            raise table.error(key, str(exc)) from None
    return tuple(out)


def _refuse_bad_ports(table: Table, device: Device, keep: Keep) -> None:
    groups = [group.name for group in device.groups]
    if len(set(groups)) != len(groups):
        raise table.error("ports", "two port groups have the same name: give each its own `group`")
    if device.groups and not device.ports:
        raise table.error("ports", "names no port")
    seen: set[str] = set()
    for port in device.ports:
        if port in seen:
            raise table.error("ports", f"{port} is listed twice")
        if port in keep.ports:
            raise table.error("ports", f"{port} is also in [keep] ports: remove it there or here")
        seen.add(port)


assert MAX_CLASSES <= QUEUES  # noqa: S101  # one queue per class, if no queue is kept
