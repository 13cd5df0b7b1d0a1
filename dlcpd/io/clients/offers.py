"""Offered networks: what an engine promises, and the operations that wait until rank 0 has settled
an offer (`dlcpd.requests.networks` has the rules)."""

from collections.abc import Callable, Mapping

from dlcpd.core.endpoint import Endpoint
from dlcpd.core.session.stream_ids import EVERYBODY
from dlcpd.core.timers import Timer
from dlcpd.io.clients.client import Client
from dlcpd.io.commands import MAX_BEGUN, Begun, OfferNetwork, SettleNetwork
from dlcpd.io.control_events import NetworkPromised
from dlcpd.io.control_link import ControlLink
from dlcpd.schedules.network import job_network


class NetworkOffers:
    """Offers to the `clients`, by session. `resume` begins the held operation of a client, or
    fails it where its deadline is over."""

    def __init__(
        self,
        endpoint: Endpoint,
        control: ControlLink,
        clients: Mapping[int, Client],
        resume: Callable[[Client, float], None],
    ) -> None:
        self._endpoint, self._control = endpoint, control
        self._clients, self._resume = clients, resume

    def obey(self, command: OfferNetwork | SettleNetwork, now: float) -> None:
        """Answer an offer with the limits up to which its session begins operations; let the
        session go on once the offer is settled. A session that is over is no error."""
        client = self._clients.get(command.session)
        if client is None:
            return
        if isinstance(command, OfferNetwork):
            self._control.emit(_promised(client, command))
            return
        networks = client.networks
        if not command.rest:
            networks.cancel(command.version)
        elif not networks.adopt(command.version, dict(command.firsts), command.rest):
            self._endpoint.counters["bad_network"] += 1
        self._endpoint.timers.cancel((self, Timer.HELD, command.session))
        self._resume(client, now)

    def hold(self, client: Client) -> None:
        """An operation of a client waits until an offer is settled, or until its deadline."""
        if client.held is not None:
            key = (self, Timer.HELD, client.session.number)
            self._endpoint.timers.set(key, client.held.until)

    def handle_timer(self, timer: Timer, subject: int, now: float) -> None:
        """The deadline of a held operation is over."""
        client = self._clients.get(subject)
        if client is not None:
            self._resume(client, now)


def _promised(client: Client, command: OfferNetwork) -> NetworkPromised:
    streams = client.session.streams.values()
    begun = {s.wire: s.begun for s in streams if s.peer == EVERYBODY and s.begun}
    if len(begun) > MAX_BEGUN:
        why = f"{len(begun)} groups have operations, and {MAX_BEGUN} at most can change plans"
        return NetworkPromised(command.session, command.version, [], why)
    network = job_network(command.network, command.version, client.networks.costs)
    assert network is not None  # noqa: S101  # control checked it
    limits = client.networks.promise(network, begun)
    if limits is None:
        why = "operations of too many earlier plans have not begun"
        return NetworkPromised(command.session, command.version, [], why)
    rows = [Begun(*row) for row in limits.items()]
    return NetworkPromised(command.session, command.version, rows)
