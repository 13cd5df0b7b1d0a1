"""When a job is probed: as its ranks join, where that is wanted, and on an operator's request."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from dlcpd.contract.errors import BadOperation, DlcpError
from dlcpd.contract.job_name import means
from dlcpd.daemon import log
from dlcpd.daemon.engines import Engines
from dlcpd.daemon.peers.membership import Link
from dlcpd.daemon.peers.peers import Peers
from dlcpd.daemon.sessions.adoption import Hosts
from dlcpd.daemon.sessions.prober import ProbeLeader, ProbeResult, first_ranks
from dlcpd.daemon.sessions.session import LocalSession
from dlcpd.daemon.sessions.table import SessionTable
from dlcpd.planning.measured import corrected
from dlcpd.schedules.derive import effect
from dlcpd.schedules.network import HostCapacity, job_network

KEPT: Final = 3600.0  # seconds that the result for the same hosts is used again
MOST_KEPT: Final = 64  # results: a host serves few jobs

Told = Mapping[str, HostCapacity | None]  # by host
Hold = Callable[[], None]


class JobProbes:
    """`told` has what the hosts of a job told; `propose` has rank 0 offer a network. False: it
    offers another one."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        table: SessionTable,
        *,
        peers: Peers,
        engines: Engines,
        told: Callable[[LocalSession], Told],
        propose: Callable[[LocalSession, Hosts], bool],
    ) -> None:
        self.wanted = False  # at join
        self.prober = ProbeLeader(loop, table, peers=peers, engines=engines)
        self._loop, self._table, self._told, self._propose = loop, table, told, propose
        self._kept: dict[tuple[tuple[str, str], ...], tuple[float, ProbeResult]] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}  # by session

    def joined(self, session: LocalSession, go: Hold) -> None:
        """All ranks serve the session. `go` lets its client in: at once, or after a probe."""
        wanted = self.wanted and len(first_ranks(session)) > 1
        self.prober.begin(session, held=wanted)
        if not wanted:
            go()
        elif session.membership.rank:
            self.prober.parts.hold(session, go)
        else:
            self._tasks[session.number] = self._loop.create_task(self._at_join(session, go))

    def ends(self, session: LocalSession) -> None:
        """The session is over; one that is not known is no error."""
        if (task := self._tasks.pop(session.number, None)) is not None:
            task.cancel()
        self.prober.ends(session)

    def gone(self, session: LocalSession, link: Link) -> None:
        """A peer has left the job."""
        self.prober.gone(session, link)

    async def run(self, job: str, *, adopt: bool) -> dict[str, Any]:
        """Probe a job of which this daemon has rank 0, "": the only one. Returns a report, whose
        keys are in docs/ipc.md. Raises: BadOperation, TooMany, ProbeFailed."""
        session = self._named(job)
        links = await self._measure(session)
        hosts, said = self._compared(session, links)
        network = job_network(hosts)
        offered = adopt and session in self._table and self._propose(session, hosts)
        return {
            "job": session.title,
            "hosts": {host: measured._asdict() for host, measured in links.hosts},
            "racks": links.racks,
            "beside": links.beside,
            "differs": said,
            "rounds": links.rounds,
            "seconds": links.seconds,
            "plan": "" if network is None else effect(network),
            "offered": offered,
        }

    def _named(self, job: str) -> LocalSession:
        here = [s for s in self._table if s.state == "open"]
        here = [s for s in here if not job or means(job, s.membership.job)]
        jobs = sorted({session.title for session in here})
        if len(jobs) > 1:
            raise BadOperation(f"this daemon serves several jobs, {', '.join(jobs)}: name one")
        if not here:
            named = f"no open session of job {job!r}" if job else "no open session"
            raise BadOperation(f"this daemon has {named}")
        return min(here, key=lambda session: session.membership.rank)

    async def _at_join(self, session: LocalSession, go: Hold) -> None:
        kept = self._kept.get(_fingerprint(session))
        links: ProbeResult | None = None
        if kept is not None and self._loop.time() - kept[0] < KEPT:
            links = kept[1]
            log.info("probe_kept", session=session.number, age=round(self._loop.time() - kept[0]))
        else:
            try:
                links = await self._measure(session)
            except DlcpError as exc:
                log.warning("probe_failed", session=session.number, why=exc)
        self._tasks.pop(session.number, None)
        self.prober.release(session)
        if session in self._table:
            go()
        if links is not None and session in self._table:
            hosts, _ = self._compared(session, links)
            if hosts != session.network:
                self._propose(session, hosts)

    async def _measure(self, session: LocalSession) -> ProbeResult:
        links = await self.prober.measure(session)
        for job in links.beside:
            text = f"traffic of job {job!r} ran beside the probe: rates may be too low"
            log.warning("probe_beside", session=session.number, text=text)
        log.info(
            "probed",
            session=session.number,
            job=session.title,
            seconds=round(links.seconds, 1),
            racks=links.racks,
        )
        if not links.beside:
            self._kept[_fingerprint(session)] = self._loop.time(), links
            while len(self._kept) > MOST_KEPT:
                del self._kept[next(iter(self._kept))]
        return links

    def _compared(self, session: LocalSession, links: ProbeResult) -> tuple[Hosts, str]:
        """The network to offer: the rates that all hosts told, unless measured ones contradict
        them; else the measured ones."""
        told = [(host, each) for host, each in self._told(session).items() if each is not None]
        if [host for host, _ in told] != [host for host, _ in links.hosts]:
            return links.hosts, ""
        hosts, said = corrected(told, dict(links.hosts))
        if said:
            log.warning("rates_differ", session=session.number, text=said)
        return hosts, said


def _fingerprint(session: LocalSession) -> tuple[tuple[str, str], ...]:
    """Hosts and addresses of a job."""
    membership = session.membership
    found = []
    for host, rank in first_ranks(session).items():
        link = membership.links.get(rank)
        ends = membership.endpoints[0] if link is None else link.endpoints
        found.append((host, " ".join(sorted({end.host for end in ends}))))
    return tuple(found)
