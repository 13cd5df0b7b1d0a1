"""The account of a Linux switch: each queue, filter and rule is read, idle, or unread. Pure.

Sources: tc(8), tc-actions(8), nft(8), iptables-extensions(8), dcb(8), dcb-app(8), dcb-pfc(8),
dcb-ets(8), dcb-rewr(8). nft runs its egress hook before tc's egress filters (net/core/dev.c).
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from switchcfg.plan.account import SWITCH, Item, KnownLine, Reading, account
from switchcfg.plan.state import State
from switchcfg.platforms.linux import text as linux_text

DCB: Final = ("app", "pfc", "ets", "rewr", "maxrate")
_TABLE: Final = re.compile(r"table (\S+) (\S+) \{.*")
_DEVICES: Final = re.compile(r"type filter hook \w+ devices? (?:= )?\{?\s*([^;}]+?)\s*\}? priority")
_SETTING: Final = re.compile(r"[\w.-]+ = \S+")
_FRAME: Final = re.compile(  # what is around the rules of a table
    r"(table netdev|chain|set|map) \S+ \{( .* \})?|\}|"
    r"(type(of)?|size|flags|timeout|gc-interval|elements) .*"
)
_NAME: Final = re.compile(r"[\w.@:-]+")
_ROOT: Final = re.compile(r"(?!noqueue )\S+ (?!0: )\S+ root")  # not the kernel's own queue


def _known(shape: str, why: str) -> KnownLine:
    return KnownLine(re.compile(shape), why)


_CHANGES: Final = (
    "changes the code point, ECN or class of packets, or may: remove it, or name the port in "
    "[keep] ports"
)
# What nft rules may set and iptables targets may do without a change of queue or code point
_HARMLESS_SET: Final = (
    r"(meta (mark|nftrace|pkttype|secmark)|ct \w+|ct original \w+|ip ttl|ip6 hoplimit|"
    r"tcp option maxseg size|ether [sd]addr) set "
)
_HARMLESS_TARGETS: Final = (
    "ACCEPT|DROP|RETURN|REJECT|LOG|NFLOG|ULOG|AUDIT|MARK|CONNMARK|SECMARK|CONNSECMARK|CT|NOTRACK|"
    "TCPMSS|TCPOPTSTRIP|CHECKSUM|TRACE|SET|SNAT|DNAT|MASQUERADE|REDIRECT|NETMAP|TPROXY|TTL|HL|TEE|"
    "SYNPROXY|RATEEST|IDLETIMER|LED|FLOWOFFLOAD"
)
IDLE: Final = (
    _known(r"qdisc \S+ 0: .*", "the kernel's own queues, which a root queue replaces"),
    _known(r"qdisc (clsact|ingress) .*", "its filters are read one by one"),
    _known(r"qdisc \S+ \S+ parent \S+", "below a root that is the plan's, or refused"),
    _known(
        rf"class [\w-]+ (?!{linux_text.HANDLE}:)[0-9a-f]*:[0-9a-f]* .*",
        "of a root that is not switchcfg's",
    ),
    _known(
        r"filter (ingress|egress) / filter .*\b(matchall|flower|u32|basic|fw|route|cgroup)\b.*",
        "its actions are read one by one",
    ),
    _known(
        r"filter (ingress|egress) / action order \d+: (gact|mirred|sample|vlan|tunnel_key|ct)\b.*",
        "forwards, drops or copies: chooses no queue",
    ),
    _known(r"filter (ingress|egress) / (?!filter |action ).*", "what a filter or an action is of"),
    _known(rf"rule / (?!.*( set |xt target )).*|rule / (?!.* set .* set ).*{_HARMLESS_SET}.*",
           "filters, translates or counts"),
    _known(rf'rule / (?!.* set ).*xt target "({_HARMLESS_TARGETS})".*', "filters or translates"),
    _known(rf"mangle / (?!.*( -j | -g )).*|mangle / .* (-j ({_HARMLESS_TARGETS})|-g \S+)\b.*",
           "filters or translates"),
    _known(r"mangle / -A .* -j (?!DSCP|TOS|ECN|CLASSIFY|IPV4OPTSSTRIP)[a-zA-Z][\w-]*[a-z][\w-]*.*",
           "goes to a chain of the table"),
    _known(r"dcb pfc / (pfc-cap .*|prio-pfc( \d:off)+|(requests|indications) .*)", "no PFC is on"),
    _known(r"dcb ets / (willing .*|reco-.*|tc-(bw|tsa) .*)", "of traffic classes, which follow"),
    _known(r"dcb ets / prio-tc \d:(\d)( \d:\1)*", "all priorities have one traffic class"),
    _known(r"dcb maxrate / tc-maxrate( \d:inf)+", "no traffic class is limited"),
)  # fmt: skip
REFUSED: Final = (
    _known(
        r"filter root / .*", "a filter of the port's root queue: remove it (`tc filter del`)"
    ),
    _known(
        r"filter (ingress|egress) / (filter .*\b(bpf|flow|route4|rsvp)\b.*|"
        r"action order \d+: (?!(gact|mirred|sample|vlan|tunnel_key|ct)\b).*)",
        _CHANGES,
    ),
    _known(r"rule / .*\b(dscp|ecn|pcp|dei|priority|traffic-class|@\w+,\d+,\d+) set .*", _CHANGES),
    _known(r'rule / .*xt target "(DSCP|TOS|ECN|CLASSIFY)".*', _CHANGES),
    _known(r"mangle / .* -j (DSCP|TOS|ECN|CLASSIFY)\b.*", _CHANGES),
    _known(r"dcb pfc / prio-pfc .*:on.*", "the port has PFC, and switchcfg's queues do not pause"),
    _known(
        r"dcb (app / .*|ets / prio-tc (?!\d:(\d)( \d:\2)*$).*|"
        r"maxrate / (?!tc-maxrate( \d:inf)+$).*)",
        "the chip would choose or limit queues by it: remove it, or name the port in [keep] ports",
    ),
    _known(
        r"upper qdisc .*",
        "packets queue there before they reach the port, in another order: remove it, or name the "
        "port in [keep] ports",
    ),
    _known(r"rule / .*\bqueue (num|to|flags)\b.*", _CHANGES),
    _known(
        r"dcb rewr / .*",
        "rewrites code points on the way out, and dlcpd's must leave as they came: remove it",
    ),
)  # fmt: skip


# Shell: the devices above each port, such as its bond and the bridge and VLANs of that
_UPPERS: Final = """\
every=
for port in PORTS; do
    echo "@@ uppers $port"
    level=$port seen=
    while [ -n "$level" ]; do
        above=
        for device in $level; do
            for link in /sys/class/net/"$device"/upper_*; do
                name=${link##*/upper_}
                case " $seen $above " in *" $name "*) continue ;; esac
                [ ! -e "$link" ] || above="$above $name"
            done
        done
        level=$above seen="$seen$above"
    done
    [ -z "$seen" ] || printf '%s\\n' $seen
    every="$every$seen"
done
for upper in $(printf '%s\\n' $every | sort -u); do
    for side in ingress egress; do
        echo "@@ filters $side $upper"
        tc filter show dev "$upper" "$side" 2>/dev/null || :
    done
done
"""


def snapshot(table: str, ports: Sequence[str]) -> str:
    """A shell script whose output `read` takes."""
    return (
        linux_text.snapshot(table, ports)
        + _UPPERS.replace("PORTS", " ".join(ports))
        + f"""\
for port in {" ".join(ports)}; do
    [ -e "/sys/class/net/$port" ] || continue
    echo "@@ filters root $port"
    tc filter show dev "$port" 2>/dev/null || :
    for side in ingress egress; do
        echo "@@ filters $side $port"
        tc filter show dev "$port" "$side" 2>/dev/null || :
    done
    if command -v dcb >/dev/null; then
        for what in {" ".join(DCB)}; do
            echo "@@ dcb $what $port"
            dcb "$what" show dev "$port" 2>/dev/null || :
        done
    fi
done
echo '@@ ruleset'
nft -s -nn list ruleset
for version in "" 6; do
    if grep -qsx mangle "/proc/net/ip${{version}}_tables_names"; then
        echo "@@ mangle $version"
        "ip${{version}}tables-legacy-save" -t mangle || echo "-A ALL -j UNREADABLE"
    fi
done
"""
    )


def read(text: str) -> State:
    """The state in the output of `snapshot`, or in a script of `Linux.write`.

    Raises: BadState.
    """
    values = linux_text.read(text)
    if text.startswith("#!"):
        return values
    parts = dict(linux_text.sections(text))
    found = account(_items(parts), lambda known, _: known, idle=IDLE, refused=REFUSED)
    return Reading({**values, **found}, found.lines, found.unread)


def _items(parts: Mapping[str, str]) -> Iterator[tuple[Item, bool]]:
    """(item, whether it is a value) of each queue, class, filter, setting and rule."""
    ports = {name.removeprefix("port ") for name in parts if name.startswith("port ")}
    for port, shown, known in linux_text.qdiscs(parts["qdiscs"], ports):
        yield Item((port,), f"qdisc {shown}", f"qdisc {shown}"), known
    below = _below(parts)
    for upper, shown, _ in linux_text.qdiscs(parts["qdiscs"], below.keys() - ports):
        if _ROOT.fullmatch(shown):
            yield Item(below[upper], f"upper qdisc {shown}", f"{upper}: qdisc {shown}"), False
    own = {found[2] for found in map(_TABLE.fullmatch, parts.get("rules", "").split("\n")) if found}
    for name, body in parts.items():
        kind, *where = name.split(" ")
        if kind == "ruleset":
            yield from _ruleset(body, own, below)
        else:
            for owner, text, known in _lines(kind, where, body):
                shown = f"{owner}: {text}" if owner in below else text
                yield Item(below.get(owner, (owner,)), text, shown), known


def _below(parts: Mapping[str, str]) -> dict[str, tuple[str, ...]]:
    """Device -> the ports below it."""
    out: dict[str, tuple[str, ...]] = {}
    for name, body in parts.items():
        if name.startswith("uppers "):
            port = name.removeprefix("uppers ")
            out |= {upper: (*out.get(upper, ()), port) for upper in body.split()}
    return out


def _lines(kind: str, where: Sequence[str], body: str) -> Iterator[tuple[str, str, bool]]:
    """(owner, line with its section, whether it is a value) of a section of the snapshot."""
    lines = [*filter(None, map(str.strip, body.splitlines()))]
    match kind, where:
        case "port", [port]:
            yield from ((port, line, linux_text.is_class(port, line)) for line in lines)
        case "filters" | "dcb", [what, port]:
            yield from (
                (port, f"{kind.removesuffix('s')} {what} / {line}", False) for line in lines
            )
        case "rules", _:
            yield from ((SWITCH, f"own / {line}", known) for line, known in _own(lines))
        case "settings", _:
            known = _SETTING.fullmatch
            yield from ((SWITCH, f"setting / {line}", known(line) is not None) for line in lines)
        case "mangle", _:
            rules = (line for line in lines if line.startswith("-A "))
            yield from ((SWITCH, f"mangle / {line}", False) for line in rules)


def _own(lines: Sequence[str]) -> Iterator[tuple[str, bool]]:
    """(line, whether it is of a table as nft prints it) of switchcfg's own rules."""
    in_chain = False
    for line in lines:
        known = in_chain or _FRAME.fullmatch(line) is not None
        in_chain = line.startswith("chain ") or (in_chain and line != "}")
        yield line, known


def _ruleset(
    text: str, own: set[str], below: Mapping[str, tuple[str, ...]]
) -> Iterator[tuple[Item, bool]]:
    """The rules of all chains but those of switchcfg's own tables. A chain of a device belongs to
    it, or to the ports below it, any other one to the whole switch."""
    table = family = ""
    owners: tuple[str, ...] = (SWITCH,)
    in_chain = False
    for line in map(str.strip, text.splitlines()):
        if found := _TABLE.fullmatch(line):
            family, table = found.groups()
        if line.startswith("chain ") and line.endswith("{"):
            in_chain, owners = True, (SWITCH,)
            continue
        if not in_chain or (family == "netdev" and table in own):
            in_chain = in_chain and line != "}"
            continue
        if line == "}":
            in_chain = False
        elif found := _DEVICES.search(line):
            devices = _NAME.findall(found[1].replace('"', " "))
            owners = tuple(port for each in devices for port in below.get(each, (each,)))
        elif line and not line.startswith(("type ", "comment ", "policy ")):
            yield Item(owners, f"rule / {line}", f"{family} {table}: {line}"), False
