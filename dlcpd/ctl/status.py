"""`dlcpctl status` and `dlcpctl peers`: a daemon's report as text and tables."""

import argparse
from collections.abc import Iterator
from itertools import chain
from typing import Any, Final

from dlcpd.cli import table
from dlcpd.cli.colour import by_alarm
from dlcpd.cli.output import Output
from dlcpd.contract.printable import one_line
from dlcpd.core.paths.path_mtu import SearchState
from dlcpd.core.wire.sizes import LEAST_MTU
from dlcpd.ctl.columns import chosen
from dlcpd.daemon.versions import named
from dlcpd.inspection.report import query, titled


def status(options: argparse.Namespace, output: Output) -> int:
    """Print one daemon's state. Exit code 1 if it is not healthy."""
    report = query(options.socket, options.ledger)
    for line in status_lines(report):
        output.line(one_line(line), by_alarm)  # a newline in a name must not forge a line
    output.document(report)
    return 0 if report["health"]["healthy"] else 1


def peers(options: argparse.Namespace, output: Output) -> int:
    """Print the peers of a daemon's sessions."""
    report = query(options.socket, 0)
    header, rows = chosen(PEER_HEADER, peer_rows(report), options)
    none = "no peers" if report["sessions"] else "no sessions, so no peers"
    output.line(table.render(header, rows, left=4) if rows else none, by_alarm)
    output.document([dict(zip(header, row, strict=True)) for row in rows])
    return 0


def status_lines(report: dict[str, Any]) -> Iterator[str]:
    """The report for people, line by line."""
    data = ", ".join(f"{address}:{port}" for address, port in report["endpoints"]["data"])
    state = f"{serving(report)} for {report['uptime']:.0f} s"
    yield f"{report['host']}: dlcpd {report['version']}, {state}"
    yield f"control {report['endpoints']['control']}, data {data}"
    spoken = ", ".join(f"{name} {named(report[name])}" for name in ("messages", "peers"))
    yield f"commit {report['commit'] or 'unknown'}, {spoken}"
    yield "features " + ", ".join(f"{key} {value}" for key, value in report["features"].items())
    yield from _security(report["security"])
    if problem := report.get("unreachable"):
        yield f"ADDRESS: {problem}"
    if problem := report.get("unmeasured"):
        yield f"METRICS: {problem}"
    if pending := report["pending"]:
        yield f"{len(pending)} settings wait for a restart: {', '.join(pending)}"
    engine = report["engine"]
    if "error" in engine:
        yield f"ENGINE: {engine['error']}"
    yield from _sessions(report["sessions"], engine.get("sessions", {}))
    yield from _counters("control", report["counters"])
    yield from _counters("engine", engine.get("counters", {}))
    yield from _ledger(engine.get("sessions", {}))


def serving(report: dict[str, Any]) -> str:
    """Whether the daemon takes new jobs, in words."""
    health = report["health"]
    return "serving" if health["ready"] else str(health["text"])


def _security(security: dict[str, Any]) -> Iterator[str]:
    if security["authorised"]:
        peers = f"{security['hosts']} hosts authorised by {security['authorised']}"
    else:
        peers = "ANY KEY that a job names is a peer (docs/security.md)"
    yield f"security: key {security['key']}, {security['identity'] or 'of this start'}; {peers}"
    yield from (f"SECURITY: {problem}" for problem in security["problems"])


def _sessions(sessions: list[dict[str, Any]], engine: dict[str, Any]) -> Iterator[str]:
    yield f"{len(sessions)} sessions"
    if not sessions:
        return
    header = (
        "job",
        "rank",
        "world",
        "state",
        "age(s)",
        "operations",
        "open",
        "residual(B)",
        "peers proved by",
    )
    rows = []
    for session in sessions:
        more = engine.get(str(session["session"]), {})
        rows.append(
            [
                titled(session),
                session["rank"],
                session["world_size"],
                session["state"],
                f"{session['age']:.0f}",
                more.get("submitted"),
                more.get("open"),
                more.get("residual_bytes"),
                session["proof"],
            ]
        )
    yield from table.render(header, rows).splitlines()
    yield from (f"  rank {s['rank']} is broken: {s['broken']}" for s in sessions if s["broken"])
    yield from (f"  rank {s['rank']}: {_plan(s)}" for s in sessions if s.get("plan"))
    for session in sessions:
        more = engine.get(str(session["session"]), {})
        for late in more.get("late", []):
            yield f"  rank {session['rank']} waits for {_straggler(late)}"
        ills = chain(_silent(more.get("peers", [])), _paths(more.get("peers", [])))
        yield from (f"  rank {session['rank']}: {ill}" for ill in ills)


def _silent(peers: list[dict[str, Any]]) -> Iterator[str]:
    """Lines on suspected peers."""
    for peer in peers:
        if silent := peer.get("silent"):
            yield (
                f"rank {peer['rank']} on {peer['host']} is SUSPECTED: silent for {silent:.1f} s; "
                f"it may be paused, overloaded, cut off or dead"
            )


def _paths(peers: list[dict[str, Any]]) -> Iterator[str]:
    """Lines on paths that are down or gray."""
    for peer in peers:
        for number, path in enumerate(peer["paths"]):
            if (how := _condition(path)) in ("down", "gray"):
                yield f"path {number} to rank {peer['rank']} on {peer['host']} is {how}"


def _plan(session: dict[str, Any]) -> str:
    """The plan in use, with its version where the job has adopted one while it ran."""
    version = session.get("plan_version", 1)
    return f"plan {session['plan']}" + (f" (version {version})" if version > 1 else "")


def _straggler(late: dict[str, Any]) -> str:
    down = ", ".join(map(str, late["paths_down"]))
    return (
        f"rank {late['rank']} on {late['host']} ({late['address']}, heard {late['silent']:.1f} s "
        f"ago{f', path {down} down' if down else ''}) for {late['late']:.1f} s: {late['awaiting']}"
    )


def _counters(whose: str, counters: dict[str, int]) -> Iterator[str]:
    nonzero = ", ".join(f"{name} {count}" for name, count in sorted(counters.items()) if count)
    yield f"{whose} counters: {nonzero or 'all zero'}"


def _ledger(sessions: dict[str, Any]) -> Iterator[str]:
    rows = [
        [
            row["operation"],
            row["name"],
            row["sender"],
            row["owner"],
            row["transfer"],
            row["segments"],
            " ".join(f"{path}:{count}" for path, count in row["paths"].items()) or None,
        ]
        for session in sessions.values()
        for row in session["ledger"]
    ]
    if rows:
        yield "ledger: segments waived, newest last"
        header = ("operation", "name", "sender", "owner", "transfer", "segments", "by path")
        yield from table.render(header, rows, left=0).splitlines()


PEER_HEADER: Final = (
    "job", "rank", "host", "state", "path", "data", "via", "mtu", "sent", "lost", "rtt(us)",
    "window", "missing", "is", "left because",
)  # fmt: skip


def peer_rows(report: dict[str, Any]) -> Iterator[list[Any]]:
    """A row per peer and path; the engine's values are None for a peer it does not know yet."""
    known = report["engine"].get("sessions", {})
    for session in report["sessions"]:
        flows = {
            p["rank"]: p["paths"] for p in known.get(str(session["session"]), {}).get("peers", [])
        }
        for peer in session["peers"]:
            paths = flows.get(peer["rank"]) or [{}]
            for number, path in enumerate(paths):
                yield _peer_row(titled(session), peer, number, path)


def _condition(path: dict[str, Any]) -> str | None:
    """State of a path, in a word; None if unknown."""
    if not path:
        return None
    return "down" if not path.get("up", True) else "gray" if path.get("gray") else "up"


def _mtu(path: dict[str, Any]) -> str | None:
    """Bytes of the largest packet that is known to pass; None if unknown."""
    if path.get("mtu_search") == SearchState.BLOCKED.value:
        return f"<{LEAST_MTU}"
    return str(path["mtu"]) if path.get("mtu") else None


def _peer_row(job: str, peer: dict[str, Any], number: int, path: dict[str, Any]) -> list[Any]:
    data = peer["data"][number] if number < len(peer["data"] or []) else None
    rtt = path.get("rtt")
    return [
        job,
        peer["rank"],
        peer["host"],
        peer["state"],
        number,
        f"{data[0]}:{data[1]}" if data else None,
        " ".join(path.get("hops", [])) or None,
        _mtu(path),
        path.get("sent"),
        path.get("lost"),
        f"{rtt * 1e6:.0f}" if rtt else None,
        path.get("congestion_window"),
        path.get("missing"),
        _condition(path),
        peer["end_reason"] or None,
    ]
