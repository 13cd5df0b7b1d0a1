"""Writes commands for tc, nft and sysctl, and reads their output. Pure.

`tc -batch` stops at the first bad line and keeps the lines before it, `nft -f` is atomic: take a
snapshot before running these scripts. Rules are compared as nft prints them, with numbers for names
(`-nn`): a comment would not reveal that a table was changed by hand.
"""

import json
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, Final

from switchcfg.errors import BadState
from switchcfg.plan.state import Change, Place, State
from switchcfg.platforms.rule import SEPARATOR

HANDLE: Final = "dc"  # of switchcfg's root queues, in hex
TOP: Final = "1"  # minor number of the class that holds all others
PACKET: Final = 1514  # bytes: htb's quantum, one packet per round of equal priorities
BURST_TIME: Final = 0.26e-3  # seconds of rate sent in one burst: 32 KiB at 1 Gb/s
MIN_BURST: Final = 4096  # bytes; less than two packets would throttle a slow port
MAX_TEXT: Final = 1 << 24  # characters of a snapshot

ROOT, CLASS, FIFO = "root", "class", "fifo"  # values: default minor; rate ceil prio; bytes
RULE, SETTING = "rule", "sysctl"
PORT, FOREIGN = "port", "foreign root"  # only read
_KERNELS: Final = "0:"  # handle of the kernel's default queues

_UNITS: Final = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_RATE: Final = r"(\d+)([KMGT]?)bit"
_CLASS: Final = re.compile(
    rf"class htb {HANDLE}:(?P<minor>[0-9a-f]+) (?:root|parent \S+)"
    rf"(?:.* prio (?P<prio>\d+))?.* rate (?P<rate>\d+[KMGT]?bit) ceil (?P<ceil>\d+[KMGT]?bit)"
)
_MADE_CLASS: Final = re.compile(
    rf"class replace dev (?P<port>\S+) parent \S+ classid {HANDLE}:(?P<minor>\w+) "
    r"htb rate (?P<rate>\d+bit) ceil (?P<ceil>\d+bit) prio (?P<prio>\d+)"
)
_MADE_ROOT: Final = re.compile(
    rf"qdisc replace dev (?P<port>\S+) root handle {HANDLE}: htb default (?P<minor>\w+)"
)
_MADE_FIFO: Final = re.compile(
    rf"qdisc replace dev (?P<port>\S+) parent {HANDLE}:(?P<minor>\w+) bfifo limit (?P<limit>\d+)"
)
_SET_VALUE: Final = re.compile(r"sysctl -qw (?P<key>[\w.]+)=(?P<value>\S+)")
_HEX: Final = re.compile(r"\b0x([0-9a-f]+)\b")
_TABLE, _CHAIN = re.compile(r"table netdev (\S+) \{"), re.compile(r"chain (\S+) \{")
_OVER: Final = re.compile(r"@([\w-]+)")


# --- commands ------------------------------------------------------------------------


def queue_commands(
    changes: Iterable[Change], then: State
) -> tuple[list[str], list[str], list[str]]:
    """(lines for `tc -batch` that make queues, lines that remove queues, effects on traffic)."""
    made: list[str] = []
    removed: list[str] = []
    disrupts: list[str] = []
    by_port: dict[str, list[Change]] = {}
    for change in changes:
        if change.place.kind in {ROOT, CLASS, FIFO}:
            by_port.setdefault(change.place.name.split(SEPARATOR)[0], []).append(change)
    for port, rows in by_port.items():
        root = next((row for row in rows if row.place.kind == ROOT), None)
        if root is None:
            wanted = {row.place: row.after for row in rows if row.after is not None}
            made += _made(wanted)
            gone = [row.place for row in rows if row.after is None and row.place.kind == CLASS]
            removed += (f"class del dev {port} classid {_classid(place)}" for place in gone)
        elif root.after is None:
            removed.append(f"qdisc del dev {port} root")
            disrupts.append(f"{port}: packets in its queues are lost")
        else:
            if root.before is not None:  # htb cannot change its default
                made.append(f"qdisc del dev {port} root")
            made += _made({place: then[place] for place in then if _of_port(place, port)})
            disrupts.append(f"{port}: packets in its queue are lost")
    return made, removed, disrupts


def rule_commands(changes: Sequence[Change], then: State) -> Iterator[str]:
    """Shell commands: replace each table that changes as a whole, then set sysctls."""
    tables = {row.place.name.split(SEPARATOR)[0]: None for row in changes if row.place.kind == RULE}
    for table in tables:
        rules = {
            place: rule
            for place, rule in then.items()
            if place.kind == RULE and place.name.startswith(table + SEPARATOR)
        }
        yield batch("nft -f -", _table(table, rules))
    for row in changes:
        if row.place.kind == SETTING and row.after is not None:
            yield f"sysctl -qw {row.place.name}={row.after}\n"


def restore(before: State, changes: Sequence[Change]) -> str:
    """A script that restores the state `before`, whichever of the changes were made."""
    back = [change.reverse() for change in changes]
    queues = [row.place for row in back if row.place.kind in {ROOT, CLASS, FIFO}]
    out = []
    for port in dict.fromkeys(place.name.split(SEPARATOR)[0] for place in queues):
        out.append(f"tc qdisc del dev {port} root 2>/dev/null || :\n")
        mine = {place: value for place, value in before.items() if _of_port(place, port)}
        out.append(batch("tc -batch -", _made(mine)))
    return "".join([*out, *rule_commands(back, before)])


def batch(command: str, lines: Sequence[str]) -> str:
    """A shell command with these lines as its input; "" for no lines."""
    if not lines:
        return ""
    return "".join(f"{line}\n" for line in (f"{command} <<'END'", *lines, "END"))


def snapshot(table: str, ports: Sequence[str]) -> str:
    """A shell script whose output `read` takes: all that switchcfg made, and these ports."""
    wanted = " ".join(ports)
    return f"""\
echo '@@ qdiscs'
tc -j qdisc show
for port in $(ls /sys/class/net); do
    case ' {wanted} ' in
    *" $port "*) ;;
    *) tc qdisc show dev "$port" root 2>/dev/null | grep -q '^qdisc htb {HANDLE}:' || continue ;;
    esac
    echo "@@ port $port"
    tc class show dev "$port"
done
echo '@@ rules'
if nft list tables netdev | grep -qx 'table netdev {table}'; then
    nft -s -nn list table netdev {table}
fi
echo '@@ settings'
sysctl net.ipv4.fib_multipath_hash_policy
"""


def _made(wanted: State) -> list[str]:
    """Lines for the root, then classes from the outermost, then their queues."""
    order = (ROOT, CLASS, FIFO)
    lines = []
    for place in sorted(wanted, key=lambda place: (order.index(place.kind), place)):
        port, _, minor = place.name.partition(SEPARATOR)
        lines.append(_line(place.kind, port, minor, wanted[place].split()))
    return lines


def _line(kind: str, port: str, minor: str, words: Sequence[str]) -> str:
    if kind == ROOT:
        return f"qdisc replace dev {port} root handle {HANDLE}: htb default {words[0]}"
    if kind == FIFO:
        return f"qdisc replace dev {port} parent {HANDLE}:{minor} bfifo limit {words[0]}"
    rate, ceil, prio = words
    at_once = max(int(int(ceil) / 8 * BURST_TIME), MIN_BURST)
    guaranteed = at_once if minor == TOP else 2 * PACKET
    parent = f"{HANDLE}:" if minor == TOP else f"{HANDLE}:{TOP}"
    return (
        f"class replace dev {port} parent {parent} classid {HANDLE}:{minor} htb "
        f"rate {rate}bit ceil {ceil}bit prio {prio} burst {guaranteed} "
        f"cburst {at_once} quantum {PACKET}"
    )


def _table(name: str, rules: State) -> list[str]:
    """Text for `nft -f` that replaces a table, or removes it if no rule is left."""
    lines = [f"table netdev {name} {{ }}", f"delete table netdev {name}"]
    if not rules:
        return lines
    lines.append(f"table netdev {name} {{")
    for over in sorted({found for rule in rules.values() for found in _OVER.findall(rule)}):
        held = "typeof meta oif; size 4096; flags dynamic,timeout; timeout 20ms;"
        lines.append(f"\tset {over} {{ {held} }}")
    chains: dict[str, list[str]] = {}
    for place in sorted(rules):
        chains.setdefault(place.name.split(SEPARATOR)[1], []).append(rules[place])
    for port, chain in chains.items():
        hook = f'type filter hook egress device "{port}" priority 0; policy accept;'
        lines += [f"\tchain {port} {{", f"\t\t{hook}", *(f"\t\t{rule}" for rule in chain), "\t}"]
    return [*lines, "}"]


def _classid(place: Place) -> str:
    return f"{HANDLE}:{place.name.partition(SEPARATOR)[2]}"


def _of_port(place: Place, port: str) -> bool:
    return place.kind in {ROOT, CLASS, FIFO} and place.name.split(SEPARATOR)[0] == port


# --- output --------------------------------------------------------------------------


def read(text: str) -> dict[Place, str]:
    """The state in the output of `snapshot`, or in a script of `Linux.write`.

    Raises: BadState.
    """
    if len(text) > MAX_TEXT:
        raise BadState(f"snapshot of {len(text)} characters, at most {MAX_TEXT}")
    if text.startswith("#!"):
        return dict([*_script(text), *rules(text)])
    parts = dict(sections(text))
    if "qdiscs" not in parts:
        raise BadState("not a snapshot of a Linux switch: it has no section '@@ qdiscs'")
    ports = {n.removeprefix("port "): body for n, body in parts.items() if n.startswith("port ")}
    out = {Place(PORT, port, ""): "" for port in ports}
    for row in _json(parts["qdiscs"]):
        out |= _qdisc(row, ports)
    for port, body in ports.items():
        out |= _classes(port, body)
    out |= rules(parts.get("rules", ""))
    for line in parts.get("settings", "").splitlines():
        key, equals, value = line.partition(" = ")
        if equals:
            out[Place(SETTING, key, "")] = value
    return out


def sections(text: str) -> Iterator[tuple[str, str]]:
    """(name, body) of the sections of a snapshot."""
    for part in re.split(r"^@@ ", text, flags=re.MULTILINE)[1:]:
        name, _, body = part.partition("\n")
        yield name, body


def _json(text: str) -> list[dict[str, Any]]:
    try:
        rows = json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise BadState(f"the output of `tc -j qdisc show` is not JSON: {exc}") from exc
    if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
        raise BadState("the output of `tc -j qdisc show` is not a list of objects")
    return rows


def _qdisc(row: dict[str, Any], ports: Iterable[str]) -> Iterator[tuple[Place, str]]:
    """Place and value of one queue, if it is on one of the ports and of a known kind."""
    port, kind, handle = (str(row.get(key, "")) for key in ("dev", "kind", "handle"))
    if port not in ports:
        return
    options = row.get("options") or {}
    above, _, minor = str(row.get("parent", "")).partition(":")
    if row.get("root") and handle == f"{HANDLE}:" and kind == "htb":
        yield Place(ROOT, port, ""), str(options.get("default", "")).removeprefix("0x")
    elif row.get("root") and handle != _KERNELS:
        yield Place(FOREIGN, port, ""), kind
    elif above == HANDLE and kind == "bfifo":
        yield Place(FIFO, SEPARATOR.join((port, minor)), ""), str(options.get("limit", ""))


def qdiscs(text: str, ports: Collection[str]) -> Iterator[tuple[str, str, bool]]:
    """(port, the queue in words, whether it is a value) of each queue of the ports."""
    for row in _json(text):
        port, kind, handle = (str(row.get(key, "")) for key in ("dev", "kind", "handle"))
        where = "root" if row.get("root") else f"parent {row.get('parent', '')}"
        if port in ports:
            yield port, f"{kind} {handle} {where}", any(_qdisc(row, ports))


def is_class(port: str, line: str) -> bool:
    """Whether a line of `tc class show` is a value."""
    return any(_classes(port, line))


def _classes(port: str, text: str) -> Iterator[tuple[Place, str]]:
    for line in text.splitlines():
        if found := _CLASS.match(line):
            rates = f"{bits(found['rate'])} {bits(found['ceil'])}"
            name = SEPARATOR.join((port, found["minor"]))
            yield Place(CLASS, name, ""), f"{rates} {found['prio'] or 0}"


def _script(text: str) -> Iterator[tuple[Place, str]]:
    """Queues and settings in a script of `Linux.write`."""
    for line in text.splitlines():
        if found := _MADE_ROOT.match(line):
            yield Place(ROOT, found["port"], ""), found["minor"]
        elif found := _MADE_FIFO.match(line):
            yield Place(FIFO, SEPARATOR.join(found.group("port", "minor")), ""), found["limit"]
        elif found := _MADE_CLASS.match(line):
            value = f"{bits(found['rate'])} {bits(found['ceil'])} {found['prio']}"
            yield Place(CLASS, SEPARATOR.join(found.group("port", "minor")), ""), value
        elif found := _SET_VALUE.match(line):
            yield Place(SETTING, found["key"], ""), found["value"]


def rules(text: str) -> Iterator[tuple[Place, str]]:
    """Every rule of every chain as nft prints it, but with decimal numbers."""
    table = chain = ""
    number = 0
    for line in map(str.strip, text.splitlines()):
        if found := _TABLE.fullmatch(line):
            table = found[1]
        elif found := _CHAIN.fullmatch(line):
            chain, number = found[1], 0
        elif line == "}":
            chain = ""
        elif chain and not line.startswith("type filter hook "):
            rule = _HEX.sub(lambda found: str(int(found[1], 16)), line)
            yield Place(RULE, SEPARATOR.join((table, chain, f"{number:03}")), ""), rule
            number += 1


def bits(text: str) -> int:
    """Bit/s of a rate as tc writes it."""
    found = re.fullmatch(_RATE, text)
    assert found is not None  # noqa: S101  # the patterns above match nothing else
    return int(found[1]) * _UNITS[found[2]]
