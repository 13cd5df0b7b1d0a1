"""The configuration in force: "auto" resolved on this machine, and the engines' configurations."""

import json
import os
import socket
from contextlib import suppress
from dataclasses import asdict, dataclass, fields, replace
from ipaddress import ip_address
from typing import Any, Final, Self

from dlcpd.daemon.config.tables import (
    AUTHORISED,
    IDENTITY,
    KEYS,
    Config,
    DaemonTable,
    NetworkTable,
    rows_of,
)
from dlcpd.daemon.config.values import AUTO, cpu_numbers
from dlcpd.io.config import EngineConfig
from dlcpd.io.settings import TransportSettings
from dlcpd.io.udp.encryption import CHOICES
from dlcpd.ipc.memory_limit import memory_limit

CPUS_PER_ENGINE: Final = 8  # a trainer and its data loaders need the others
MOST_BY_ITSELF: Final = 4  # engines: about 40 Gb/s
OF_A_GROUP: Final = 2  # sessions may hold 1/2 of a control group's memory: the rest
# is for programs, socket buffers and page tables
OF_A_MACHINE: Final = 4  # sessions may hold 1/4 of a machine's memory: most is for trainers
OF_ALL: Final = 4  # one session may hold 1/4 of that
LAST_OF_FOUR: Final = 0xFFFF  # code point that \u can write
LEAST_SESSION: Final = 64_000_000  # bytes
# Documentation addresses, never real hosts: RFC 5737, RFC 3849.
_NOWHERE: Final = ((socket.AF_INET, "192.0.2.1"), (socket.AF_INET6, "2001:db8:ffff::1"))
_DISCARD: Final = 9  # RFC 863: a port


def default_address() -> str:
    """The local address of the default route, of IPv6 where IPv4 has none, or loopback.

    Connecting a UDP socket asks the routing table and sends nothing.
    """
    for family, nowhere in _NOWHERE:
        with suppress(OSError), socket.socket(family, socket.SOCK_DGRAM) as probe:
            probe.connect((nowhere, _DISCARD))
            address: str = probe.getsockname()[0]
            if not ip_address(address).is_link_local:  # such a one needs its interface, too
                return address
    return "127.0.0.1"


@dataclass(frozen=True, slots=True)
class Automatic:
    """Which addresses a configuration leaves to the daemon."""

    control: bool = False
    paths: frozenset[int] = frozenset()  # numbers of those with such an address

    @classmethod
    def of(cls, written: Config) -> Self:
        """`written`: not resolved."""
        paths = written.network.paths
        return cls(
            written.daemon.control_address == AUTO,
            frozenset(number for number, path in enumerate(paths) if path.address == AUTO),
        )

    def address(self, config: Config) -> str:
        """The address of them all in the resolved `config`; empty: there are none."""
        if self.control:
            return config.daemon.control_address
        return next((config.network.paths[number].address for number in self.paths), "")

    def at(self, address: str, config: Config) -> Config:
        """The resolved `config` with another address for them."""
        daemon, network = config.daemon, config.network
        paths = tuple(
            replace(path, address=address) if number in self.paths else path
            for number, path in enumerate(network.paths)
        )
        control = address if self.control else daemon.control_address
        return replace(
            config,
            daemon=replace(daemon, control_address=control),
            network=replace(network, paths=paths),
        )


def resolved(config: Config, *, embedded: bool = False) -> Config:
    """`config` with every "auto" and every empty host replaced by this machine's values.

    `embedded`: for a private daemon, which runs as a user and does not use this host's keys.
    """
    address = default_address()
    daemon, network = config.daemon, config.network
    control = address if daemon.control_address == AUTO else daemon.control_address
    paths = tuple(replace(p, address=address) if p.address == AUTO else p for p in network.paths)
    engines = network.engines if isinstance(network.engines, int) else _engines(network)
    return replace(
        config,
        daemon=_daemon(daemon, control, embedded=embedded),
        network=replace(network, paths=paths, engines=engines),
        security=replace(
            config.security,
            identity=_keys(config.security.identity, IDENTITY, embedded=embedded),
            authorised=_keys(config.security.authorised, AUTHORISED, embedded=embedded),
        ),
    )


def _daemon(given: DaemonTable, control_address: str, *, embedded: bool) -> DaemonTable:
    total, session = given.max_memory_bytes, given.max_session_memory_bytes
    if not isinstance(total, int):
        limit = memory_limit()
        total = limit.size // (OF_A_GROUP if limit.group else OF_A_MACHINE)
    if not isinstance(session, int):
        session = max(total // OF_ALL, LEAST_SESSION)
    return replace(
        given,
        host=given.host or socket.gethostname(),
        control_address=control_address,
        max_memory_bytes=total,
        max_session_memory_bytes=min(session, total),
        log_level=_log_level(given.log_level, embedded=embedded),
    )


def _log_level(given: str, *, embedded: bool) -> str:
    if given != AUTO:
        return given
    return "warning" if embedded else "info"  # a private daemon's stderr is the trainer's


def _keys(given: str, name: str, *, embedded: bool) -> str:
    """Path of a file or directory of keys; "" = none."""
    if given != AUTO:
        return given
    usual = KEYS / name
    return str(usual) if not embedded and usual.exists() else ""


def _engines(network: NetworkTable) -> int:
    """Number of engines for "auto": 1 to MOST_BY_ITSELF, one for CPUS_PER_ENGINE CPUs that this
    process may use; or one per entry of engine_cpus."""
    if network.engine_cpus:
        return len(network.engine_cpus)
    return min(max(len(os.sched_getaffinity(0)) // CPUS_PER_ENGINE, 1), MOST_BY_ITSELF)


def engine_configs(config: Config) -> list[EngineConfig]:
    """The configuration of each engine, from the resolved `config`."""
    assert isinstance(config.network.engines, int)  # noqa: S101  # resolved
    return [
        _engine_config(config, number, config.network.engines)
        for number in range(config.network.engines)
    ]


def _engine_config(config: Config, engine: int, engines: int) -> EngineConfig:
    network, daemon = config.network, config.daemon
    assert isinstance(daemon.max_memory_bytes, int)  # noqa: S101  # resolved
    assert isinstance(daemon.max_session_memory_bytes, int)  # noqa: S101  # likewise
    shared = {row.name: getattr(network, row.name) for row in fields(TransportSettings)}
    return EngineConfig(
        **shared,
        host=daemon.host,
        engine=engine,
        cpus=cpu_numbers(network.engine_cpus[engine]) if network.engine_cpus else (),
        paths=tuple(
            (path.address, path.port + engine * network.entropy + number if path.port else 0)
            for path in network.paths
            for number in range(network.entropy)
        ),
        segment_size=network.largest_segment,
        rate_limit_bps=network.rate_limit_bps / engines,
        digest_every=config.checks.digest_every,
        memory=daemon.max_memory_bytes // engines,
        session_memory=daemon.max_session_memory_bytes // engines,
        sessions=daemon.max_sessions,
        ledger=config.ledger.directory,
        ledger_bytes=config.ledger.max_bytes,
        ledger_inputs=config.ledger.inputs,
        inject_loss=config.inject.loss,
        inject_corrupt=config.inject.corrupt,
        inject_seed=config.inject.seed,
        relays=tuple(address for address in config.inject.relays for _ in range(network.entropy)),
    )


def agreed(config: Config) -> dict[str, int]:
    """Settings that must be equal on all hosts of a job; hellos compare them."""
    network = config.network
    return {
        "chunk_bytes": network.chunk_bytes,
        "digest_every": config.checks.digest_every,
        "checksum": int(network.checksum == "on"),
        "data_encryption": CHOICES.index(network.data_encryption),
    }


def to_toml(config: Config) -> str:
    """`config` as the text of a configuration file."""
    return tables_text(
        {
            name: {row.name: table[row.name] for row in rows_of(type(getattr(config, name)))}
            for name, table in asdict(config).items()
        }
    )


def tables_text(tables: dict[str, dict[str, Any]]) -> str:
    """Tables of settings as the text of a configuration file."""
    texts = [
        "\n".join([f"[{name}]", *(f"{key} = {value_text(value)}" for key, value in keys.items())])
        for name, keys in tables.items()
    ]
    return "\n\n".join(texts) + "\n"


def value_text(value: Any) -> str:
    """`value` in TOML."""
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {value_text(v)}" for key, v in value.items()) + " }"
    if isinstance(value, (tuple, list)):
        return "[" + ", ".join(map(value_text, value)) + "]"
    if isinstance(value, str):
        return f'"{"".join(map(_character, value))}"'
    return repr(value) if isinstance(value, float) else json.dumps(value)


def _character(one: str) -> str:
    """A character of a basic string, in ASCII. JSON writes those beyond U+FFFF as two halves, which
    TOML does not have."""
    if " " <= one <= "~":
        return f"\\{one}" if one in '"\\' else one
    return f"\\u{ord(one):04x}" if ord(one) <= LAST_OF_FOUR else f"\\U{ord(one):08x}"
