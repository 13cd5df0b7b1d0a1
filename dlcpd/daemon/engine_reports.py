"""Merges the parts of an engine's report (dlcpd/io/report.py), and the reports of several engines
into one of the same form."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dlcpd.io.report_rows import PEER, SESSION, merged

Report = dict[str, Any]
_LISTED = ("late", "waiting", "ledger")
_LARGEST = "used"  # of a session's totals; the others are added


def add_part(whole: Report, part: Report) -> None:
    """Add a part of a report to those before it: lists are continued, maps are merged."""
    for key, value in part.items():
        mine: Any = whole.setdefault(key, value)
        if mine is value:
            continue
        if isinstance(value, dict):
            add_part(mine, value)
        elif isinstance(value, list):
            mine += value
        else:
            whole[key] = value


def joined(answers: Mapping[int, Report], of: int = 1) -> Report:
    """One report: counts are added; the paths of engine 1 follow those of engine 0, and so on.

    `answers`: by engine; `of`: number of engines. "error" names engines that did not answer, and
    why.
    """
    if of == len(answers) == 1:
        return answers[min(answers)]
    errors = [
        f"engine {number}: {answers[number]['error']}"
        for number in sorted(answers)
        if "error" in answers[number]
    ]
    whole = _whole(
        [answers[number] for number in sorted(answers) if "error" not in answers[number]]
    )
    return whole | ({"error": "; ".join(errors)} if errors else {})


def _whole(reports: Sequence[Report]) -> Report:
    numbers = dict.fromkeys(number for report in reports for number in report["sessions"])
    whole = {
        "counters": _total(report["counters"] for report in reports),
        "effort": _total(report["effort"] for report in reports),
        "totals": _totals([report["totals"] for report in reports if "totals" in report]),
        "paths": [path for report in reports for path in report["paths"]],
        "sessions": {
            number: _session([r["sessions"][number] for r in reports if number in r["sessions"]])
            for number in numbers
        },
    }
    if links := [report["links"] for report in reports if "links" in report]:
        whole["links"] = {way: _link([each[way] for each in links]) for way in links[0]}
    return whole | ({"truncated": True} if any("truncated" in r for r in reports) else {})


def _total(counts: Iterable[dict[str, int]]) -> dict[str, int]:
    total = Counter[str]()
    for some in counts:
        total.update(some)
    return dict(total)


def _link(parts: list[dict[str, int]]) -> dict[str, int]:
    """One direction of a link: each engine has a share of its rate."""
    rates = _total({key: part[key] for key in ("most", "rate")} for part in parts)
    return {**rates, **{key: min(part[key] for part in parts) for key in ("part", "hosts")}}


def _session(parts: list[Report]) -> Report:
    whole = parts[0] | merged(SESSION, parts)
    whole |= {name: [row for part in parts for row in part[name]] for name in _LISTED}
    whole["broken"] = next((part["broken"] for part in parts if part["broken"]), "")
    whole["alarms"] = _alarms([part["alarms"] for part in parts])
    whole["totals"] = _totals([part["totals"] for part in parts])
    peers: dict[int, list[Report]] = {}
    for part in parts:
        for peer in part["peers"]:
            peers.setdefault(peer["rank"], []).append(peer)
    whole["peers"] = [_peer(same) for same in peers.values()]
    return whole


def _peer(same: list[Report]) -> Report:
    """One peer, merged from the reports of several engines."""
    paths = [path for peer in same for path in peer["paths"]]
    return same[0] | merged(PEER, same) | {"paths": paths}


def _alarms(parts: list[dict[str, int]]) -> dict[str, int]:
    """Each engine has paths of its own, and the same peers."""
    silent = max(part["silent_peers"] for part in parts)
    return _total(parts) | {"silent_peers": silent}


def _totals(parts: list[Report]) -> Report:
    """Merged totals. Each engine counts its part of a divided operation as an operation."""
    whole: Report = {}
    for name in parts[0] if parts else ():
        values = [part[name] for part in parts]
        if name == _LARGEST:
            whole[name] = max(values)
        elif isinstance(values[0], dict):
            whole[name] = _total(values)
        elif isinstance(values[0], list):
            whole[name] = [sum(column) for column in zip(*values, strict=True)]
        else:
            whole[name] = sum(values)
    return whole
