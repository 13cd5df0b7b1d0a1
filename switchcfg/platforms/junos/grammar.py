"""Grammar of Junos: the `set` lines that switchcfg reads and writes, and their deletion. Pure."""

import re
from typing import Final

from switchcfg.platforms.grammar import CHANNEL, Grammar
from switchcfg.platforms.junos.known import AROUND, CERTAIN, COS, IDLE, OWNERS, REFUSED, VLAN_TYPES
from switchcfg.platforms.rule import Rule

_PFC: Final = f"{COS} congestion-notification-profile {{name}}"
_MAP: Final = f"{COS} schedulers {{scheduler}} drop-profile-map"
_HASH: Final = "policy-options policy-statement {policy} then load-balance per-packet"


def _rule(kind: str, line: str, undo: str = "", refers: str = "") -> Rule:
    """A rule of one line. `undo`: the deleted part, if it is less than the whole line. `refers`:
    the owner that the line binds."""
    owners = (refers,) if refers else ()
    return Rule(kind, (f"set {line}",), f"delete {undo or line}", refers=owners)


GRAMMAR: Final = Grammar(
    rules=(
        _rule(
            "class queue",
            f"{COS} forwarding-classes class {{class}} queue-num <queue>",
            f"{COS} forwarding-classes class {{class}}",
        ),
        _rule("class no-loss", f"{COS} forwarding-classes class {{class}} no-loss"),
        _rule(
            "class priority",
            f"{COS} forwarding-classes class {{class}} pfc-priority <priority>",
            f"{COS} forwarding-classes class {{class}} pfc-priority",
        ),
        _rule("pfc tagged", f"{_PFC} input ieee-802.1 code-point {{bits}} pfc"),  # foreign
        _rule("pfc input", f"{_PFC} input dscp code-point {{bits}} pfc"),
        _rule("pfc cable", f"{_PFC} input cable-length <metres>", f"{_PFC} input cable-length"),
        _rule(
            "pfc output",
            f"{_PFC} output ieee-802.1 code-point {{bits}} flow-control-queue {{queue}}",
        ),
        _rule(
            "interface pfc",
            f"{COS} interfaces {{port}} congestion-notification-profile <profile>",
            refers="congestion-notification-profile <profile>",
        ),
        _rule(
            "classifier",
            f"{COS} classifiers dscp {{name}} forwarding-class {{class}} loss-priority {{loss}} "
            "code-points {bits}",
        ),
        _rule(
            "classifier ipv6",
            f"{COS} classifiers dscp-ipv6 {{name}} forwarding-class {{class}} "
            "loss-priority {loss} code-points {bits}",
        ),
        _rule(
            "drop profile", f"{COS} drop-profiles {{profile}} interpolate fill-level {{percent}}"
        ),
        _rule(
            "drop probability",
            f"{COS} drop-profiles {{profile}} interpolate drop-probability {{percent}}",
        ),
        _rule(
            "scheduler priority",
            f"{COS} schedulers {{scheduler}} priority <level>",
            f"{COS} schedulers {{scheduler}} priority",
        ),
        _rule(
            "scheduler rate",
            f"{COS} schedulers {{scheduler}} transmit-rate percent <percent>",
            f"{COS} schedulers {{scheduler}} transmit-rate",
        ),
        _rule(
            "scheduler buffer",
            f"{COS} schedulers {{scheduler}} buffer-size percent <percent>",
            f"{COS} schedulers {{scheduler}} buffer-size",
        ),
        _rule(
            "scheduler drop",
            f"{_MAP} loss-priority {{loss}} protocol any drop-profile <profile>",
            f"{_MAP} loss-priority {{loss}} protocol any",
            "drop-profile <profile>",
        ),
        _rule("scheduler ecn", f"{COS} schedulers {{scheduler}} explicit-congestion-notification"),
        _rule(
            "scheduler map",
            f"{COS} scheduler-maps {{map}} forwarding-class {{class}} scheduler <scheduler>",
            f"{COS} scheduler-maps {{map}} forwarding-class {{class}}",
            "scheduler <scheduler>",
        ),
        _rule(
            "interface map",
            f"{COS} interfaces {{port}} scheduler-map <map>",
            f"{COS} interfaces {{port}} scheduler-map",
            "scheduler-map <map>",
        ),
        _rule(
            "interface classifier",
            f"{COS} interfaces {{port}} unit 0 classifiers dscp <name>",
            f"{COS} interfaces {{port}} unit 0 classifiers dscp",
            "classifier dscp <name>",
        ),
        _rule(
            "interface classifier ipv6",
            f"{COS} interfaces {{port}} unit 0 classifiers dscp-ipv6 <name>",
            f"{COS} interfaces {{port}} unit 0 classifiers dscp-ipv6",
            "classifier dscp-ipv6 <name>",
        ),
        _rule("balance policy", _HASH, "policy-options policy-statement {policy}"),
        _rule("balance export", "routing-options forwarding-table export {policy}"),
        _rule(
            "balance mode",
            "forwarding-options enhanced-hash-key ecmp-dlb <mode>",
            "forwarding-options enhanced-hash-key ecmp-dlb",
        ),
        # Foreign lines. Those of an object that switchcfg made go with the next plan.
        *(
            _rule(
                f"classifier import {each}",
                f"{COS} classifiers {each} {{name}} import <from>",
                f"{COS} classifiers {each} {{name}} import",
                f"classifier {each} <from>",
            )
            for each in ("dscp", "dscp-ipv6", *VLAN_TYPES)
        ),
        *(
            _rule(
                f"classifier {each}",
                f"{COS} classifiers {each} {{name}} forwarding-class {{class}} "
                "loss-priority {loss} code-points {bits}",
            )
            for each in VLAN_TYPES
        ),
        *(
            _rule(
                f"interface classifier {each}",
                f"{COS} interfaces {{port}} unit {{unit}} classifiers {each} <name>",
                refers=f"classifier {each} <name>",
            )
            for each in VLAN_TYPES
        ),
        *(
            _rule(
                f"interface classifier {each} whole",
                f"{COS} interfaces {{port}} classifiers {each} <name>",
                refers=f"classifier {each} <name>",
            )
            for each in VLAN_TYPES
        ),
        _rule(
            "drop point", f"{COS} drop-profiles {{profile}} fill-level {{fill}} <what> <percent>"
        ),
        *(
            _rule(
                f"scheduler {what}",
                f"{COS} schedulers {{scheduler}} {what} <value*>",
                f"{COS} schedulers {{scheduler}} {what}",
            )
            for what in (
                "transmit-rate",
                "buffer-size",
                "shaping-rate",
                "excess-rate",
                "excess-priority",
                "adjust-minimum",
                "adjust-percent",
                "buffer-dynamic-threshold",
            )
        ),
        _rule(
            "scheduler drop other",
            f"{_MAP} loss-priority {{loss}} protocol {{protocol}} drop-profile <profile>",
            f"{_MAP} loss-priority {{loss}} protocol {{protocol}}",
            "drop-profile <profile>",
        ),
        *(
            _rule(
                f"pfc {what}",
                f"{_PFC} input {{type}} code-point {{bits}} {inside}{what} <value>",
                f"{_PFC} input {{type}} code-point {{bits}} {inside}{what}",
            )
            for what in ("mru", "xon", "cable-length")
            for inside in ("pfc ", "")
        ),
        _rule(
            "filter",
            "interfaces {port} unit {unit} family {family} filter {way} {filter}",
            refers="filter {filter}",
        ),
        _rule(
            "filter of vlan",
            "vlans {vlan} forwarding-options filter {way} {filter}",
            refers="filter {filter}",
        ),
        _rule(
            "filter of vlan before ELS",
            "vlans {vlan} filter {way} {filter}",
            refers="filter {filter}",
        ),
        _rule(
            "filter of routes",
            "routing-instances {instance} forwarding-options family {family} filter {way} {filter}",
            refers="filter {filter}",
        ),
        _rule(
            "filter of domain",
            "bridge-domains {vlan} forwarding-options filter {way} {filter}",
            refers="filter {filter}",
        ),
        _rule(
            "filter of instance",
            "routing-instances {instance} vlans {vlan} forwarding-options filter {way} {filter}",
            refers="filter {filter}",
        ),
        *(
            _rule(CHANNEL, f"interfaces {{port}} {each}-options 802.3ad <channel>")
            for each in ("ether", "gigether", "fastether")
        ),
        _rule(
            "filter of switch",
            "forwarding-options family {family} filter {way} {filter}",
            refers="filter {filter}",
        ),
    ),
    comment="#",
    owners=OWNERS,
    certain=CERTAIN,
    around=re.compile(AROUND),
    idle=IDLE,
    refused=REFUSED,
)
