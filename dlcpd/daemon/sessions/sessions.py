"""The sessions of this host: the parts that serve them."""

import asyncio
from dataclasses import dataclass
from typing import Self

from dlcpd.daemon.condition import Condition
from dlcpd.daemon.config.tables import PlannerTable
from dlcpd.daemon.engines import Engines
from dlcpd.daemon.host_costs import HostCosts
from dlcpd.daemon.peers.peers import Peers
from dlcpd.daemon.sessions.admission import Admission, SessionSettings
from dlcpd.daemon.sessions.ends import Ends
from dlcpd.daemon.sessions.joining import Joining
from dlcpd.daemon.sessions.planner import Planner
from dlcpd.daemon.sessions.table import SessionTable


@dataclass(frozen=True, slots=True)
class Sessions:
    """The table of sessions, and the parts that admit, open and end them."""

    table: SessionTable
    admission: Admission
    joining: Joining
    ends: Ends
    planner: Planner
    costs: HostCosts

    @classmethod
    def of(
        cls,
        loop: asyncio.AbstractEventLoop,
        settings: SessionSettings,
        condition: Condition,
        *,
        peers: Peers,
        engines: Engines,
        costs: HostCosts,
    ) -> Self:
        """No sessions yet. They are reached through `peers` and carried by `engines`."""
        table = SessionTable()
        ends = Ends(loop, table, peers=peers, engines=engines)
        admission = Admission(
            settings, table, engines, peers.authorised, peers.endpoint, condition=condition
        )
        planner = Planner(loop, table, peers=peers, engines=engines)
        ends.on_leaving = planner.ends
        joining = Joining(
            loop,
            settings,
            table,
            admission=admission,
            ends=ends,
            peers=peers,
            engines=engines,
            planner=planner,
            costs=costs,
        )
        return cls(table, admission, joining, ends, planner, costs)

    def configure(self, table: PlannerTable) -> None:
        """Settings of plans, from now on."""
        self.planner.configure(table)
        if table.topology or table.probe:
            self.costs.want()

    def stop(self) -> None:
        """The daemon ends."""
        self.ends.stopped = True
        self.costs.close()
