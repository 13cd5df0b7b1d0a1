"""A daemon without sessions gets other addresses: peers and new clients use them from now on."""

from dataclasses import dataclass

from dlcpd.contract.messages import VERSION, Welcome
from dlcpd.daemon import log
from dlcpd.daemon.clients.connection import Reception
from dlcpd.daemon.clients.server import Server
from dlcpd.daemon.config.effective import engine_configs
from dlcpd.daemon.config.tables import Config
from dlcpd.daemon.engines import Engines
from dlcpd.daemon.peers.peers import Peers, is_loopback
from dlcpd.daemon.peers.trust import Trust
from dlcpd.daemon.sessions.proof import HOW_TO_PROVE, UNPROVED
from dlcpd.daemon.sessions.sessions import Sessions


def welcome(host: str, peers: Peers) -> Welcome:
    """The answer to a client's Hello, with the address of this daemon."""
    return Welcome(VERSION, host, peers.endpoint, peers.public_key)


def warn_of_any_key(trust: Trust, endpoint: str) -> None:
    """Warn if other hosts reach `endpoint`, and any key is accepted."""
    if not (trust.authorised.folder or is_loopback(endpoint)):
        log.warning("any_key", text=f"where a job has no secret, {UNPROVED}: {HOW_TO_PROVE}")


@dataclass(frozen=True, slots=True)
class Moving:
    """The parts that know the daemon's addresses."""

    peers: Peers
    engines: Engines
    sessions: Sessions
    server: Server
    reception: Reception
    trust: Trust

    @property
    def in_use(self) -> bool:
        """Whether a session, or a client that will join one, uses the addresses."""
        return bool(len(self.sessions.table)) or self.server.greeted

    def listen(self, config: Config) -> None:
        """Listen for peers where `config`, resolved, says. Raises: AddressUnavailable; then
        nothing has changed."""
        self.peers.listen_at(config.daemon.control_address, config.daemon.control_port)
        self.reception.welcome = welcome(config.daemon.host, self.peers)
        self.sessions.admission.endpoint = self.peers.endpoint
        log.info("moved", control=self.peers.endpoint)
        warn_of_any_key(self.trust, self.peers.endpoint)

    async def send_from(self, config: Config) -> None:
        """Replace the engines by others with the addresses of `config`."""
        await self.engines.replace(engine_configs(config))
