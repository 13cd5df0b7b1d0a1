"""Reads a configuration file, and checks it before anything starts."""

from collections.abc import Iterable
from dataclasses import fields
from pathlib import Path
from typing import Any, Final

from dlcpd.contract.errors import BadConfig
from dlcpd.contract.toml_text import hint, loaded, named, shown
from dlcpd.core.wire.header import MAX_PATHS, MAX_SEGMENTS
from dlcpd.core.wire.sizes import BASE
from dlcpd.daemon.config.tables import Config, InjectTable, NetworkTable
from dlcpd.daemon.config.values import AUTO
from dlcpd.io.datapath.choices import COMPILED, NUMPY
from dlcpd.io.setting_rules import problem
from dlcpd.io.udp.encryption import NONE
from dlcpd.ipc.text_file import read

MOST_BYTES: Final = 1 << 20  # of the file: all settings have 10 kB


def load(file: Path) -> Config:
    """Read and check a configuration file.

    Raises: BadConfig naming file, table and key.
    """
    return parse(read(file, str(file), "configuration file", MOST_BYTES), source=str(file))


def parse(text: str, source: str) -> Config:
    """Check the text of a configuration file; `source` names it in errors.

    Raises: BadConfig naming source, table and key.
    """
    try:
        return _config(loaded(text))
    except BadConfig as exc:
        raise BadConfig(f"{source}: {exc}") from exc


def _config(document: dict[str, Any]) -> Config:
    _refuse_unknown(document, [f.name for f in fields(Config)], "table [{}]")
    tables = {f.name: _table(type(f.default), document, f.name) for f in fields(Config)}
    config = Config(**tables)
    _check_entropy(config.network)
    _check_chunk(config.network)
    _check_engines(config.network)
    _check_encryption(config.network)
    _check_relays(config.network, config.inject)
    return config


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


def _refuse_unknown(given: Iterable[str], known: list[str], what: str) -> None:
    for key in given:
        if key not in known:
            raise BadConfig(f"unknown {what.format(named(key))}; {hint(key, known)}")


def _table(kind: Any, document: dict[str, Any], name: str) -> Any:
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise BadConfig(f"[{name}] must be a table, and not {shown(table)}")
    return kind(**_checked(kind, table, f"[{name}]"))


def _checked(kind: Any, table: dict[str, Any], where: str) -> dict[str, Any]:
    """Keyword arguments for `kind`, every value checked."""
    rules = {f.name: f.metadata for f in fields(kind)}
    _refuse_unknown(table, list(rules), f"key {{}} in {where}")
    return {key: _value(given, rules[key], f"{where} {key}") for key, given in table.items()}


def _value(given: Any, rule: Any, where: str) -> Any:
    """The value in use. Raises: BadConfig."""
    if "rows" in rule:
        return _rows(given, rule, where)
    if "parse" in rule:
        return rule["parse"](given, where)
    if wrong := problem(given, rule):
        raise BadConfig(f"{where}: {wrong}")
    return float(given) if rule["type"] is float else given


def _rows(value: Any, rule: Any, where: str) -> tuple[Any, ...]:
    """Tables of the dataclass `rule["rows"]`, one at least. Raises: BadConfig."""
    kind, most = rule["rows"], rule["high"]
    names = ", ".join(f.name for f in fields(kind))
    if not isinstance(value, list) or not 1 <= len(value) <= most:
        raise BadConfig(f"{where}: must be a list of 1 to {most} tables {{{names}}}")
    if not all(isinstance(row, dict) for row in value):
        raise BadConfig(f"{where}: each {rule['each']} must be a table {{{names}}}")
    return tuple(kind(**_checked(kind, row, f"{where}[{n}]")) for n, row in enumerate(value))
