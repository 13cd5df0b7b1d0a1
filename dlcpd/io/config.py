"""What one engine is told at its start. Control derives it from the daemon's TOML."""

import json
from dataclasses import asdict, dataclass
from typing import Final, Self

from dlcpd.collectives.holdings import NO_LIMIT
from dlcpd.core.wire.sizes import MAX_SEGMENT
from dlcpd.requests.rules import Rules

COUNT_CALLS: Final = "DLCPD_COUNT_CALLS"  # environment: an engine that finds it counts its calls


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """One line per setting: unit, and why the default."""

    host: str = "localhost"  # name of this host in errors and reports
    engine: int = 0  # number of this engine on its host
    cpus: tuple[int, ...] = ()  # that it may run on; (): all
    paths: tuple[tuple[str, int], ...] = (("127.0.0.1", 0),)  # (local address, UDP port); 0 = any
    segment_size: int = MAX_SEGMENT  # largest payload of a datagram that is tried on any path
    chunk_bytes: int = 4 << 20  # each costs Python; a bitmap lists 4.5 MiB of BASE segments
    receive_buffer: int = 32 << 20  # bytes asked for per socket; the kernel may grant less
    window: int = 8 << 20  # bytes one peer may have in flight: 100 Gb/s times 600 us of round trip
    data_path: str = "auto"  # "compiled" or "numpy"; "auto": C where it was built
    data_encryption: str = "none"  # or "aes-256-gcm": by numpy, at many times the cost of "none"
    offload: bool = True  # False: no GSO/GRO, one datagram per message (also the fallback)
    rate_limit_bps: float = 0.0  # bit/s for the whole engine; 0 = only congestion control limits
    congestion_control: bool = True  # False: only receive buffers and the rate limit hold it back
    layer_priority: bool = True  # False: all gradients in the last class, first come first served
    drop_precedence: str = (
        "both"  # how small segments are marked: "dscp", "ecn", "both", "none", "shuffled"
    )
    bounded_loss: bool = True  # False: this host waives nothing and lets no peer waive anything
    alarm_loss: float = 0.005  # fraction a path may lose before it is called gray (core.health)
    peer_timeout: float = 30.0  # seconds of silence that lose a peer: a paused host comes back
    suspect_after: float = 1.0  # seconds of silence after which a peer is named in log and status
    digest_every: int = 16  # 1 of so many chunks enters the replica digest; 1 = all, 0 = none
    memory: int = NO_LIMIT  # bytes that it may hold for all sessions beside their arenas
    session_memory: int = NO_LIMIT  # bytes for one of them
    sessions: int = 64  # that share it; each is assured of its part of a half
    ledger: str = ""  # folder in which losses are kept, one ledger per session; "" = none are
    ledger_bytes: int = 1 << 30  # of one ledger, and one operation's inputs more
    ledger_inputs: bool = False  # True: also what each rank contributes, to compute results again
    inject_loss: float = 0.0  # fraction of arriving datagrams thrown away, for tests and demos
    inject_corrupt: float = 0.0  # fraction of which a bit is turned over, likewise
    inject_seed: int = 0
    relays: tuple[str, ...] = ()  # addresses that peers are told instead of those of `paths`

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
