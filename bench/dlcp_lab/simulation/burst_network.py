"""Simulated hosts on a leaf-spine fabric; one event moves several datagrams."""

import math
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field

from dlcp_lab.simulation.calendar import Calendar
from dlcp_lab.simulation.fabric import LeafSpine, SimFabric
from dlcp_lab.simulation.hosts import SimHosts
from dlcp_lab.simulation.station import FREE, HostCost, Station
from dlcp_lab.simulation.train import Train, of_batch, of_control
from dlcpd.contract.errors import DlcpError
from dlcpd.core.session.events import OperationDone, OperationFailed

MOST = 64  # datagrams of a train


class NotCompleted(DlcpError):
    """A simulated operation has failed, or takes too long."""

    code = "not_completed"


@dataclass(repr=False)
class BurstNetwork(SimHosts):
    """Same seed, same run. The endpoints are those of `SimHosts`: the core runs as it is.

    A host sends trains of as many datagrams as the slowest wire of their way carries in
    `train_time`, at least one and at most `most`.
    """

    plan: LeafSpine
    _: KW_ONLY
    train_time: float = 25e-6  # seconds
    most: int = MOST
    cost: HostCost = FREE
    calendar: Calendar = field(init=False)
    fabric: SimFabric = field(init=False)
    stations: list[Station] = field(init=False)
    done_at: dict[int, dict[int, float]] = field(default_factory=dict)  # by ticket and rank
    failures: list[tuple[int, str]] = field(default_factory=list)  # rank, error
    carried: int = 0  # datagrams sent
    on_events: Callable[[int], None] | None = None  # gets each rank that has new events

    def __post_init__(self) -> None:
        super().__post_init__()
        self.calendar = Calendar(self.now)
        self.fabric = SimFabric(self.plan, self.calendar, self._arrived)
        made: dict[int, Station] = {}
        self._of_rank: list[Station] = []
        for endpoint in self.endpoints:
            if id(endpoint) not in made:
                made[id(endpoint)] = Station(len(made), endpoint, self.cost)
            self._of_rank.append(made[id(endpoint)])
        self.stations = list(made.values())
        if len(self.stations) != self.plan.hosts:
            raise ValueError(f"{len(self.stations)} hosts, {self.plan.hosts} in the plan")
        self._first_rank = {s.number: r for r, s in reversed(list(enumerate(self._of_rank)))}
        self._seen = [0] * self.world_size  # events of each rank looked at so far

    # --- time -------------------------------------------------------------------------

    def run(
        self,
        until: float = 30.0,
        max_steps: int = 100_000_000,
        enough: Callable[[], bool] = lambda: False,
    ) -> None:
        """Until nothing is due before `until` seconds from now, or it is `enough`.

        Raises: AssertionError after `max_steps` events.
        """
        stop = self.now + until
        for station in self.stations:
            self._wake(station)
        for _ in range(max_steps):
            if enough() or self.calendar.next_at > stop:
                return
            self.calendar.step()
            self.now = self.calendar.now
        raise AssertionError(f"livelock: {max_steps} events, now={self.now}")

    def complete(self, ticket: int, until: float = 1000.0, *, ranks: int = 0) -> float:
        """Run until all ranks have the result of an operation; returns when the last got it.

        `ranks`: number of ranks in the operation; 0: all. Raises: NotCompleted if it failed on a
        rank, or takes more than `until` seconds.
        """
        done, failed = self.done_at.setdefault(ticket, {}), self.failures
        ranks = ranks or self.world_size
        self.run(until, enough=lambda: len(done) == ranks or bool(failed))
        if failed:
            raise NotCompleted(f"rank {failed[0][0]}: {failed[0][1]}")
        if len(done) < ranks:
            raise NotCompleted(f"operation {ticket} ended on {len(done)} ranks in {until:g} s")
        return max(done.values())

    def wake(self, rank: int) -> None:
        """The engine of a rank has something to do."""
        self._wake_at(self._of_rank[rank], self.calendar.now)

    # --- hosts ------------------------------------------------------------------------

    def _arrived(self, train: Train) -> None:
        station = self.stations[train.target]
        if station.take(train):
            self._wake_at(station, self.calendar.now + self.cost.gather)

    def _wake_at(self, station: Station, at: float) -> None:
        """Wake a host then, or when it has finished earlier work, unless it wakes before."""
        at = max(at, station.busy_until, self.calendar.now)
        if at < station.wakes_at:
            station.wakes_at = at
            self.calendar.add(at, self._wake_if_due, station)

    def _wake_if_due(self, station: Station) -> None:
        if station.wakes_at <= self.calendar.now:
            self._wake(station)

    def _wake(self, station: Station) -> None:
        now = self.now = self.calendar.now
        if station.busy_until > now:
            self._wake_at(station, station.busy_until)
            return
        station.wakes_at = math.inf
        station.wake_ups += 1
        steps = station.open_steps if self.cost.transfer else 0
        received = station.receive(now)
        due = station.endpoint.next_timeout()
        if due is not None and due <= now:
            station.endpoint.handle_timeout(now)
        station.busy_until = now + self.cost.wake_up + received * self.cost.datagram
        if self.cost.transfer:
            station.busy_until += (steps - station.open_steps) * self.cost.transfer
        self._send(station, now)
        for session in station.endpoint.sessions.values():
            self._note(session.rank, now)
        due = station.endpoint.next_timeout()
        if due is not None:
            self._wake_at(station, due)

    def _send(self, station: Station, now: float) -> None:
        """All that the endpoint has to send; each train leaves when the CPU has made it."""
        endpoint = station.endpoint
        endpoint.exchange(now)
        while endpoint.more_here:
            endpoint.exchange(now)
        controls, batches = endpoint.departures(now)
        for control in controls:
            target = self._target(station, control.peer)
            self._depart(station, of_control(control, station.number, target))
        for batch in batches:
            target = self._target(station, batch.peer)
            wire = batch.segment_size * 8 / self.fabric.slowest(station.number, target)
            most = min(max(int(self.train_time / wire), 1), self.most)
            for train in of_batch(batch, station.number, target, most):
                self._depart(station, train)

    def _depart(self, station: Station, train: Train) -> None:
        self.carried += train.count
        if not (self.cost.datagram or self.cost.wake_up or self.cost.transfer):
            self.fabric.send(train)
            return
        station.busy_until += train.count * self.cost.datagram
        self.calendar.add(station.busy_until, self.fabric.send, train)

    def _target(self, station: Station, flow: int) -> int:
        """The host that a flow leads to."""
        return self._of_rank[self.where[self._first_rank[station.number], flow]].number

    def _note(self, rank: int, now: float) -> None:
        new = self.sessions[rank].outcomes.take()
        self.events[rank] += new
        for event in new:
            if isinstance(event, OperationDone):
                self.done_at.setdefault(event.ticket, {})[rank] = now
            elif isinstance(event, OperationFailed):
                self.failures.append((rank, event.text))
        if new and self.on_events is not None:
            self.on_events(rank)
