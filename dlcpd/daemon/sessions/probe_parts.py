"""A rank's part in the probes of its job, which rank 0 leads (`prober`).

    rank 0            the first rank of each host
    BEGIN        ->   the routers on its paths
    ROUND        ->   its engine sends to one rank and receives from another; the rate that arrived
    END          ->   another job whose traffic ran beside it; a client that waits is let in

A repeated step is answered, and not done, once more.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dlcpd.core.paths.routes import SILENT
from dlcpd.daemon import log
from dlcpd.daemon.engines import Engines
from dlcpd.daemon.peers.membership import Link
from dlcpd.daemon.peers.peer_messages import (
    MAX_ROUTES,
    MAX_WHY,
    LinkProbeAnswer,
    LinkProbeAsk,
    ProbeStep,
    RouteRow,
)
from dlcpd.daemon.peers.peers import Peers
from dlcpd.daemon.sessions.session import LocalSession, address_of
from dlcpd.daemon.sessions.table import SessionTable
from dlcpd.io.commands import NO_PEER, PROBE_MESSAGES, FindRoutes, ProbeFlows
from dlcpd.io.control_events import FlowsProbed

DEADLINE: Final = 3.0  # seconds of a round's messages: 0.35 Mbit/s for the smallest
UNIT: Final = PROBE_MESSAGES * 64  # bytes; those of a round are a multiple
REPEAT: Final = 0.5  # seconds until a step is repeated
ROUTES: Final = 2.0  # seconds in which all routers are asked three times
MOST_HELD: Final = 20.0  # seconds that a client waits for rank 0; a probe takes 10 s at most
BESIDE: Final = 200  # datagrams of another job; fewer change no rate


@dataclass(slots=True)
class ProbePart:
    """That of one open session."""

    session: LocalSession
    go: Callable[[], None] | None = None  # lets the client in, which waits for the probe
    serial: int = 0  # of the last step
    answer: LinkProbeAnswer | None = None  # to it
    counted: dict[int, int] | None = None  # datagrams by session, at BEGIN
    looking: "asyncio.Task[None] | None" = None  # at reports


class ProbeParts:
    """Those of all sessions. `led` gets answers to a rank 0 of this daemon; False: too late."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        table: SessionTable,
        *,
        peers: Peers,
        engines: Engines,
        led: Callable[[LocalSession, int, LinkProbeAnswer], bool],
    ) -> None:
        self._loop, self._table, self._peers, self._engines = loop, table, peers, engines
        self._led = led
        self._parts: dict[int, ProbePart] = {}  # by session

    def begin(self, session: LocalSession) -> None:
        """All ranks serve the session."""
        self._parts[session.number] = ProbePart(session)

    def ends(self, session: LocalSession) -> None:
        """The session is over; one that is not known is no error."""
        part = self._parts.pop(session.number, None)
        if part is not None and part.looking is not None:
            part.looking.cancel()

    def hold(self, session: LocalSession, go: Callable[[], None]) -> None:
        """Call `go` once rank 0 has ended its probe, or does not answer."""
        part = self._parts[session.number]
        part.go = go
        self._wait(part, self._loop.time() + MOST_HELD)

    def leader_gone(self, session: LocalSession) -> None:
        """Rank 0 has left the job: nothing is to be waited for."""
        if (part := self._parts.get(session.number)) is not None:
            self._let_in(part)

    def _wait(self, part: ProbePart, until: float) -> None:
        session = part.session
        if part.go is None or session not in self._table:
            return
        if self._loop.time() >= until:
            log.warning("probe_failed", session=session.number, why="rank 0 does not end it")
            self._let_in(part)
            return
        self._send(part, self._answer(part, ProbeStep.WAIT))
        session.timers["probe"] = self._loop.call_later(REPEAT, self._wait, part, until)

    def _let_in(self, part: ProbePart) -> None:
        go, part.go = part.go, None
        if go is not None and part.session in self._table:
            go()

    # --- steps of rank 0 ----------------------------------------------------------------------

    def asked(self, session: LocalSession, ask: LinkProbeAsk) -> bool:
        """A step of rank 0. False: it does not concern this session, or not yet."""
        part = self._parts.get(session.number)
        known = {NO_PEER, *session.membership.links}
        if part is None or not {ask.target, ask.source} <= known:
            return False
        if ask.step is ProbeStep.END:
            self._let_in(part)
        if ask.serial == part.serial and part.answer is not None:
            self._send(part, part.answer)
        elif ask.serial > part.serial:
            part.serial, part.answer = ask.serial, None
            self._take(part, ask)
        return True

    def _take(self, part: ProbePart, ask: LinkProbeAsk) -> None:
        if ask.step is ProbeStep.ROUND:
            sizes = ask.target, whole(ask.out_bytes), ask.source, whole(ask.in_bytes)
            number = part.session.number
            command = ProbeFlows(number, ask.serial, *sizes, DEADLINE, ask.idle)
            self._engines.send(part.session.engines[0], command)
        elif part.looking is None or part.looking.done():
            part.looking = self._loop.create_task(self._look(part, ask.step))

    def probed(self, session: LocalSession, event: FlowsProbed) -> None:
        """An engine has ended its round."""
        part = self._parts.get(session.number)
        if part is not None and event.serial == part.serial:
            part.answer = self._answer(part, ProbeStep.ROUND, bps=event.bps, why=event.why)
            self._send(part, part.answer)

    async def _look(self, part: ProbePart, step: ProbeStep) -> None:
        """Answer BEGIN or END from reports of the engines."""
        sessions, until = await self._report(), self._loop.time() + ROUTES
        if step is ProbeStep.BEGIN:
            self._engines.send(part.session.engines[0], FindRoutes(part.session.number))
            while self._loop.time() < until and not _answered(sessions, part.session):
                await asyncio.sleep(REPEAT)
                sessions = await self._report()
        counted, before = _counted(sessions), part.counted
        if step is ProbeStep.BEGIN:
            part.counted = counted
            part.answer = self._answer(part, step, routes=_routes(sessions, part.session))
        else:
            part.counted = None
            beside = "" if before is None else self._beside(part.session, before, counted)
            part.answer = self._answer(part, step, beside=beside)
        self._send(part, part.answer)

    async def _report(self) -> Mapping[str, Any]:
        """Sessions by number, as the engines report them."""
        found: Mapping[str, Any] = (await self._engines.report(0)).get("sessions", {})
        return found

    def _beside(
        self, session: LocalSession, before: Mapping[int, int], after: Mapping[int, int]
    ) -> str:
        """The name of another job whose data this host carried meanwhile, or ""."""
        jobs = (
            other.title
            for other in self._table
            if other.membership.job != session.membership.job
            and after.get(other.number, 0) - before.get(other.number, 0) > BESIDE
        )
        return next(jobs, "")

    # --- answers ------------------------------------------------------------------------------

    def _answer(
        self,
        part: ProbePart,
        step: ProbeStep,
        *,
        bps: int = 0,
        routes: Iterable[RouteRow] = (),
        beside: str = "",
        why: str = "",
    ) -> LinkProbeAnswer:
        membership = part.session.membership
        link = membership.links.get(0)
        names = (membership.job, 0, 0, 1, 0) if link is None else membership.names_to(link)
        rows = list(routes)[:MAX_ROUTES]
        return LinkProbeAnswer(*names, max(part.serial, 1), step, bps, rows, beside, why[:MAX_WHY])

    def _send(self, part: ProbePart, answer: LinkProbeAnswer) -> None:
        link: Link | None = part.session.membership.links.get(0)
        if link is None:
            self._led(part.session, 0, answer)
        else:
            self._peers.send(address_of(link), answer)


def whole(size: int) -> int:
    """The bytes of a round that are at most `size`."""
    return size // UNIT * UNIT


def _counted(sessions: Mapping[str, Any]) -> dict[int, int]:
    """Data datagrams by session, of a report of the engines."""
    return {
        int(number): sum(
            path["sent"] + path["received"] for peer in row["peers"] for path in peer["paths"]
        )
        for number, row in sessions.items()
    }


def _routes(sessions: Mapping[str, Any], session: LocalSession) -> list[RouteRow]:
    """The routes of a session, of a report."""
    found = list[RouteRow]()
    for peer in sessions.get(str(session.number), {"peers": ()})["peers"]:
        routes = [path["hops"] for path in peer["paths"]]
        count = min(map(len, routes), default=0)
        firsts = {hops[0] for hops in routes if hops} - {SILENT}
        found += [RouteRow(peer["rank"], count, first) for first in sorted(firsts) or [""]]
    return found


def _answered(sessions: Mapping[str, Any], session: LocalSession) -> bool:
    return all(row.routers for row in _routes(sessions, session))
