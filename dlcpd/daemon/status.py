"""The answer to StatusRequest. Keys: docs/ipc.md, "Status"."""

import os
from collections import Counter
from dataclasses import dataclass
from typing import Any, Final

from dlcpd import __version__
from dlcpd.contract.frames import encode
from dlcpd.contract.messages import MAX_FRAME, Status
from dlcpd.daemon.peers.membership import Link
from dlcpd.daemon.sessions.session import LocalSession
from dlcpd.daemon.sessions.sessions import Sessions

MOST_ROWS: Final = 1024  # of a list, if a status is too long
_LISTS: Final = frozenset({"peers", "late", "waiting", "ledger"})  # of a session


@dataclass(frozen=True, slots=True)
class Facts:
    """Values that do not change while the daemon runs."""

    host: str
    control: str  # endpoint of the peers
    features: dict[str, Any]  # number of engines, and features of engine 0's sockets
    started_at: float  # loop time


def report(
    facts: Facts,
    sessions: Sessions,
    counters: Counter[str],
    *,
    engine: dict[str, Any],
    now: float,
) -> dict[str, Any]:
    """The daemon's state as a JSON-like map."""
    return {
        "host": facts.host,
        "version": __version__,
        "pid": os.getpid(),
        "uptime": now - facts.started_at,
        "draining": sessions.admission.draining,
        "endpoints": {"control": facts.control},
        "features": facts.features,
        "sessions": [_session(session, now) for session in sessions.table],
        "counters": dict(sorted(counters.items())),
        "engine": engine,
    }


def fitting(status: dict[str, Any]) -> bytes:
    """The packet of Status. If it is too long, rows are left out: ledgers first, then the last rows
    of the longest lists of sessions, which begin with peers in alarm, and sessions as the last
    resort. Counters, and the engines' values beside sessions, always stay."""
    packet = encode(Status.of(status))
    if len(packet) <= MAX_FRAME:
        return packet
    status = status | {"truncated": True}
    for most in (MOST_ROWS >> shift for shift in range(MOST_ROWS.bit_length() + 1)):
        packet = encode(Status.of(_with_rows(status, most)))
        if len(packet) <= MAX_FRAME:
            return packet
    bare = _with_rows(status, 0)
    while len(packet) > MAX_FRAME and bare["sessions"]:
        bare = _with_half_of_sessions(bare)
        packet = encode(Status.of(bare))
    return packet


def _with_rows(status: dict[str, Any], most: int) -> dict[str, Any]:
    """`status` with at most `most` rows per list of a session, and without ledgers."""
    engine = status["engine"]
    if "sessions" in engine:
        sessions = {key: _cut(session, most) for key, session in engine["sessions"].items()}
        engine = engine | {"sessions": sessions}
    return status | {"sessions": [_cut(row, most) for row in status["sessions"]], "engine": engine}


def _cut(session: dict[str, Any], most: int) -> dict[str, Any]:
    return {
        name: value[: 0 if name == "ledger" else most] if name in _LISTS else value
        for name, value in session.items()
    }


def _with_half_of_sessions(status: dict[str, Any]) -> dict[str, Any]:
    kept, engine = status["sessions"][: len(status["sessions"]) // 2], status["engine"]
    if "sessions" in engine:
        numbers = {str(row["session"]) for row in kept}
        sessions = {key: row for key, row in engine["sessions"].items() if key in numbers}
        engine = engine | {"sessions": sessions}
    return status | {"sessions": kept, "engine": engine}


def _session(session: LocalSession, now: float) -> dict[str, Any]:
    membership = session.membership
    return {
        "session": session.number,
        "job": membership.job,
        "rank": membership.rank,
        "world_size": membership.agreed["world_size"],
        "state": session.state,
        "broken": session.broken,
        "broken_code": session.broken_code,
        "arena_bytes": session.arena_bytes,
        "proof": session.proof.value,
        "plan": session.plan,
        "plan_version": session.version,
        "age": now - session.joined_at if session.joined_at else 0.0,
        "peers": [_peer(link) for link in membership.links.values()],
    }


def _peer(link: Link) -> dict[str, Any]:
    return {
        "rank": link.rank,
        "host": link.host,
        "control": link.endpoint,
        "data": link.endpoints,
        "state": link.state.name.lower(),
        "end_reason": link.end_reason,
    }
