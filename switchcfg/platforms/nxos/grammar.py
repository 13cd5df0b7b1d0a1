"""Grammar of NX-OS: the command lines that switchcfg reads and writes. Pure."""

import re
from typing import Final

from switchcfg.plan.account import SWITCH
from switchcfg.plan.state import natural
from switchcfg.platforms.grammar import Grammar
from switchcfg.platforms.name_ranges import members
from switchcfg.platforms.nxos.known import AROUND, IDLE, MARKS, MATCHES, QUEUE_LINES, REFUSED
from switchcfg.platforms.rule import Rule

_CLASS: Final = "class-map type qos match-any {class}"
_MARK: Final = ("policy-map type qos {policy}", "class {class}")
_QUEUE: Final = ("policy-map type queuing {policy}", "class type queuing {class}")
_WAYS: Final = ("match-any", "match-all")
_PORT: Final = "interface {port}"
_RANGE: Final = (
    "minimum-threshold <min> bytes maximum-threshold <max> bytes drop-probability <most>"
)
_NETWORK: Final = ("policy-map type network-qos {policy}", "class type network-qos {class}")
UNITS: Final = {"kbytes": 1000, "mbytes": 1_000_000}
_SIZE: Final = re.compile(r"(\d{1,9}) (kbytes|mbytes)")


_PAUSE: Final = re.compile(r"pause .*?pfc-cos (.+)")
_HEADS: Final = (
    (re.compile(r"class-map (?:type qos )?(match-(?:any|all)) (\S+)"), r"class-map type qos \1 \2"),
    (
        re.compile(r"class-map (?:type qos )?(?!type|match-)(\S+)"),
        r"class-map type qos match-all \1",
    ),
    (re.compile(r"policy-map (?!type)(\S+)"), r"policy-map type qos \1"),
    (re.compile(r"class type qos (\S+)"), r"class \1"),
    (
        re.compile(r"service-policy (?:type qos )?input (\S+)(?: no-stats)?"),
        r"service-policy type qos input \1",
    ),
    (
        re.compile(r"service-policy (type queuing (?:input|output)) (\S+) no-stats"),
        r"service-policy \1 \2",
    ),
    (re.compile(r"match (?:ip )?dscp (?:ipv4 )?(.+)"), r"match dscp \1"),
)
_THRESHOLDS: Final = ("random-detect minimum", "random-detect non-ecn", "queue-limit ")


def _spell(line: str) -> str:
    """A line with its type, thresholds in bytes, and code points one by one in numeric order."""
    line = " ".join(line.split())
    for shape, said in _HEADS:
        line = shape.sub(said, line) if shape.fullmatch(line) else line
    for head in ("match dscp ", "match cos "):
        if line.startswith(head):
            return head + ",".join(sorted(members(line.removeprefix(head)), key=natural))
    if hit := _PAUSE.fullmatch(line):  # with or without a buffer size
        return f"pause pfc-cos {hit[1]}"
    if line.startswith(_THRESHOLDS):
        return _SIZE.sub(lambda hit: f"{int(hit[1]) * UNITS[hit[2]]} bytes", line)
    return line


GRAMMAR: Final = Grammar(
    rules=(
        Rule(
            "class match",
            (_CLASS, "match dscp <dscps>"),
            "no match dscp <dscps>",
            adds=True,
            joins=True,
        ),
        Rule(
            "mark group",
            (*_MARK, "set qos-group <group>"),
            "no set qos-group <group>",
            refers=("class-map {class}",),
        ),
        Rule("queue priority", (*_QUEUE, "priority level <level>"), "no priority level <level>"),
        Rule(
            "queue bandwidth",
            (*_QUEUE, "bandwidth remaining percent <percent>"),
            "no bandwidth remaining percent <percent>",
        ),
        Rule(
            "queue detect",
            (*_QUEUE, f"random-detect {_RANGE} weight <w> <ecn>"),
            "no random-detect",
        ),
        Rule(
            "queue bare",
            (*_QUEUE, f"random-detect non-ecn {_RANGE}"),
            f"no random-detect non-ecn {_RANGE}",
        ),
        Rule("queue limit", (*_QUEUE, "queue-limit <limit> bytes"), "no queue-limit <limit> bytes"),
        Rule("class mtu", (*_NETWORK, "mtu <bytes>"), "no mtu <bytes>"),
        Rule("class pause", (*_NETWORK, "pause pfc-cos <cos>"), "no pause pfc-cos <cos>"),
        Rule("class pause", (*_NETWORK, "pause pfc-cos <cos> receive"), ""),  # foreign
        # Foreign lines: read, never written.
        Rule("queue marks", (*_QUEUE, "random-detect threshold <how> ecn"), ""),
        Rule(
            "all match",
            ("class-map type qos match-all {class}", "match dscp <dscps>"),
            "",
            joins=True,
        ),
        Rule("cos match", (_CLASS, "match cos <cos>"), "", joins=True),
        Rule(
            "cos match", ("class-map type qos match-all {class}", "match cos <cos>"), "", joins=True
        ),
        *(
            Rule(
                f"class {what}", (f"class-map type qos {way} {{class}}", f"match {what} <how*>"), ""
            )
            for way in _WAYS
            for what in MATCHES
        ),
        *(Rule(f"mark {what}", (*_MARK, f"{what} <how*>"), "") for what in MARKS),
        *(Rule(f"queue other {what}", (*_QUEUE, f"{what} <how*>"), "") for what in QUEUE_LINES),
        Rule("queue first", (*_QUEUE, "priority"), ""),
        Rule("class group", ("class-map type network-qos {class}", "match qos-group <group>"), ""),
        Rule("class pause", (*_NETWORK, "pause no-drop"), ""),
        Rule(
            "system network",
            ("system qos", "service-policy type network-qos <policy>"),
            "no service-policy type network-qos <policy>",
            adds=True,
            refers=("policy-map type network-qos <policy>",),
        ),
        Rule(
            "system queue",
            ("system qos", "service-policy type queuing output <policy>"),
            "",
            refers=("policy-map type queuing <policy>",),
        ),
        Rule(
            "system mark",
            ("system qos", "service-policy type qos input <policy>"),
            "",
            refers=("policy-map type qos <policy>",),
        ),
        Rule(
            "interface route",
            (_PORT, "ip policy route-map <policy>"),
            "",
            refers=("route-map <policy>",),
        ),
        Rule(
            "interface route",
            (_PORT, "ipv6 policy route-map <policy>"),
            "",
            refers=("route-map <policy>",),
        ),
        Rule(
            "system input",
            ("system qos", "service-policy type queuing input <policy>"),
            "",
            refers=("policy-map type queuing <policy>",),
        ),
        Rule(
            "interface input",
            (_PORT, "service-policy type queuing input <policy>"),
            "",
            refers=("policy-map type queuing <policy>",),
        ),
        Rule(
            "interface pfc",
            (_PORT, "priority-flow-control mode <mode>"),
            "no priority-flow-control mode <mode>",
        ),
        Rule("interface pfc", (_PORT, "priority-flow-control mode <mode> <how>"), ""),  # foreign
        Rule("port", (_PORT,), ""),
        Rule("interface channel", (_PORT, "channel-group <number> <how*>"), ""),
        Rule("interface channel", (_PORT, "channel-group <number>"), ""),
        Rule(
            "interface mark",
            (_PORT, "service-policy type qos input <policy>"),
            "no service-policy type qos input <policy>",
            adds=True,
            refers=("policy-map type qos <policy>",),
        ),
        Rule(
            "interface queue",
            (_PORT, "service-policy type queuing output <policy>"),
            "no service-policy type queuing output <policy>",
            adds=True,
            refers=("policy-map type queuing <policy>",),
        ),
    ),
    indent=2,
    spell=_spell,
    owners=(
        (re.compile(r"interface (\S+)"), "{0}"),
        (re.compile(r"control-plane"), "control-plane"),
        (re.compile(r"route-map (\S+)( .*)?"), "route-map {0}"),
        (re.compile(r"port-profile (.*)"), "port-profile {0}"),  # refused where a port inherits it
        (re.compile(r"(class-map type (?:qos|network-qos)) (?:match-\S+ )?(\S+)"), "class-map {1}"),
        (re.compile(r"policy-map type (qos|queuing|network-qos) (\S+)"), "policy-map type {0} {1}"),
        (
            re.compile(
                r"(?:no )?(?:system qos|qos|platform qos|priority-flow-control|"
                r"hardware (?:qos|profile (?:qos|pfc|buffer))|"
                r"class-map|policy-map|service-policy|random-detect|flowcontrol|"
                r"congestion-control|queue-limit)\b.*"
            ),
            SWITCH,
        ),
    ),
    certain=re.compile(r"((class-map|policy-map type \S+) )?\W.*"),
    around=re.compile(AROUND),
    idle=IDLE,
    refused=REFUSED,
)
