"""Settings of one engine, which the control process derives from the daemon's TOML."""

import json
from dataclasses import asdict, dataclass
from typing import Final, Self

from dlcpd.collectives.holdings import NO_LIMIT
from dlcpd.core.wire.sizes import MAX_SEGMENT
from dlcpd.io.settings import TransportSettings
from dlcpd.requests.rules import Rules

COUNT_CALLS: Final = "DLCPD_COUNT_CALLS"  # environment: the engine counts its function calls


@dataclass(frozen=True, slots=True)
class EngineConfig(TransportSettings):
    """`dlcpd.daemon.config.tables` explains the settings that have the same name there. `paths`:
    rows of (local address, UDP port).
    """

    host: str = "localhost"
    engine: int = 0  # number of this engine on its host
    cpus: tuple[int, ...] = ()  # CPUs that the engine may run on; (): all
    paths: tuple[tuple[str, int], ...] = (("127.0.0.1", 0),)
    segment_size: int = MAX_SEGMENT
    rate_limit_bps: float = 0.0
    digest_every: int = 16
    memory: int = NO_LIMIT  # bytes that the engine may hold for all sessions, besides arenas
    session_memory: int = NO_LIMIT  # bytes that it may hold for one session
    sessions: int = 64  # sessions among which half of `memory` is reserved in equal parts
    ledger: str = ""  # folder with one ledger per session; "": no ledger
    ledger_bytes: int = 1 << 30  # largest ledger; the inputs of one operation may exceed it
    ledger_inputs: bool = False  # True: also record the contribution of each rank
    inject_loss: float = 0.0  # fraction of arriving datagrams to discard, for tests
    inject_corrupt: float = 0.0  # fraction of arriving datagrams in which to flip a bit, for tests
    inject_seed: int = 0
    relays: tuple[str, ...] = ()

    @property
    def rules(self) -> Rules:
        """The settings by which requests are carried out."""
        return Rules(
            self.chunk_bytes,
            self.digest_every,
            self.layer_priority,
            self.drop_precedence,
            self.bounded_loss,
        )

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Self:
        values = json.loads(text)
        values["cpus"], values["relays"] = tuple(values["cpus"]), tuple(values["relays"])
        values["paths"] = tuple((address, port) for address, port in values["paths"])
        return cls(**values)
