"""Grammar of NVUE: lines that are read or written, of no matter, or refused. Pure.

Source: Cumulus Linux 5.x documentation, "Quality of Service" and "Access Control List
Configuration"; the NVUE command reference.
"""

import re
from typing import Final

from switchcfg.plan.account import SWITCH, KnownLine
from switchcfg.platforms.grammar import MEMBERS, Grammar
from switchcfg.platforms.rule import Rule

_QOS: Final = "qos"
GLOBAL: Final = "default-global"
_CURVE: Final = f"{_QOS} congestion-control {{profile}} traffic-class {{tc+}}"
_PFC: Final = f"{_QOS} pfc {{profile}}"


def _rule(kind: str, line: str, *refers: str) -> Rule:
    undo = line.rpartition(" <")[0] if line.endswith(">") else line
    return Rule(kind, (f"nv set {line}",), f"nv unset {undo}", refers=refers)


def _known(shape: str, why: str) -> KnownLine:
    return KnownLine(re.compile(f"nv set {shape}"), why)


_PORT: Final = r"interface \S+ "
_REWRITES: Final = (
    "rewrites code points on the way out, and dlcpd's must leave as they came: remove it"
)
_TUNNEL: Final = (
    "packets in a VXLAN tunnel would have other code points: set the encapsulation's action to "
    "copy, and the decapsulation's to preserve"
)
# Other roots of the tree; and words of QoS, in lines below none of them
_ELSEWHERE: Final = (
    "(bridge|evpn|maintenance|mlag|nve|platform|router|service|system|vrf|interface|acl)"
)
_WORDS: Final = (
    "(qos|congestion-control|switch-priority|traffic-class|traffic-pool|dscp|pcp|pfc|remark|roce|"
    "egress-queue-mapping|egress-scheduler|advance-buffer-config|link-pause)"
)
IDLE: Final = (
    _known(
        _PORT + r"(type|description|ip|ipv4|ipv6|neighbor|link|bridge|bond|vlan|base-interface|"
        r"parent|vrf|router|evpn|tunnel|vxlan|ptp|synce|lldp|sflow|telemetry|counter|dot1x|"
        r"port-security|storm-control|transceiver|pluggable|healing|bridge)\b.*",
        "link, bridging and routing: chooses no queue",
    ),
    _known(r"acl \S+ (?!.* action (set|police)\b).*", "filters: chooses no queue"),
    _known(_PORT + r"qos (pfc-watchdog|buffer|counter).*", "guards or counts, and a plan does not"),
    _known(r"qos pfc-watchdog.*", "guards flow control, and a plan does not"),
    _known(
        "nve vxlan (encapsulation dscp action copy|decapsulation dscp action preserve)",
        "keeps code points",
    ),
    _known(
        r"system forwarding ((ecmp|lag)-hash|host-route-preference|programming|"
        r"polling-interval)\b.*",
        "chooses paths, and no queue",
    ),
    _known(
        r"qos (mapping (?!default-global)\S+ (trust|dscp|pcp|port-default-sp)|"
        r"egress-scheduler (?!default-global)\S+ traffic-class|"
        r"egress-queue-mapping (?!default-global)\S+ switch-priority|"
        r"link-pause (?!default-global)\S+ (rx|tx|cable-length|port-buffer|xoff-size|xon-size|"
        r"xoff-threshold|xon-threshold))\b.*",
        "of a profile, which is refused where a port has it",
    ),
)
REFUSED: Final = (
    _known(rf"({_PORT})?qos remark .*", _REWRITES),
    _known(r"acl \S+ .* action set .*", _REWRITES),
    _known(
        r"nve vxlan (?!encapsulation dscp action copy|decapsulation dscp action preserve).*",
        _TUNNEL,
    ),
    _known(
        r"system forwarding ecmp-hash (source|destination)-port (off|disabled)",
        "flows of dlcpd differ by their UDP ports, and would share a path: turn it on",
    ),
)


def _spell(line: str) -> str:
    return " ".join(line.split())


GRAMMAR: Final = Grammar(
    rules=(
        _rule("mapping trust", f"{_QOS} mapping {GLOBAL} trust <what>"),
        _rule("mapping dscp", f"{_QOS} mapping {GLOBAL} dscp {{dscp+}} switch-priority <priority>"),
        _rule(
            "queue mapping",
            f"{_QOS} egress-queue-mapping {GLOBAL} switch-priority {{priority+}} "
            "traffic-class <tc>",
        ),
        _rule(
            "scheduler mode", f"{_QOS} egress-scheduler {GLOBAL} traffic-class {{tc+}} mode <mode>"
        ),
        _rule(
            "scheduler weight",
            f"{_QOS} egress-scheduler {GLOBAL} traffic-class {{tc+}} bw-percent <percent>",
        ),
        _rule("pool", f"{_QOS} traffic-pool {{pool}} memory-percent <percent>"),
        _rule("curve min", f"{_CURVE} min-threshold <bytes>"),
        _rule("curve max", f"{_CURVE} max-threshold <bytes>"),
        _rule("curve probability", f"{_CURVE} probability <percent>"),
        _rule("curve red", f"{_CURVE} red <state>"),
        _rule("curve ecn", f"{_CURVE} ecn <state>"),
        _rule(
            "buffer alpha",
            f"{_QOS} advance-buffer-config {GLOBAL} egress-lossy-buffer traffic-class {{tc+}} "
            "shared-alpha <alpha>",
        ),
        _rule("pfc", f"{_PFC} switch-priority {{priority+}}"),
        _rule("pfc rx", f"{_PFC} rx <state>"),
        _rule("pfc tx", f"{_PFC} tx <state>"),
        _rule("pfc cable", f"{_PFC} cable-length <metres>"),
        _rule(
            "interface profile",
            "interface {port+} qos congestion-control profile <profile>",
            "congestion-control <profile>",
        ),
        _rule("interface pfc", "interface {port+} qos pfc profile <profile>", "pfc <profile>"),
        # Foreign lines: read, never written.
        _rule("interface bond", "interface {bond+} bond member {port+}"),
        _rule("interface acl", "interface {port+} acl {acl} inbound", "acl {acl}"),
        _rule("interface acl out", "interface {port+} acl {acl} outbound", "acl {acl}"),
        _rule("mapping pcp", f"{_QOS} mapping {GLOBAL} pcp {{pcp+}} switch-priority <priority>"),
        _rule("mapping port", f"{_QOS} mapping {GLOBAL} port-default-sp <priority>"),
        _rule("roce", "qos roce"),
        _rule("roce", "qos roce {what} <value>"),
        _rule("interface pause", "interface {port+} qos link-pause profile <profile>"),
        _rule("interface mapping", "interface {port+} qos mapping profile <profile>"),
        _rule("interface scheduler", "interface {port+} qos egress-scheduler profile <profile>"),
    ),
    comment="#",
    owners=(
        (re.compile(r"nv set interface \S+ \S+ (qos|interface) .*"), SWITCH),
        (re.compile(r"nv set interface (\S+) .*"), MEMBERS),
        (re.compile(r"nv set acl (\S+) .*"), "acl {0}"),
        (re.compile(r"nv set qos remark (?!default-global)(\S+) .*"), "remark {0}"),
        (
            re.compile(
                r"nv set qos (congestion-control|pfc|mapping|egress-scheduler|"
                r"egress-queue-mapping|link-pause) (?!default-global)(\S+) .*"
            ),
            "{0} {1}",
        ),
        (re.compile(r"nv set (qos|system (qos|forwarding)|router policy qos)\b.*"), SWITCH),
        (re.compile(r"nv set nve vxlan (en|de)capsulation\b.*"), SWITCH),
        (re.compile(rf"(?!nv set {_ELSEWHERE} ).*\b{_WORDS}\b.*"), SWITCH),
    ),
    spell=_spell,
    certain=re.compile(
        r"(congestion-control|pfc|mapping|egress-scheduler|egress-queue-mapping|link-pause) .*|"
        rf"{_WORDS}|profile|\W.*"
    ),
    around=re.compile(r"(vlan|bond|peerlink|irb)\S*"),
    idle=IDLE,
    refused=REFUSED,
)
