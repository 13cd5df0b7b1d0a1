"""The configuration: one frozen dataclass per TOML table.

A setting is one row: its name, type, rule, default and, as a comment, its meaning. `config.file`
checks a file against the rules; `dlcpctl config explain` and docs/configuration.md are made from
rules and comments. A setting that engines take over unchanged is a row of `dlcpd.io.settings`.
"""

import inspect
from dataclasses import Field, dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from dlcpd.contract.limits import MAX_ARENA, MAX_ENGINES
from dlcpd.core.wire.header import MAX_PATHS
from dlcpd.core.wire.sizes import MAX_SEGMENT
from dlcpd.daemon.config import values
from dlcpd.daemon.config.values import AUTO
from dlcpd.io.config import EngineConfig
from dlcpd.io.setting_rules import flag, integer, one_of, real, string
from dlcpd.io.settings import TransportSettings, special

LEVELS: Final = ("debug", "info", "warning", "error")  # of log lines
LOG: Final = "DLCPD_LOG"  # environment: a level that goes before the file's
ANYONE: Final = "*"  # in allowed_users: the socket's mode and group decide
KEYS: Final = Path("/etc/dlcpd/keys")  # where `dlcpctl keys` keeps them, by these names
IDENTITY: Final = "identity.toml"
AUTHORISED: Final = "authorised"
_ENGINE: Final = EngineConfig()  # defaults of the settings that pass to engines


@dataclass(frozen=True, slots=True)
class LocalPath:
    """One local end of the data plane."""

    # IP address of this host; "auto" = that of the default route, which the daemon
    # follows while no session is open; loopback without one
    address: str = special(values.address, AUTO, type=str, high=45)
    # UDP port; 0 = any free one: the control process tells peers its number
    port: int = integer(0, 65535, 0)


@dataclass(frozen=True, slots=True)
class DaemonTable:
    """[daemon]: the control process, its users and its limits."""

    host: str = string(255, "")  # name in errors and reports; "" = the machine's host name
    # Unix socket for clients and dlcpctl; at most 107 bytes
    socket: str = string(107, "/run/dlcpd/dlcpd.sock")
    # IP address for peers' control processes; "auto" as in `paths`
    control_address: str = special(values.address, AUTO, type=str, high=45)
    # TCP port of control_address; 0 = any free one
    control_port: int = integer(0, 65535, 0)
    # group id or name of the socket file, which has mode 0660; "" = the daemon's group
    socket_group: int | str = special(values.group, "", type=object)
    # ids or names of users that may connect, besides root; [] = the members of socket_group if
    # that is set, else the daemon's user; "*" = all users that the socket file's mode admits
    allowed_users: tuple[int | str, ...] = special(values.users, (), type=tuple)
    max_sessions: int = integer(1, 1024, 64)  # local ranks at a time; 8 GPUs x 8 jobs
    # shared memory per session; only pages in use take memory
    max_arena_bytes: int = integer(1 << 16, MAX_ARENA, MAX_ARENA)
    # bytes that the engines may hold besides arenas: residuals, and data that wait for other ranks.
    # Half is reserved, in equal parts, for max_sessions sessions. "auto" = half of the lowest
    # memory limit of the daemon's control groups, or a quarter of the machine's memory
    max_memory_bytes: int | str = special(values.memory, AUTO, type=object)
    # the same for one session; "auto" = a quarter of max_memory_bytes, at least 64 MB
    max_session_memory_bytes: int | str = special(values.memory, AUTO, type=object)
    # seconds that operations in flight may take after SIGTERM
    drain_timeout: float = real(0.0, 3600.0, 10.0)
    # lowest level that is logged; "auto" = "info", or "warning" for a private daemon; DLCPD_LOG
    # overrides it
    log_level: str = one_of(AUTO, *LEVELS, default=AUTO)
    log_format: str = one_of("logfmt", "json", default="logfmt")  # format of log lines on stderr


@dataclass(frozen=True, slots=True)
class NetworkTable(TransportSettings):
    """[network]: the data plane."""

    # one {address, port} per rail
    paths: tuple[LocalPath, ...] = field(
        default=(LocalPath(),),
        metadata={"type": tuple, "rows": LocalPath, "each": "path", "high": MAX_PATHS},
    )
    # source ports per path; ECMP may hash each to another route. Two hosts with different values
    # use the smaller number of paths; default: bursts stay long where there is one route
    entropy: int = integer(1, MAX_PATHS, 1)
    # processes that send, receive and add; "auto" = one per 8 CPUs, at most 4. A session uses the
    # smallest number that a daemon of its ranks has
    engines: int | str = special(values.engines, 1, type=object)
    # engines per job: those with the fewest sessions. 0 = all: fastest, but the job ends with any
    # engine. 1: only the jobs of an engine end with it
    engines_per_job: int = integer(0, MAX_ENGINES, 0)
    # CPUs of each engine, like "2-5,8"; [] = all CPUs for all engines
    engine_cpus: tuple[str, ...] = special(values.engine_cpus, (), type=tuple)
    # largest payload of a datagram, bytes, a multiple of 64; "auto" = as large as each path carries
    segment_size: int | str = special(values.segment_size, AUTO, type=object)
    # "on": changed or forged datagrams are discarded; equal on all hosts of a job
    checksum: str = one_of("on", "off", default="on")
    # bit/s that this host sends, an equal part for each engine; 0 = no limit
    rate_limit_bps: float = real(0.0, 1e13, _ENGINE.rate_limit_bps)

    @property
    def largest_segment(self) -> int:
        """Payload bytes that no datagram of this host exceeds."""
        return self.segment_size if isinstance(self.segment_size, int) else MAX_SEGMENT


@dataclass(frozen=True, slots=True)
class SecurityTable:
    """[security]: which hosts may be peers (docs/security.md). "auto" = the file or folder that
    `dlcpctl keys` made in /etc/dlcpd/keys; "" if there is none, and for private daemons.
    """

    # file of this host's key pair; "" = a new pair at each start
    identity: str = string(4096, AUTO)
    # folder with the public keys of the hosts that may be peers; "" = each host that a job names
    authorised: str = string(4096, AUTO)
    # jobs on several hosts, with neither authorised keys nor a job secret: "warn" logs a warning,
    # "refuse" does not start the job
    unproved: str = one_of("warn", "refuse", default="warn")


@dataclass(frozen=True, slots=True)
class ChecksTable:
    """[checks]: tests of results during a training."""

    # ranks compare the digest of every Nth chunk; 1 = all chunks, 0 = none; equal on all hosts of a
    # job
    digest_every: int = integer(0, 1 << 20, _ENGINE.digest_every)


@dataclass(frozen=True, slots=True)
class LedgerTable:
    """[ledger]: a record of waived segments on disk (docs/ledger.md)."""

    # absolute path; each engine makes a folder in it per session; "" = no ledger
    directory: str = special(values.directory, "", type=str, high=1024)
    # also record the contribution of each rank, so that results can be computed again
    inputs: bool = flag(_ENGINE.ledger_inputs)
    # largest ledger of one session and engine, bytes
    max_bytes: int = integer(1 << 20, 1 << 50, _ENGINE.ledger_bytes)


@dataclass(frozen=True, slots=True)
class MetricsTable:
    """[metrics]: a port for Prometheus (docs/metrics.md). Needs `dlcpd[metrics]`."""

    # address:port, like "127.0.0.1:9464" or "[::1]:9464"; port 0 = any free port; "" = no port.
    # Every client that reaches the port can read names of jobs and hosts (docs/security.md)
    listen: str = special(values.listen, "", type=str)
    # absolute path of a file with TLS and users of the port, in the form of Prometheus'
    # exporter-toolkit; a reload reads it again; needs `dlcpd[web]`; "" = HTTP for everybody
    web_config: str = special(values.directory, "", type=str, high=1024)

    @property
    def address(self) -> tuple[str, int]:
        """`listen` in its two parts; it is given."""
        return values.address_of(self.listen)


@dataclass(frozen=True, slots=True)
class InjectTable:
    """[inject]: faults made on purpose, for tests and demonstrations."""

    # fraction of arriving datagrams to discard; 1 = all, like a firewall
    loss: float = real(0.0, 1.0, _ENGINE.inject_loss)
    # fraction of arriving datagrams in which to flip a bit
    corrupt: float = real(0.0, 1.0, _ENGINE.inject_corrupt)
    seed: int = integer(0, 1 << 32, _ENGINE.inject_seed)  # the same seed loses the same datagrams
    # addresses of fault-injecting relays, one per path: peers get them instead of those of `paths`,
    # with the same ports, and the first one for control_address too
    relays: tuple[str, ...] = special(values.relays, (), type=tuple)


@dataclass(frozen=True, slots=True)
class PlannerTable:
    """[planner]: schedules by the rates of hosts and uplinks (docs/planner.md)."""

    # absolute path of a topology file, which names this host; peers are told its rate and rack;
    # "" = rates are not known, and all hosts count as equal
    topology: str = special(values.directory, "", type=str, high=1024)
    # measure the links of a job before its clients are let in: some seconds, once an hour for the
    # same hosts; set it on all hosts of a job
    probe: bool = flag(False)
    # measure the links of running jobs by their traffic, and adopt plans that gain 10 %; set it on
    # all hosts of a job
    replan: bool = flag(False)


@dataclass(frozen=True, slots=True)
class Config:
    """The whole file."""

    daemon: DaemonTable = DaemonTable()
    network: NetworkTable = NetworkTable()
    security: SecurityTable = SecurityTable()
    checks: ChecksTable = ChecksTable()
    inject: InjectTable = InjectTable()
    ledger: LedgerTable = LedgerTable()
    metrics: MetricsTable = MetricsTable()
    planner: PlannerTable = PlannerTable()


def rows_of(kind: Any) -> "list[Field[Any]]":
    """The settings of a table, those that it shares with engines last."""
    own = inspect.get_annotations(kind)
    return sorted(fields(kind), key=lambda row: row.name not in own)
