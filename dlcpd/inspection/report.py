"""A daemon's report: the request for it, and its alarms."""

from collections.abc import Iterator
from typing import Any

from dlcpd.daemon.metrics.families import PRESSED
from dlcpd.inspection.conversation import Conversation


def query(path: str | None, ledger: int) -> dict[str, Any]:
    """The report of the daemon that listens at `path`; keys in docs/ipc.md, "Status". None: at the
    usual socket, or, if none listens there, of a private daemon of this user.

    Raises: DaemonUnavailable, NotPermitted, BadMessage, or the daemon's refusal; BadConfig if there
    are several private ones.
    """
    with Conversation(path) as daemon:
        return daemon.status(ledger)


def titled(session: dict[str, Any]) -> str:
    """The job of a session in a report, for people. A daemon one version behind tells no title."""
    return str(session.get("title") or session["job"])


def alarms(report: dict[str, Any]) -> Iterator[str]:
    """The alarms in a report, one per line. A daemon one version behind lacks some keys."""
    if "error" in report["engine"]:
        yield f"ENGINE: {report['engine']['error']}"
    if problem := report.get("unreachable"):
        yield f"ADDRESS: {problem}"
    if problem := report.get("unmeasured"):
        yield f"METRICS: {problem}"
    if pending := report.get("pending"):
        yield f"SETTINGS: {len(pending)} wait for a restart: {', '.join(pending)}"
    if report["engine"].get("truncated"):
        yield "SHORT: the report was too long, and lacks rows of ledgers or peers"
    known = report["engine"].get("sessions", {})
    for session in report["sessions"]:
        who = f"{titled(session)}, rank {session['rank']}"
        if session["broken"]:
            yield f"BROKEN: {who}: {session['broken']}"
        engine = known.get(str(session["session"]), {})
        for late in engine.get("late", []):
            yield (
                f"LATE: {who} waits for rank {late['rank']} on {late['host']} for "
                f"{late['late']:.1f} s: {late['awaiting']}"
            )
        if engine.get("totals", {}).get("used", 0.0) >= PRESSED:
            yield (
                f"BOUND: {who} has used {engine['totals']['used']:.0%} of its bound: losses "
                "beyond it are retransmitted"
            )
        yield from _peer_alarms(who, engine.get("peers", []))
        yield from _not_shown(who, engine)


def _peer_alarms(who: str, peers: list[dict[str, Any]]) -> Iterator[str]:
    for peer in peers:
        if silent := peer.get("silent"):
            yield (
                f"SILENT: {who}: rank {peer['rank']} on {peer['host']} has not answered for "
                f"{silent:.1f} s: it may be paused, overloaded, cut off or dead"
            )
        for number, path in enumerate(peer["paths"]):
            if (how := condition(path)) != "up":
                yield f"PATH: {who}: path {number} to rank {peer['rank']} is {how}"


def _not_shown(who: str, engine: dict[str, Any]) -> Iterator[str]:
    """Alarms of peers whose rows a report that was too long lacks."""
    peers = engine.get("peers", [])
    shown = {
        "silent_peers": sum(bool(peer.get("silent")) for peer in peers),
        "paths_down": sum(not path["up"] for peer in peers for path in peer["paths"]),
        "paths_gray": sum(bool(path.get("gray")) for peer in peers for path in peer["paths"]),
    }
    for name, count in engine.get("alarms", {}).items():
        if count > shown.get(name, 0):
            yield f"MORE: {who}: {count - shown.get(name, 0)} further {name.replace('_', ' ')}"


def condition(path: dict[str, Any]) -> str:
    """State of a path, in a word."""
    return "down" if not path["up"] else "gray" if path.get("gray") else "up"
