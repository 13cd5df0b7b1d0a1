"""The answer to StatusRequest. Keys: docs/ipc.md, "Status"."""

import os
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from msgspec.structs import asdict

from dlcpd.daemon.condition import Condition
from dlcpd.daemon.host_costs import named
from dlcpd.daemon.peers.membership import Link
from dlcpd.daemon.sessions.session import LocalSession
from dlcpd.daemon.sessions.sessions import Sessions
from dlcpd.daemon.versions import versions

STEP: Final = 1.0  # seconds: less is the time between two readings, or a clock that is slewed


class WallClockOffset:
    """Seconds since the epoch at time 0 of the loop, for times at which something started.

    The number is the same in all reports, as `changes` of Prometheus needs, until the wall clock is
    stepped: a host may boot with a wrong one, and set it after the daemon has started.
    """

    def __init__(self, wall: Callable[[], float] = time.time) -> None:
        self._wall = wall
        self._known = float("-inf")

    def now(self) -> float:
        """The loop's clock is that of `time.monotonic`, but its time is that of its wake-up."""
        found = self._wall() - time.monotonic()
        if abs(found - self._known) > STEP:
            self._known = found
        return self._known


@dataclass(frozen=True, slots=True)
class Facts:
    """Values that do not change while the daemon runs."""

    host: str
    features: dict[str, Any]  # number of engines, and features of engine 0's sockets
    started_at: float  # loop time
    epoch: WallClockOffset = field(default_factory=WallClockOffset)


def report(
    facts: Facts,
    sessions: Sessions,
    condition: Condition,
    counters: Counter[str],
    *,
    engine: dict[str, Any],
    now: float,
) -> dict[str, Any]:
    """The daemon's state as a JSON-like map."""
    epoch = facts.epoch.now()
    return {
        "host": facts.host,
        **versions(),
        "pid": os.getpid(),
        "uptime": now - facts.started_at,
        "started": epoch + facts.started_at,
        "draining": condition.draining,
        "cordoned": condition.cordoned,
        "health": asdict(condition.health()),
        "features": facts.features | named(sessions.costs.present),
        "sessions": [
            _session(session, now, epoch)
            for session in sorted(sessions.table, key=lambda s: (s.title, s.membership.rank))
        ],
        "counters": dict(sorted(counters.items())),
        "engine": engine,
    }


def _session(session: LocalSession, now: float, epoch: float) -> dict[str, Any]:
    membership = session.membership
    return {
        "session": session.number,
        "job": membership.job,
        "title": session.title,
        "rank": membership.rank,
        "world_size": membership.agreed["world_size"],
        "state": session.state,
        "broken": session.broken,
        "broken_code": session.broken_code,
        "arena_bytes": session.arena_bytes,
        "proof": session.proof.value,
        "plan": session.plan,
        "plan_version": session.version,
        "least_bps": session.least_bps,
        "age": now - session.joined_at if session.joined_at else 0.0,
        "started": epoch + session.joined_at if session.joined_at else None,
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
