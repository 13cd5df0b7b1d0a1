"""Admission: whether a Join is accepted, and by which engines its session is carried."""

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

from dlcpd.contract.errors import DaemonUnavailable, NotPermitted, TooMany
from dlcpd.contract.messages import Join
from dlcpd.daemon import log
from dlcpd.daemon.condition import Condition
from dlcpd.daemon.config.effective import agreed
from dlcpd.daemon.config.tables import Config
from dlcpd.daemon.peers.authorised import Authorised
from dlcpd.daemon.peers.membership import Link
from dlcpd.daemon.sessions.proof import HOW_TO_PROVE, UNPROVED, Proof, check_keys, proof_of, refusal
from dlcpd.daemon.sessions.session import JoinedClient
from dlcpd.daemon.sessions.table import SessionTable


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """Settings that hold for all sessions of this daemon."""

    host: str
    engines_per_job: int  # 0: all
    agreed: dict[str, int]  # settings that hellos compare, without world_size
    max_sessions: int
    max_arena_bytes: int
    refuse_unproved: bool  # jobs whose peers only the job's store names

    @classmethod
    def of(cls, config: Config) -> Self:
        """`config`: resolved."""
        return cls(
            host=config.daemon.host,
            engines_per_job=config.network.engines_per_job,
            agreed=agreed(config),
            max_sessions=config.daemon.max_sessions,
            max_arena_bytes=config.daemon.max_arena_bytes,
            refuse_unproved=config.security.unproved == "refuse",
        )


class EngineChoice(Protocol):
    """The engines, as far as admission asks about them."""

    def __len__(self) -> int: ...

    @property
    def busy(self) -> bool:
        """Whether an engine is behind with its commands."""

    def choose(self, count: int, load: Counter[int]) -> tuple[int, ...]:
        """The engines for a new job; none: no engine is up."""

    def conditions(self, engines: Sequence[int]) -> str:
        """The states of `engines`, in words."""


class Admission:
    """Applies the limits, permissions and proofs of this host to each Join."""

    def __init__(
        self,
        settings: SessionSettings,
        table: SessionTable,
        engines: EngineChoice,
        authorised: Authorised,
        endpoint: str,
        *,
        condition: Condition,
    ) -> None:
        """`endpoint`: the address of this daemon's control process; it may change."""
        self._settings, self._table, self._engines = settings, table, engines
        self._authorised, self.endpoint = authorised, endpoint
        self._condition = condition

    def check(self, request: Join, client: JoinedClient) -> None:
        """Raises: DaemonUnavailable, NotPermitted, TooMany."""
        self._check_room(request)
        self._check_heir(request, client)

    def _check_room(self, request: Join) -> None:
        """Raises: DaemonUnavailable, NotPermitted, TooMany."""
        settings = self._settings
        if self._condition.draining:
            raise DaemonUnavailable(f"dlcpd on {settings.host} is stopping; join again later")
        cordoned = self._condition.cordoned
        if cordoned and request.job not in {session.name[0] for session in self._table}:
            raise DaemonUnavailable(
                f"dlcpd on {settings.host} takes no new jobs: {cordoned}; `dlcpctl uncordon` there "
                f"lets them in"
            )
        if self._table.named(request.job, request.rank):
            raise NotPermitted(
                f"rank {request.rank} of job {request.job!r} has a session on {settings.host} "
                f"already: give each job its own name, or end the process that holds it"
            )
        if self._engines.busy:
            raise TooMany(f"an engine of dlcpd on {settings.host} is behind; join again later")
        if len(self._table) >= settings.max_sessions:
            raise TooMany(
                f"dlcpd on {settings.host} serves {len(self._table)} sessions, the most that "
                f"[daemon] max_sessions allows"
            )
        if request.arena_bytes > settings.max_arena_bytes:
            raise TooMany(
                f"an arena of {request.arena_bytes} B is more than the "
                f"{settings.max_arena_bytes} B that [daemon] max_arena_bytes on {settings.host} "
                f"allows"
            )

    def prove(self, request: Join, links: Collection[Link]) -> Proof:
        """The proof that the peers behind `links` belong to the job. Raises: NotAuthorised."""
        authorised, host = self._authorised, self._settings.host
        check_keys(links, authorised, host)
        proof = proof_of(links, request.proof, authorised, self.endpoint)
        if proof is Proof.NONE:
            if self._settings.refuse_unproved:
                raise refusal(request, host)
            if request.job not in {session.name[0] for session in self._table}:  # once per job
                log.warning("peers_unproved", job=request.job, text=f"{UNPROVED}: {HOW_TO_PROVE}")
        return proof

    def _check_heir(self, request: Join, client: JoinedClient) -> None:
        """Residuals are gradients: no user gets those of another. Raises: NotPermitted."""
        former = self._table.numbered(request.inherits)
        if former is not None and former.client.uid != client.uid:
            raise NotPermitted(f"session {request.inherits} belongs to another user")

    def engines_for(self, request: Join) -> tuple[int, ...]:
        """Engines for a new session: those of the session whose residuals it takes over, since the
        engines keep them; else those of the job's other local sessions; else those with fewest
        sessions.

        Raises: DaemonUnavailable.
        """
        former = self._table.numbered(request.inherits)
        if former:
            return former.engines
        for session in self._table:
            if session.name[0] == request.job:
                return session.engines
        load = Counter(engine for session in self._table for engine in session.engines)
        chosen = self._engines.choose(self._settings.engines_per_job, load)
        if not chosen:
            raise self.without_engines(range(len(self._engines)))
        return chosen

    def without_engines(self, engines: Sequence[int]) -> DaemonUnavailable:
        """The error of a join for which `engines` are not up."""
        return DaemonUnavailable(
            f"dlcpd on {self._settings.host}: {self._engines.conditions(engines)}; join again later"
        )
