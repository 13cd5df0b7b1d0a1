"""Grammar of EOS: lines that are read or written, of no matter, or refused. Pure.

Sources: EOS manual 4.30, "Quality of Service" and "Data Center Bridging" (spellings, units,
defaults); the interface and qos templates of Arista's AVD (lines that a port may have).
"""

import re
from typing import Final

from switchcfg.plan.account import SWITCH, KnownLine
from switchcfg.platforms.grammar import Grammar
from switchcfg.platforms.rule import Rule

_PROFILE: Final = "qos profile {profile}"
_QUEUE: Final = (_PROFILE, "uc-tx-queue {queue}")
PFC: Final = "priority-flow-control priority {priority} no-drop"
_NO_PFC: Final = "no priority-flow-control"
_RANGE: Final = "minimum-threshold <min> kbytes maximum-threshold <max> kbytes"
_OTHER: Final = "minimum-threshold <min> <unit> maximum-threshold <max> <units>"
_UNIT: Final = re.compile(r"(minimum|maximum)-threshold \d+ (\S+)")
# Units of thresholds; the first is that of switchcfg.
UNITS: Final = ("kbytes", "bytes", "mbytes", "segments", "microseconds", "milliseconds")


def _spell(line: str) -> str:
    """A line, with the default values that EOS omits."""
    line = " ".join(line.split())
    if line.startswith("random-detect ecn minimum") and " max-mark-probability " not in line:
        head, weight, tail = line.partition(" weight ")
        line = f"{head} max-mark-probability 100{weight}{tail}"
    units = {hit[2] for hit in _UNIT.finditer(line)}
    if line.startswith("random-detect ") and " weight " not in line and units <= {*UNITS}:
        line += " weight 0" if units else ""
    return line


def _known(shape: str, why: str) -> KnownLine:
    return KnownLine(re.compile(shape), why)


_PORT: Final = r"interface \S+ / "
_ON_PORT: Final = (
    "the port's own line wins over its qos profile: remove it, or name the port in [keep] ports"
)
_REWRITES: Final = (
    "rewrites code points on the way out, and dlcpd's must leave as they came: remove it, or this "
    "device from the intent"
)
_PATHS: Final = "router adaptive-virtual-topology"  # of WAN routers
_BY_NAME: Final = "switchcfg writes uc-tx-queue, which chips with this line refuse"

AROUND: Final = r"(?:Vlan|Vxlan|Tunnel)\d+(?:\.\d+)?"

IDLE: Final = (
    _known(
        rf"({_PORT})?(end|exit|!.*|comment.*)", "ends a section, or says something to people"
    ),
    _known(
        _PORT + r"(no |default )?(description|shutdown|logging|snmp|load-interval|sflow|"
        r"flow tracker|queue-monitor|lldp|ptp|ntp|monitor|transceiver|phy|link|link-debounce|poe|"
        r"locator-led)"
        r"\b.*",
        "administration and telemetry: forwards nothing",
    ),
    _known(
        _PORT + r"(no |default )?(mtu|l2|speed|forced|error-correction|port-channel|"
        r"lacp|mlag|ethernet|evpn|unidirectional|traffic-loopback|mac|mac-address|encapsulation|"
        r"switchport|vlan|spanning-tree|dot1x|dot1q|l2-protocol|private-vlan|storm-control|"
        r"address|arp|nat|tcp|tap|tool)\b.*",
        "link and bridging: chooses no queue",
    ),
    _known(
        _PORT + r"(no |default )?(ip|ipv6|vrf|vrrp|bfd|isis|ospf|ospfv3|mpls|pim|igmp|multicast|"
        r"router|rip|bgp|eos|autostate|vxlan|dhcp|service-policy type pbr)\b.*",
        "routing and filters: chooses no queue",
    ),
    _known(
        _PORT + r"(no |default )?priority-flow-control( on| pause watchdog.*)?",
        "turns flow control on without a priority, or guards it: switchcfg changes neither",
    ),
    _known(_PORT + "qos trust dscp", "what switchcfg's profile says, too"),
    _known(_PORT + r"(flowcontrol (send|receive) off|no flowcontrol.*)", "no pause frames"),
    _known(
        _PORT + r"(default|no) (service-profile|service-policy|shape|uc-tx-queue|qos cos|"
        r"qos dscp)\b.*",
        "nothing is bound or set by it",
    ),
    _known(
        _PORT + r"(uc|mc)?-?tx-queue \d+( / random-detect ecn count)?", "counts marked packets"
    ),
    _known(
        _PORT + r"(no|default) (priority-flow-control priority \d+|(channel-group|dcbx|flow-spec|"
        r"mfib|mld|mrp|msrp|mvrp|vxlan qos)\b.*)",
        "a default, as `show running-config all` prints it",
    ),
    _known(
        _PORT + r"(sync-e\b|pvlan mapping |vmtracer |tunnel (source|destination|mode|ipsec|key|mss|"
        r"path-mtu-discovery|underlay)\b).*",
        "clocks, bridging, and ends of a tunnel: chooses no queue",
    ),
    _known(
        rf"{_PATHS}( / ((.* / )?(no|default) .*|(?!.*\b(dscp|traffic-class) ).*))?",
        "chooses paths, and no queue",
    ),
    _known(
        _PORT + r"dcbx (mode \S+|pfc .*|application .*)",
        "tells the neighbour of flow control, and changes none here",
    ),
    _known(
        r"(management|control-plane|system control-plane)\b.* / .*",
        "of packets of the switch itself",
    ),
    _known(r"qos profile \S+ / uc-tx-queue \d+ / priority strict", "the default of a queue"),
    _known(r"qos profile \S+ / uc-tx-queue \d+ / random-detect ecn count", "counts packets"),
    _known(r"qos profile \S+ / (no )?priority-flow-control pause watchdog.*", "guards, not sets"),
    _known(
        r"qos map (cos [\d ,-]+ to traffic-class \d+|traffic-class [\d ,-]+ to mc-tx-queue \d+)",
        "of frames that are classified by CoS, and of multicast: a plan changes neither",
    ),
    _known(
        r"(no|default) (qos|priority-flow-control|queue-monitor|platform)\b(?!.* / ).*",
        "a default",
    ),
    _known(r"priority-flow-control pause watchdog.*", "guards flow control, and a plan does not"),
    _known(r"queue-monitor .*", "telemetry"),
    _known(
        r"(policy-map|class-map) type (copp|control-plane|pbr|pdp) .*",
        "of the control plane and of routes",
    ),
)  # fmt: skip
REFUSED: Final = (
    _known(
        rf"interface {AROUND} / (service-policy (?!type pbr ).*|qos .*|vxlan qos .*|shape .*|"
        r"priority-flow-control .*|"
        r"(?!description |(no|default) vxlan qos ).*\b(traffic-class|dscp|cos|tx-queue)\b.*)",
        "chooses queues or code points of packets on any port: remove it",
    ),
    _known(
        _PORT + r"(no qos trust|qos trust (?!dscp$).*|qos (cos|dscp) .*|shape .*|"
        r"(uc-|mc-)?tx-queue \d+ / (?!random-detect ecn count$).*|"
        r"service-policy (?!type pbr ).*|(bandwidth|random-detect) .*)",
        _ON_PORT,
    ),
    _known(
        _PORT + r"flowcontrol (send|receive) (on|desired)",
        "pauses all queues of the port: remove it",
    ),
    _known(_PORT + r"profile .*", "lines of interface profiles are not read: write them here"),
    _known(rf"({_PORT})?qos (rewrite .*|map traffic-class .* to (dscp|cos|exp) .*)", _REWRITES),
    _known(rf"{_PATHS} / (?!(.* / )?(no|default) ).*\b(dscp|traffic-class) .*", _REWRITES),
    _known(r"qos profile \S+ / (mc-)?tx-queue .*", _BY_NAME),
)

GRAMMAR: Final = Grammar(
    rules=(
        Rule(
            "dscp",
            ("qos map dscp {dscp+} to traffic-class <tc> drop-precedence <dp>",),
            "no qos map dscp {dscp}",
        ),
        Rule("dscp", ("qos map dscp {dscp+} to traffic-class <tc>",), "no qos map dscp {dscp}"),
        Rule(
            "traffic-class",
            ("qos map traffic-class {tc+} to tx-queue <queue>",),
            "no qos map traffic-class {tc} to tx-queue <queue>",
        ),
        Rule("profile trust", (_PROFILE, "qos trust <what>"), "no qos trust"),
        Rule("profile pfc mode", (_PROFILE, "priority-flow-control <mode>"), _NO_PFC),
        Rule("profile pfc", (_PROFILE, PFC), f"no {PFC}"),
        Rule("queue round robin", (*_QUEUE, "no priority"), "priority strict"),
        Rule("queue share", (*_QUEUE, "bandwidth percent <percent>"), "no bandwidth percent"),
        Rule(
            "queue ecn",
            (*_QUEUE, f"random-detect ecn {_RANGE} max-mark-probability <most> weight <w>"),
            "no random-detect ecn",
        ),
        Rule(
            "queue drop",
            (
                *_QUEUE,
                f"random-detect drop drop-precedence {{dp}} {_RANGE} drop-probability <most> "
                "weight <w>",
            ),
            "no random-detect drop drop-precedence {dp}",
        ),
        # Foreign lines: read, never written.
        Rule(
            "queue ecn",
            (*_QUEUE, f"random-detect ecn {_OTHER} max-mark-probability <most> weight <w>"),
            "",
        ),
        Rule(
            "queue drop other",
            (*_QUEUE, f"random-detect drop {_OTHER} drop-probability <most> weight <w>"),
            "",
        ),
        Rule(
            "queue drop",
            (
                *_QUEUE,
                f"random-detect drop drop-precedence {{dp}} {_OTHER} drop-probability <most> "
                "weight <w>",
            ),
            "",
        ),
        Rule("queue guaranteed", (*_QUEUE, "bandwidth guaranteed <rate*>"), ""),
        Rule("queue shape", (*_QUEUE, "shape rate <rate*>"), ""),
        Rule("profile shape", (_PROFILE, "shape rate <rate*>"), ""),
        Rule("profile cos", (_PROFILE, "qos cos <cos>"), ""),
        Rule("profile code point", (_PROFILE, "qos dscp <point>"), ""),
        Rule("profile policy", (_PROFILE, "service-policy type qos input <policy>"), ""),
        Rule("interface pfc", ("interface {port}", PFC), ""),
        Rule(
            "interface profile",
            ("interface {port}", "service-profile <profile>"),
            "no service-profile",
            refers=(_PROFILE.replace("{profile}", "<profile>"),),
        ),
        Rule("port", ("interface {port}",), ""),  # read, never written
        Rule("interface channel", ("interface {port}", "channel-group <number> mode <how*>"), ""),
        Rule("interface channel", ("interface {port}", "channel-group <number>"), ""),
    ),
    indent=3,
    spell=_spell,
    owners=(
        (re.compile(r"interface (\S+)"), "{0}"),
        (re.compile(r"qos profile (\S+)"), "qos profile {0}"),
        (re.compile(r"policy-map type (?:qos|quality-of-service) (\S+)"), "policy-map {0}"),
        (re.compile(r"class-map type qos (?:match-\S+ )?(\S+)"), "class-map {0}"),
        (re.compile(r"traffic-policies"), "traffic-policies"),
        (re.compile(_PATHS), SWITCH),
        (
            re.compile(
                r"(?:(?:no|default) )?(?:qos|priority-flow-control|flowcontrol|queue-monitor|"
                r"(?:uc-|mc-)?tx-queue|policy-map|class-map|random-detect|shape|service-policy|"
                r"service-profile|platform \S+ (?:mmu|qos|queue|buffer|ecn|tx-queue)|"
                r"hardware (?:qos|buffer|queue)|load-balance policies)\b.*"
            ),
            SWITCH,
        ),
    ),
    certain=re.compile(r"(qos profile )?\W.*"),
    around=re.compile(AROUND),
    idle=IDLE,
    refused=REFUSED,
)
