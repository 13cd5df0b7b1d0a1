"""What StatusRequest is answered with. Keys: docs/ipc.md, "Status"."""

import os
from collections import Counter
from dataclasses import dataclass
from typing import Any

from dlcpd import __version__
from dlcpd.contract.messages import MAX_FRAME, Status
from dlcpd.daemon.peers.membership import Link
from dlcpd.daemon.sessions.session import Session
from dlcpd.daemon.sessions.sessions import Sessions
from dlcpd.ipc.seqpacket import encode


@dataclass(frozen=True, slots=True)
class Facts:
    """What does not change while the daemon runs."""

    host: str
    control: str  # endpoint of the peers
    features: dict[str, Any]  # how many engines, and of engine 0's sockets
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
        "draining": sessions.draining,
        "endpoints": {"control": facts.control},
        "features": facts.features,
        "sessions": [_session(session, now) for session in sessions],
        "counters": dict(sorted(counters.items())),
        "engine": engine,
    }


def fitting(status: dict[str, Any]) -> bytes:
    """The packet of Status; what makes it too long for one is left out, ledgers first."""
    shorter = (_without_ledgers, _without_engine, _without_sessions)
    packet = encode(Status(status))
    for shorten in shorter:
        if len(packet) <= MAX_FRAME:
            break
        status = shorten(status) | {"truncated": True}
        packet = encode(Status(status))
    return packet


def _without_ledgers(status: dict[str, Any]) -> dict[str, Any]:
    sessions = status["engine"].get("sessions", {})
    bare = {number: {**session, "ledger": []} for number, session in sessions.items()}
    return status | {"engine": status["engine"] | {"sessions": bare}}


def _without_engine(status: dict[str, Any]) -> dict[str, Any]:
    return status | {"engine": {"error": "too long for one packet"}}


def _without_sessions(status: dict[str, Any]) -> dict[str, Any]:
    return status | {"sessions": []}


def _session(session: Session, now: float) -> dict[str, Any]:
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
