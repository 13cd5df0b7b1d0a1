"""Owners of lines of Junos, and lines that are of no matter or refused. Pure.

Sources: Juniper's pages "class-of-service (Configuration)" and of its statements, "Default DSCP and
DSCP IPv6 Classifiers", "classifiers (Definition)", "Applying Rewrite Rules to Output Logical
Interfaces", "Firewall Filter Nonterminating Actions", "flow-control", "interface-range".
"""

import re
from typing import Final

from switchcfg.plan.account import SWITCH, KnownLine

COS: Final = "class-of-service"
VLAN_TYPES: Final = ("ieee-802.1", "ieee-802.1ad")  # of classifiers by VLAN priority
_WORD: Final = r"[^ ]+"
# Entries of lists: a device keeps an empty entry, so each is deleted with its last line.
ENTRY: Final = re.compile(
    f"{COS} ("
    f"classifiers dscp(-ipv6)? {_WORD}( forwarding-class {_WORD}( loss-priority {_WORD})?)?|"
    f"congestion-notification-profile {_WORD}( (input dscp|output ieee-802.1) code-point {_WORD})?|"
    f"forwarding-classes class {_WORD}|"
    f"drop-profiles {_WORD}|"
    f"schedulers {_WORD}( drop-profile-map loss-priority {_WORD} protocol any)?|"
    f"scheduler-maps {_WORD}( forwarding-class {_WORD})?|"
    f"interfaces {_WORD}( unit {_WORD})?)"
)
# Other parts of a configuration; and words of class-of-service, in lines of none of them
_ROOTS: Final = (
    "(access|access-profile|accounting-options|applications|apply-groups|apply-macro|"
    "bridge-domains|chassis|diameter|dynamic-profiles|event-options|fabric|firewall|"
    "forwarding-options|groups|interfaces|jsrc|logical-systems|multi-chassis|multicast-snooping-"
    "options|poe|policy-options|protocols|routing-instances|routing-options|security|services|"
    "session-limit-group|smtp|snmp|switch-options|system|tenants|unified-edge|version|"
    "virtual-chassis|vlans|vmhost|wlan)"
)
_WORDS: Final = (
    "(class-of-service|schedulers|scheduler-maps?|classifiers|forwarding-class(es)?|drop-profiles?|"
    "congestion-notification-profile|code-points?|loss-priority)"
)
# Interfaces that carry packets of any port
AROUND: Final = r"(?:irb|vlan|vtep)"
CERTAIN: Final = re.compile(
    r"(classifier|scheduler|scheduler-map|drop-profile|congestion-notification-profile) .*|"
    r"(?!irb$|vlan$|all$)[a-z-]+|[^a-z<*].*"  # a word in the place of a port
)
OWNERS: Final = tuple(
    (re.compile(f"set {shape}"), owner)
    for shape, owner in (
        (f"{COS} interfaces ({_WORD})( .*)?", "{0}"),
        (f"{COS} classifiers ({_WORD}) ({_WORD})( .*)?", "classifier {0} {1}"),
        (f"{COS} rewrite-rules ({_WORD}) ({_WORD})( .*)?", "rewrite-rule {0} {1}"),
        (
            f"{COS} (drop-profile|scheduler|scheduler-map|traffic-control-profile|"
            f"forwarding-class-set)s ({_WORD})( .*)?",
            "{0} {1}",
        ),
        (
            f"{COS} congestion-notification-profile ({_WORD})( .*)?",
            "congestion-notification-profile {0}",
        ),
        (f"{COS}( .*)?", SWITCH),
        (f"interfaces interface-range ({_WORD})( .*)?", "interface-range {0}"),
        (f"interfaces ({_WORD})( .*)?", "{0}"),
        (f"switch-options voip interface ({_WORD})( .*)?", "{0}"),
        (f"firewall (?:family {_WORD} )?(?:simple-)?filter ({_WORD})( .*)?", "filter {0}"),
        (
            f"(routing-instances {_WORD} )?((vlans|bridge-domains) {_WORD} )?forwarding-options "
            f"(family {_WORD} )?filter .*",
            SWITCH,
        ),
        (f"(routing-instances {_WORD} )?vlans {_WORD} filter .*", SWITCH),
        (f"(logical-systems|tenants) {_WORD} .* (filter|classifiers|policer) .*", SWITCH),
        (f"(routing-instances {_WORD} )?routing-options flow .* then mark .*", SWITCH),
        (f"(logical-systems|tenants|routing-instances) {_WORD} {COS}( .*)?", SWITCH),
        ("forwarding-options enhanced-hash-key ecmp-dlb .*", SWITCH),
        ("routing-options forwarding-table export .*", SWITCH),
        (f"policy-options policy-statement {_WORD} then load-balance .*", SWITCH),
        (rf"(?!{_ROOTS}( |$)).*\b{_WORDS}\b.*", SWITCH),
    )
)


def _known(shape: str, why: str) -> KnownLine:
    return KnownLine(re.compile(f"set {shape}"), why)


_COS_PORT: Final = f"{COS} interfaces {_WORD} (unit {_WORD} )?"
_PORT: Final = f"interfaces (interface-range )?{_WORD} "
_UNIT: Final = f"{_PORT}(unit {_WORD} )?"
_STAYS: Final = "has an effect only where a port has it, and such a port is refused"
IDLE: Final = (
    _known(ENTRY.pattern, "an entry without lines"),
    _known(r"(.* )?apply-(groups|groups-except|flags|macro)( .*)?", "groups are refused by name"),
    _known(rf"{COS} traceoptions.*", "telemetry"),
    _known(
        "forwarding-options enhanced-hash-key ecmp-dlb (flowlet|ether-type|assigned-flow|"
        r"per-packet|sampling-rate|egress-quantization)\b .*",
        "chooses paths, and no queue",
    ),
    _known(
        rf"{COS} (shared-buffer|multi-destination|tri-color|system-defaults classifiers exp|"
        r"host-outbound-traffic|fragmentation-maps|virtual-channels|virtual-channel-groups)\b.*",
        "memory of the whole switch, multicast, MPLS, traffic of the switch itself: a plan changes "
        "none of it",
    ),
    _known(
        rf"{COS} (rewrite-rules|traffic-control-profiles|forwarding-class-sets|translation-table|"
        r"policy-map|loss-priority-maps|loss-priority-rewrites|forwarding-class-map|"
        r"classifiers (exp|inet-precedence))\b.*",
        _STAYS,
    ),
    _known(
        rf"{COS} code-point-aliases (exp|inet-precedence|ieee-802.1(ad)?|dscp(-ipv6)? {_WORD} "
        r"[01]{6})( .*)?",
        "an alias, which classifiers use",
    ),
    _known(
        rf"{COS} forwarding-classes class {_WORD} (priority (low|high)|policing-priority {_WORD}|"
        rf"spu-priority {_WORD})",
        "of the fabric and of policers",
    ),
    _known(
        rf"{COS} congestion-notification-profile {_WORD} pfc-watchdog.*",
        "guards flow control, and a plan does not",
    ),
    _known(
        _COS_PORT + r"(shaping-rate|excess-bandwidth-share|member-link-scheduler|"
        r"logical-interface-aggregate-statistics|classifiers exp|"
        rf"rewrite-rules exp {_WORD}$)\b.*",
        "of the whole port, as before; of MPLS",
    ),
    _known(
        rf"{COS} interfaces {_WORD} unit [1-9]\d* (?!rewrite-rules|translation-table).*",
        "of another logical interface",
    ),
    _known(
        _UNIT + r"(description|disable|enable|mtu|speed|number-of-sub-ports|native-vlan-id|"
        r"vlan-tagging|flexible-vlan-tagging|stacked-vlan-tagging|encapsulation|hold-time|traps|"
        r"no-traps|link-mode|damping|accounting-profile|optics-options|fec|esi|"
        r"aggregated-ether-options|fabric-options|redundant-ether-options|link-degrade-monitor|"
        r"media-type|port-mirror|vlan-id|vlan-tags|vlan-id-list|vlan-id-range|bandwidth|inner-vlan-id-range|"
        r"proxy-arp|multi-chassis-protection|virtual-gateway-accept-data|virtual-gateway-v4-mac|"
        r"virtual-gateway-v6-mac|mac|input-vlan-map|output-vlan-map|member|member-range|unused|keepalives|no-keepalives|"
        r"arp-resp|no-redirects|gratuitous-arp-reply|forwarding-class-accounting)\b.*",
        "link, bridging and administration: chooses no queue",
    ),
    _known(
        rf"{_UNIT}(gigether|ether|fastether)-options (fec|auto-negotiation|"
        r"no-auto-negotiation|loopback|no-loopback|speed|no-flow-control|ieee-802-3az-eee|"
        r"link-mode|source-address-filter|no-source-filtering|ethernet-switch-profile|"
        r"autostate-exclude|redundant-parent|asynchronous-notification)\b.*",
        "link: chooses no queue, sends no pause frames",
    ),
    _known(
        _UNIT + rf"family {_WORD}( (address|mtu|vlan|interface-mode|vlan-id|recovery-timeout|"
        r"storm-control|no-redirects|rpf-check|dhcp|targeted-broadcast|unnumbered-address|"
        r"sampling|primary|preferred|negotiate-address|maximum-labels|dad-disable|no-neighbor-learn|"
        r"accounting|port-mode|native-vlan-id|bridge-domain-type|inner-vlan-id-list|vlan-rewrite|"
        r"no-dad|lladdr|ndp)\b.*)?",
        "addresses and bridging: chooses no queue",
    ),
    _known(rf"{_PORT}unit {_WORD}|{_PORT.strip()}", "an entry without lines"),
    _known(
        rf"firewall (family {_WORD} )?(simple-)?filter {_WORD}( (interface-specific|physical-"
        rf"interface-filter|(term {_WORD} )?(from .*|then (accept|discard|reject|count|log|"
        r"syslog|sample|port-mirror|port-mirror-instance|next|next-interface|next-ip|next-ip6|"
        r"routing-instance|packet-mode|vlan|analyzer|service-accounting|force-premium)\b.*)|"
        rf"term {_WORD}))?",
        "filters: chooses no queue",
    ),
)
_REWRITES: Final = (
    "rewrites code points on the way out, and dlcpd's must leave as they came: remove it, or name "
    "the port in [keep] ports"
)
REFUSED: Final = (
    _known(
        rf"{COS} interfaces {AROUND} .*\b(classifiers|rewrite-rules|scheduler-map|"
        r"forwarding-class|congestion-notification-profile)\b.*",
        "chooses queues or code points of packets on any port: remove it",
    ),
    _known(
        _COS_PORT + rf"(rewrite-rules (?!exp {_WORD}$).*|rewrite-value .*|translation-table .*)",
        _REWRITES,
    ),
    _known(
        rf"{COS} interfaces {_WORD} (unit \* classifiers (dscp|dscp-ipv6|inet-precedence)|"
        r"(unit 0 )?classifiers inet-precedence|classifiers (dscp|dscp-ipv6)|"
        r"(unit (0|\*) )?(forwarding-class|output-traffic-control-profile)|"
        r"unit (0|\*) scheduler-map|forwarding-class-set|"
        r"input-(scheduler-map|traffic-control-profile)) .*",
        "conflicts with the plan: delete it, or name the port in [keep] ports",
    ),
    _known(
        rf"{COS} classifiers dscp(-ipv6)? {_WORD} .* code-points (?![01]{{6}}$).*",
        "a code point without a number: define its alias, or write its six bits",
    ),
    _known(
        rf"{COS} congestion-notification-profile {_WORD} (input|output) ieee-802\.1 code-point "
        r"(?![01]{3} ).*",
        "a VLAN priority without a number: write its three bits",
    ),
    _known(
        rf"{COS} code-point-aliases dscp(-ipv6)? {_WORD} (?![01]{{6}}$).*",
        "an alias without six bits: write its six bits",
    ),
    _known(
        _PORT + r"(gigether|ether|fastether|aggregated-ether|redundant-ether)-options "
        r"(flow-control|configured-flow-control .*)",
        "pauses all queues of the port: remove it",
    ),
    _known(
        _PORT + r"(per-unit-scheduler|hierarchical-scheduler|shared-scheduler)\b.*",
        "gives units of the port their own queues: remove it, or name the port in [keep] ports",
    ),
    _known(
        _UNIT + rf"family {_WORD} (policer|simple-filter) .*",
        "can drop or classify packets: remove it, or name the port in [keep] ports",
    ),
    _known(
        r"firewall .* then (dscp|traffic-class|policy-map)\b.*",
        "rewrites code points of packets: remove it, or name the ports of the filter in [keep] "
        "ports",
    ),
    _known(
        r"firewall .* then (forwarding-class|loss-priority|policer|three-color-policer|"
        r"hierarchical-policer|two-color-policer)\b.*",
        "chooses a queue or drops before the classifier counts: remove it, or name the ports of "
        "the filter in [keep] ports",
    ),
)
