"""The configuration file: one frozen dataclass per TOML table, checked before anything starts."""

import difflib
import ipaddress
import tomllib
from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any, Final

from dlcpd.contract.errors import BadConfig
from dlcpd.contract.messages import MAX_ARENA, MAX_ENGINES
from dlcpd.contract.schema import flag, integer, one_of, problem, real, string
from dlcpd.core.wire.header import MAX_PATHS, MAX_SEGMENTS
from dlcpd.core.wire.sizes import BASE, MAX_SEGMENT, UNIT
from dlcpd.io.config import EngineConfig
from dlcpd.io.datapath.choices import COMPILED, NUMPY
from dlcpd.io.udp.encryption import CHOICES, NONE

# an address: that of the default route, or loopback without one; a size: the largest that passes
AUTO: Final = "auto"
LEVELS: Final = ("debug", "info", "warning", "error")  # of log lines
LOG: Final = "DLCPD_LOG"  # environment: a level that goes before the file's
ANYONE: Final = "*"  # in allowed_users: the socket's mode and group decide
KEYS: Final = Path("/etc/dlcpd/keys")  # where `dlcpctl keys` keeps them, by these names
IDENTITY: Final = "identity.toml"
AUTHORISED: Final = "authorised"
MAX_CPUS: Final = 8192  # as many as Linux is built for
LEAST_MEMORY: Final = 1 << 20  # bytes of max_memory_bytes
MAX_USERS: Final = 256  # entries of allowed_users; more is a group's job
_ENGINE: Final = EngineConfig()  # one place for defaults: here they are only repeated


@dataclass(frozen=True, slots=True)
class LocalPath:
    """One local end of the data plane."""

    # IP address of this host; "auto" = that of the default route, or loopback without one
    address: str = string(45, AUTO)
    # UDP port; 0 = any free one: the control process tells peers its number
    port: int = integer(0, 65535, 0)


@dataclass(frozen=True, slots=True)
class DaemonTable:
    """[daemon]: the control process, its users and its limits."""

    host: str = string(255, "")  # name in errors and reports; "" = the machine's host name
    # file of the Unix socket for clients and dlcpctl; the kernel allows 107 bytes
    socket: str = string(107, "/run/dlcpd/dlcpd.sock")
    # IP address for the control processes of peers; "auto" as in `paths`
    control_address: str = string(45, AUTO)
    # TCP port of control_address; 0 = any free one: clients publish it in the job's store
    control_port: int = integer(0, 65535, 0)
    # group id or name of the socket file, which has mode 0660; "" = the daemon's group
    socket_group: int | str = field(default="", metadata={"type": object})
    # ids or names of users that may connect, besides root; [] = the members of socket_group if
    # that is set, else the daemon's user; "*" = all users that the socket file's mode admits
    allowed_users: tuple[int | str, ...] = field(default=(), metadata={"type": tuple})
    max_sessions: int = integer(1, 1024, 64)  # local ranks at a time; 8 GPUs x 8 jobs
    # bytes of shared memory per session; only pages in use take memory
    max_arena_bytes: int = integer(1 << 16, MAX_ARENA, MAX_ARENA)
    # bytes that the engines may hold for all sessions, besides arenas: residuals, and data that
    # wait for other ranks. Half of it is reserved, in equal parts, for max_sessions sessions.
    # "auto" = half of the lowest memory limit of the daemon's control groups, or without a limit
    # a quarter of the machine's memory
    max_memory_bytes: int | str = field(default=AUTO, metadata={"type": object})
    # the same for one session; "auto" = a quarter of max_memory_bytes, at least 64 MB
    max_session_memory_bytes: int | str = field(default=AUTO, metadata={"type": object})
    # seconds that operations in flight may take after SIGTERM
    drain_timeout: float = real(0.0, 3600.0, 10.0)
    # lowest level that is logged; "auto" = "info", or "warning" for a private daemon; DLCPD_LOG in
    # the environment overrides it
    log_level: str = one_of(AUTO, *LEVELS, default=AUTO)
    log_format: str = one_of("logfmt", "json", default="logfmt")  # format of log lines on stderr


@dataclass(frozen=True, slots=True)
class NetworkTable:
    """[network]: the data plane."""

    # EngineConfig gives the reasons of defaults.

    # one {address, port} per rail
    paths: tuple[LocalPath, ...] = field(default=(LocalPath(),), metadata={"type": tuple})
    # source ports per path; ECMP may hash each to another route. 1 keeps bursts long where there is
    # one route. Two hosts with different values use the smaller number of paths
    entropy: int = integer(1, MAX_PATHS, 1)
    # engines (processes that send, receive and add); "auto" = one per 8 CPUs, at most 4. A session
    # uses the smallest number that a daemon of its ranks has
    engines: int | str = field(default=1, metadata={"type": object})
    # engines per job: those with the fewest sessions when it starts. 0 = all: fastest, but the job
    # ends with any engine. 1: only the jobs of an engine end with it: for hosts with several jobs
    engines_per_job: int = integer(0, MAX_ENGINES, 0)
    # CPUs of each engine, one text per engine, like "2-5,8"; [] = all CPUs for all engines
    engine_cpus: tuple[str, ...] = field(default=(), metadata={"type": tuple})
    # largest payload of a datagram, bytes, a multiple of 64; "auto" = as large as each path carries
    segment_size: int | str = field(default=AUTO, metadata={"type": object})
    # bytes of a chunk (the unit of deadline and bound), a multiple of 64; equal on all hosts of a
    # job
    chunk_bytes: int = integer(UNIT, MAX_SEGMENTS * BASE, _ENGINE.chunk_bytes)
    # bytes of receive buffer requested per socket; net.core.rmem_max limits it
    receive_buffer: int = integer(1 << 16, 1 << 30, _ENGINE.receive_buffer)
    window: int = integer(1 << 16, 1 << 30, _ENGINE.window)  # bytes in flight to one peer
    # implementation that sends, receives and stores data: "compiled" (C) or "numpy"; "auto" =
    # "compiled" if it was built
    data_path: str = one_of("auto", "compiled", "numpy", default=_ENGINE.data_path)
    # "aes-256-gcm" encrypts payloads, in numpy, at many times the CPU cost of "none"; needs
    # `dlcpd[encryption]`; equal on all hosts of a job
    data_encryption: str = one_of(*CHOICES, default=_ENGINE.data_encryption)
    # "on": changed or forged datagrams are discarded; equal on all hosts of a job
    checksum: str = one_of("on", "off", default="on")
    # GSO and GRO, if the kernel has them; false: one datagram per message
    offload: bool = flag(_ENGINE.offload)
    # bit/s that this host sends, an equal part for each engine; 0 = no limit but congestion control
    rate_limit_bps: float = real(0.0, 1e13, _ENGINE.rate_limit_bps)
    # false: only receive buffers and rate_limit_bps limit the sender, which does not yield to other
    # traffic: for dedicated networks and measurements
    congestion_control: bool = flag(_ENGINE.congestion_control)
    # front layers have higher traffic classes; false: all gradients use the last class, in order
    # of arrival
    layer_priority: bool = flag(_ENGINE.layer_priority)
    # IP header fields that show a datagram's drop precedence; "shuffled" = both, with random drop
    # precedences, to measure their effect
    drop_precedence: str = one_of(
        "both", "dscp", "ecn", "none", "shuffled", default=_ENGINE.drop_precedence
    )
    # false: this host waives nothing and lets no peer waive anything, whatever the policy
    bounded_loss: bool = flag(_ENGINE.bounded_loss)
    # fraction of lost datagrams above which a path is gray
    alarm_loss: float = real(0.0, 1.0, _ENGINE.alarm_loss)
    # seconds of silence after which log, status and metrics name a peer as suspected
    suspect_after: float = real(0.05, 3600.0, _ENGINE.suspect_after)
    # seconds of silence after which a peer is lost; a peer whose process ended is lost at once
    peer_timeout: float = real(0.05, 3600.0, _ENGINE.peer_timeout)

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
    directory: str = string(1024, "")
    # also record the contribution of each rank, so that results can be computed again
    inputs: bool = flag(_ENGINE.ledger_inputs)
    # largest ledger of one session and engine, bytes
    max_bytes: int = integer(1 << 20, 1 << 50, _ENGINE.ledger_bytes)


@dataclass(frozen=True, slots=True)
class MetricsTable:
    """[metrics]: a port for Prometheus (docs/metrics.md). Needs `dlcpd[metrics]`."""

    # address:port, like "127.0.0.1:9464" or "[::1]:9464"; port 0 = any free port; "" = no port.
    # Every client that reaches the port can read names of jobs and hosts (docs/security.md)
    listen: str = field(default="", metadata={"type": str})

    @property
    def address(self) -> tuple[str, int]:
        """`listen` in its two parts; it is given."""
        return address_of(self.listen)


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
    relays: tuple[str, ...] = field(default=(), metadata={"type": tuple})


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


def load(file: Path) -> Config:
    """Read and check a configuration file.

    Raises: BadConfig naming file, table and key.
    """
    try:
        text = file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as exc:
        raise BadConfig(f"{file}: cannot be read: {exc}") from exc
    return parse(text, source=str(file))


def parse(text: str, source: str) -> Config:
    """Check the text of a configuration file; `source` names it in errors.

    Raises: BadConfig naming source, table and key.
    """
    try:
        return _config(tomllib.loads(text))
    # TOMLDecodeError is a ValueError. So is what Python says of an integer too long to print; one
    # too large for a float is an OverflowError, tables within tables can be a RecursionError.
    except (BadConfig, ValueError, OverflowError, RecursionError) as exc:
        raise BadConfig(f"{source}: {exc}") from exc


def _config(document: dict[str, Any]) -> Config:
    _refuse_unknown(document, [f.name for f in fields(Config)], "table [{}]")
    network = NetworkTable(**_table(NetworkTable, document, "network"))
    inject = InjectTable(**_table(InjectTable, document, "inject"))
    _check_entropy(network)
    _check_chunk(network)
    _check_engines(network)
    _check_encryption(network)
    _check_relays(network, inject)
    return Config(
        daemon=DaemonTable(**_table(DaemonTable, document, "daemon")),
        network=network,
        security=SecurityTable(**_table(SecurityTable, document, "security")),
        checks=ChecksTable(**_table(ChecksTable, document, "checks")),
        inject=inject,
        ledger=LedgerTable(**_table(LedgerTable, document, "ledger")),
        metrics=MetricsTable(**_table(MetricsTable, document, "metrics")),
    )


def _check_entropy(network: NetworkTable) -> None:
    sockets = len(network.paths) * network.entropy
    if sockets > MAX_PATHS:
        raise BadConfig(
            f"[network] entropy: {network.entropy} source ports on each of {len(network.paths)} "
            f"paths make {sockets}, at most {MAX_PATHS}"
        )


def _check_chunk(network: NetworkTable) -> None:
    """A chunk's bitmap has a bit for each segment, however small a path makes them."""
    most = MAX_SEGMENTS * min(network.largest_segment, BASE)
    if network.chunk_bytes > most:
        raise BadConfig(
            f"[network] chunk_bytes: {network.chunk_bytes} is above {most}, which is "
            f"{MAX_SEGMENTS} segments of {min(network.largest_segment, BASE)} bytes"
        )


def _check_engines(network: NetworkTable) -> None:
    if network.engine_cpus and network.engines not in (AUTO, len(network.engine_cpus)):
        raise BadConfig(
            f"[network] engine_cpus: CPUs for {len(network.engine_cpus)} engines, and engines is "
            f"{network.engines}; give CPUs for each engine, or for none"
        )


def _check_encryption(network: NetworkTable) -> None:
    if network.data_encryption != NONE and network.data_path == COMPILED:
        raise BadConfig(
            f"[network] data_path: {COMPILED!r} cannot encrypt, and data_encryption is "
            f"{network.data_encryption!r}; remove data_path, or set it to {NUMPY!r}"
        )


def _check_relays(network: NetworkTable, inject: InjectTable) -> None:
    if inject.relays and len(inject.relays) != len(network.paths):
        raise BadConfig(
            f"[inject] relays: {len(inject.relays)} addresses for {len(network.paths)} paths; "
            "give an address for each path, or none"
        )


def cpu_numbers(text: str) -> tuple[int, ...]:
    """The CPUs in a list like "0-3,8", as the kernel writes them. Raises: ValueError."""
    numbers: set[int] = set()
    for part in text.split(","):
        first, _, last = part.partition("-")
        start, stop = int(first), int(last or first)
        if not 0 <= start <= stop < MAX_CPUS:
            raise ValueError(part)
        numbers.update(range(start, stop + 1))
    return tuple(sorted(numbers))


def _refuse_unknown(given: Iterable[str], known: list[str], what: str) -> None:
    for key in given:
        if key not in known:
            near = difflib.get_close_matches(key, known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(known)}"
            raise BadConfig(f"unknown {what.format(key)}; {hint}")


def _table(kind: Any, document: dict[str, Any], name: str) -> dict[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise BadConfig(f"[{name}] must be a table, not {type(table).__name__}")
    return _checked(kind, table, f"[{name}]")


def _checked(kind: Any, table: dict[str, Any], where: str) -> dict[str, Any]:
    """Keyword arguments for `kind`, every value checked."""
    rules = {f.name: f.metadata for f in fields(kind)}
    _refuse_unknown(table, list(rules), f"key {{}} in {where}")
    values: dict[str, Any] = {}
    for key, given in table.items():
        value = float(given) if rules[key]["type"] is float and type(given) is int else given
        special = _SPECIAL.get(key)
        if special:
            values[key] = special(value, f"{where} {key}")
        elif wrong := problem(value, rules[key]):
            raise BadConfig(f"{where} {key}: {wrong}")
        else:
            values[key] = value
    return values


def _address(value: Any, where: str) -> str:
    if value == AUTO:
        return AUTO
    try:
        address = ipaddress.ip_address(value if isinstance(value, str) else "")
    except ValueError:
        raise BadConfig(
            f'{where}: {value!r} is not an IP address; give an address, or "{AUTO}"'
        ) from None
    if "%" in str(address):
        raise BadConfig(
            f"{where}: {value} has a zone, which peers do not know: give the address without it"
        )
    if address.is_unspecified or address.is_multicast:
        raise BadConfig(f"{where}: {value} is not an address that peers can send to")
    return str(address)


def _relays(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_PATHS or AUTO in value:
        raise BadConfig(f"{where}: must be a list of at most {MAX_PATHS} addresses")
    return tuple(_address(row, f"{where}[{n}]") for n, row in enumerate(value))


def _segment_size(value: Any, where: str) -> int | str:
    if value == AUTO:
        return AUTO
    return _whole_units(value, where, UNIT, MAX_SEGMENT)


def _memory(value: Any, where: str) -> int | str:
    if value == AUTO:
        return AUTO
    if wrong := problem(value, {"type": int, "low": LEAST_MEMORY, "high": 1 << 50}):
        raise BadConfig(f'{where}: {wrong}, or "{AUTO}"')
    return int(value)


def _chunk_bytes(value: Any, where: str) -> int:
    return _whole_units(value, where, UNIT, MAX_SEGMENTS * BASE)


def _whole_units(value: Any, where: str, low: int, high: int) -> int:
    rule = {"type": int, "low": low, "high": high}
    if wrong := problem(value, rule) or (value % UNIT and f"{value} is not a multiple of {UNIT}"):
        raise BadConfig(f"{where}: {wrong}")
    return int(value)


def _users(value: Any, where: str) -> tuple[int | str, ...]:
    if not isinstance(value, list) or len(value) > MAX_USERS:
        raise BadConfig(f"{where}: must be a list of at most {MAX_USERS} user ids or names")
    for user in value:
        if type(user) not in (int, str) or user == "" or (type(user) is int and user < 0):
            raise BadConfig(f"{where}: {user!r} is neither a user id nor a name")
    return tuple(value)


def _group(value: Any, where: str) -> int | str:
    if type(value) is not str and not (type(value) is int and value >= 0):
        raise BadConfig(f"{where}: {value!r} is neither a group id nor a name")
    group: int | str = value
    return group


def _engines(value: Any, where: str) -> int | str:
    if value == AUTO:
        return AUTO
    if wrong := problem(value, {"type": int, "low": 1, "high": MAX_ENGINES}):
        raise BadConfig(f'{where}: {wrong}, or "{AUTO}"')
    return int(value)


def _engine_cpus(value: Any, where: str) -> tuple[str, ...]:
    if not isinstance(value, list) or len(value) > MAX_ENGINES:
        raise BadConfig(f"{where}: must be a list of at most {MAX_ENGINES} texts, one per engine")
    for text in value:
        try:
            cpu_numbers(text)
        except (AttributeError, ValueError):
            raise BadConfig(f'{where}: {text!r} names no CPUs; write them like "2-5,8"') from None
    return tuple(value)


def _directory(value: Any, where: str) -> str:
    if type(value) is not str or (value and not Path(value).is_absolute()):
        raise BadConfig(f"{where}: {value!r} is not an absolute path")
    return value


def address_of(listen: str) -> tuple[str, int]:
    """Host and port of an address that `listening` accepted."""
    host, _, port = listen.rpartition(":")
    return host.strip("[]"), int(port)


def _listen(value: Any, where: str) -> str:
    return "" if value == "" else listening(value, where)


def listening(value: Any, where: str) -> str:
    """`value`, an IP address and a port. Raises: BadConfig."""
    host, _, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    try:
        ipaddress.ip_address(host.strip("[]"))
        bracketed = host.startswith("[") == host.endswith("]") == (":" in host)
        if not bracketed or not port.isdecimal() or int(port) > 65535:
            raise ValueError(value)
    except ValueError:
        raise BadConfig(
            f'{where}: {value!r} is not an IP address and a port; write it like "127.0.0.1:9464"'
        ) from None
    return str(value)


def _paths(value: Any, where: str) -> tuple[LocalPath, ...]:
    if not isinstance(value, list) or not 1 <= len(value) <= MAX_PATHS:
        raise BadConfig(f"{where}: must be a list of 1 to {MAX_PATHS} tables {{address, port}}")
    if not all(isinstance(row, dict) for row in value):
        raise BadConfig(f"{where}: each path must be a table {{address, port}}")
    return tuple(
        LocalPath(**_checked(LocalPath, row, f"{where}[{n}]")) for n, row in enumerate(value)
    )


_SPECIAL: Final = {
    "address": _address,
    "control_address": _address,
    "segment_size": _segment_size,
    "engines": _engines,
    "max_memory_bytes": _memory,
    "max_session_memory_bytes": _memory,
    "engine_cpus": _engine_cpus,
    "chunk_bytes": _chunk_bytes,
    "allowed_users": _users,
    "socket_group": _group,
    "directory": _directory,
    "paths": _paths,
    "relays": _relays,
    "listen": _listen,
}
