"""Lines of NX-OS that are of no matter, or refused. Pure.

Sources: Nexus 9000 QoS guide 10.x ("Classification", "Policing", "Queuing and Scheduling",
"Network QoS", "Priority Flow Control") and the interface command reference 10.x.
"""

import re
from typing import Final

from switchcfg.plan.account import KnownLine

# Match conditions besides DSCP and CoS, by their first word: read, never written
MATCHES: Final = ("access-group", "precedence", "protocol", "packet", "ip", "discard-class", "mac")
# What a policy does to a class besides its qos-group
MARKS: Final = ("set dscp", "set cos", "set precedence", "set discard-class", "police")
# Lines of a queue that switchcfg does not write in these forms
QUEUE_LINES: Final = ("random-detect", "bandwidth", "queue-limit", "shape", "priority", "afd")

_PORT: Final = r"interface \S+ / "
AROUND: Final = r"(?:Vlan|nve|Tunnel)\d+(?:\.\d+)?"
_EIGHT: Final = (
    "the switch has four queues, and switchcfg writes the eight of c-out-8q: remove this device "
    "from the intent"
)


def _known(shape: str, why: str) -> KnownLine:
    return KnownLine(re.compile(shape), why)


IDLE: Final = (
    _known(
        _PORT + r"(no |default )?(description|shutdown|logging|snmp|load-interval|lldp|cdp|ptp|"
        r"sflow|udld|beacon|link|linkdebounce|mdix|packet|carrier-delay|delay|bandwidth|medium|dfe-tuning-delay|itd)\b.*",
        "administration and telemetry (`bandwidth` of a port is a metric): forwards nothing",
    ),
    _known(
        _PORT + r"(no |default )?(mtu|speed|duplex|negotiate|fec|port-channel|lacp|"
        r"vpc|switchport|vlan|spanning-tree|storm-control|mac|mac-address|mac port|encapsulation|"
        r"private-vlan|dot1q|evpn|fabric|unidirectional|errdisable|port-type|vtp|autostate|fex|"
        r"hardware (multicast|vethernet)|inherit port-type)\b.*",
        "link and bridging: chooses no queue",
    ),
    _known(
        _PORT + r"(no |default )?(ip|ipv6|vrf|hsrp|vrrp|bfd|isis|ospf|ospfv3|mpls|pim|arp|nve|"
        r"member|source-interface|host-reachability|ipv4|nv|management|global)\b.*",
        "routing and filters: chooses no queue",
    ),
    _known(
        rf"({_PORT})?(no )?priority-flow-control watch-dog.*",
        "guards flow control, and a plan does not",
    ),
    _known(_PORT + r"(flowcontrol (send|receive) off|no flowcontrol.*)", "no pause frames"),
    _known(
        _PORT + r"no (service-policy|priority-flow-control)\b.*", "nothing is bound or set by it"
    ),
    _known(r"policy-map type \S+ \S+ / description .*", "says something to people"),
    _known(r"class-map type \S+ .* / description .*", "says something to people"),
    _known(
        r"policy-map type network-qos \S+ / class type network-qos \S+ / (congestion-control "
        r"tail-drop|no pause.*)",
        "the default of a class",
    ),
    _known(
        r"(class-map|policy-map) type (control-plane|plc|psp|accounting) .*|control-plane( / .*)?",
        "of the control plane",
    ),
    _known(r"no (qos|hardware|system|priority-flow-control) .*", "a default"),
    _known(r"qos statistics.*|no qos statistics.*", "telemetry"),
)
REFUSED: Final = (
    _known(
        rf"interface ({AROUND}|\S+\.\d+) / (service-policy .*|qos-mode .*|priority-flow-control .*|"
        r"(?!description ).*\b(qos|dscp|cos)\b.*)",
        "chooses queues or code points of packets on any port, or on its own: remove it",
    ),
    _known(
        r"(system qos|interface \S+) / service-policy type queuing output default-out-policy",
        _EIGHT,
    ),
    _known(r"policy-map type queuing \S+ / class type queuing c-out-q.*", _EIGHT),
    _known(r"policy-map type network-qos \S+ / class type network-qos c-nq.*", _EIGHT),
    _known(
        _PORT + r"service-policy (type qos )?output .*",
        "a policy on the way out can rewrite code points: remove it, or name the port in [keep] "
        "ports",
    ),
    _known(
        r"priority-flow-control override-interface mode .*",
        "turns flow control on or off at all ports, whatever their own lines say: remove it",
    ),
    _known(_PORT + r"flowcontrol (send|receive) on", "pauses all queues of the port: remove it"),
    _known(_PORT + r"inherit port-profile .*", "lines of port profiles are not read"),
    _known(
        r"policy-map type network-qos \S+ / class type network-qos \S+ / set .*",
        "rewrites the CoS of packets: remove it",
    ),
)
