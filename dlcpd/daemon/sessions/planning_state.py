"""State of the planning of a session, its log lines and its messages."""

import asyncio
from dataclasses import dataclass, field

from dlcpd.daemon import log
from dlcpd.daemon.peers.membership import Link
from dlcpd.daemon.peers.peer_messages import NetworkRow, PlanAsk
from dlcpd.daemon.sessions.adoption import Follower, Hosts, Leader, StepAsk
from dlcpd.daemon.sessions.session import LocalSession
from dlcpd.schedules.network import HostCapacity


@dataclass(slots=True)
class Planning:
    """The planning of one open session. `told`: by host, the capacity that it told last."""

    follower: Follower
    told: dict[str, HostCapacity | None]
    leader: Leader | None = None  # of rank 0 alone
    serial: int = 0  # of the last news of this host
    confirmed: int = 0  # news that rank 0 has
    proposed: Hosts = ()  # by rank 0, or the network that it has
    heard: dict[int, int] = field(default_factory=dict)  # by rank: its last news


def set_timer(session: LocalSession, name: str, timer: asyncio.Handle) -> None:
    """Set a timer of a session in the place of an earlier one."""
    if (old := session.timers.get(name)) is not None:
        old.cancel()
    session.timers[name] = timer


def log_plan(session: LocalSession) -> None:
    """Log the plan that a session has now."""
    job = session.title
    log.info("plan", session=session.number, job=job, version=session.version, why=session.plan)


def no_plan(session: LocalSession, why: str) -> None:
    """Log why what the hosts told is no network."""
    log.warning("no_plan", session=session.number, job=session.title, why=why)


def ask_to(session: LocalSession, link: Link, ask: StepAsk, rows: list[NetworkRow]) -> PlanAsk:
    """The message of a step for a peer."""
    names = session.membership.names_to(link)
    return PlanAsk(*names, ask.version, ask.step, rows, ask.digest, list(ask.firsts), ask.rest)
