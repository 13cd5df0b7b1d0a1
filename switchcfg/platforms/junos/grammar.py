"""Grammar of Junos: the `set` lines that switchcfg reads and writes, and their deletion. Pure."""

import re
from typing import Final

from switchcfg.platforms.grammar import Grammar, Rule

COS: Final = "class-of-service"
_PFC: Final = f"{COS} congestion-notification-profile {{name}}"
_MAP: Final = f"{COS} schedulers {{scheduler}} drop-profile-map"
_HASH: Final = "policy-options policy-statement {policy} then load-balance per-packet"


def _rule(kind: str, line: str, undo: str = "") -> Rule:
    """A rule of one line. `undo`: the deleted part, if it is less than the whole line."""
    return Rule(kind, (f"set {line}",), f"delete {undo or line}")


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
            "pfc output", f"{_PFC} output ieee-802.1 code-point {{bits}} flow-control-queue <queue>"
        ),
        _rule(
            "interface pfc", f"{COS} interfaces {{port}} congestion-notification-profile <profile>"
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
        ),
        _rule("scheduler ecn", f"{COS} schedulers {{scheduler}} explicit-congestion-notification"),
        _rule(
            "scheduler map",
            f"{COS} scheduler-maps {{map}} forwarding-class {{class}} scheduler <scheduler>",
            f"{COS} scheduler-maps {{map}} forwarding-class {{class}}",
        ),
        _rule(
            "interface map",
            f"{COS} interfaces {{port}} scheduler-map <map>",
            f"{COS} interfaces {{port}} scheduler-map",
        ),
        _rule(
            "interface classifier",
            f"{COS} interfaces {{port}} unit 0 classifiers dscp <name>",
            f"{COS} interfaces {{port}} unit 0 classifiers dscp",
        ),
        _rule(
            "interface classifier ipv6",
            f"{COS} interfaces {{port}} unit 0 classifiers dscp-ipv6 <name>",
            f"{COS} interfaces {{port}} unit 0 classifiers dscp-ipv6",
        ),
        _rule("balance policy", _HASH, "policy-options policy-statement {policy}"),
        _rule("balance export", "routing-options forwarding-table export {policy}"),
        _rule(
            "balance mode",
            "forwarding-options enhanced-hash-key ecmp-dlb <mode>",
            "forwarding-options enhanced-hash-key ecmp-dlb",
        ),
    ),
    comment="#",
)


# Entries of lists: a device keeps an empty entry, so each is deleted with its last line.
_WORD: Final = r"[^ ]+"
ENTRY: Final = re.compile(
    f"{COS} ("
    f"classifiers dscp(-ipv6)? {_WORD}( forwarding-class {_WORD}( loss-priority {_WORD})?)?|"
    f"congestion-notification-profile {_WORD}( (input dscp|output ieee-802.1) code-point {_WORD})?|"
    f"forwarding-classes class {_WORD}|"
    f"drop-profiles {_WORD}|"
    f"schedulers {_WORD}( drop-profile-map loss-priority {_WORD} protocol any)?|"
    f"scheduler-maps {_WORD}( forwarding-class {_WORD})?|"
    f"interfaces {_WORD}( unit 0)?)"
)
