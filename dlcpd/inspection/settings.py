"""The settings that a running daemon uses, compared with those of a file."""

from dataclasses import asdict
from typing import Any, Final, NamedTuple

from msgspec import json

from dlcpd.daemon.config.effective import resolved
from dlcpd.daemon.config.tables import Config
from dlcpd.daemon.config.values import AUTO

# "auto" of these depends on the control group and the CPUs of the process that resolves it.
OF_THE_PROCESS: Final = frozenset(
    {"daemon.max_memory_bytes", "daemon.max_session_memory_bytes", "network.engines"}
)


class Difference(NamedTuple):
    """A setting that the daemon does not use as the file says."""

    key: str  # table.key
    running: Any
    file: Any


def not_in_force(running: dict[str, Any], written: Config) -> list[Difference]:
    """Settings of `written`, a file that is not resolved, that a daemon does not use. `running`:
    `config` of its report."""
    values = json.decode(json.encode(asdict(resolved(written))))
    found = [
        Difference(f"{table}.{key}", running.get(table, {}).get(key), value)
        for table, keys in values.items()
        for key, value in keys.items()
        if running.get(table, {}).get(key) != value
    ]
    return [one for one in found if not (one.key in OF_THE_PROCESS and _auto(written, one.key))]


def _auto(written: Config, key: str) -> bool:
    table, _, name = key.partition(".")
    return bool(getattr(getattr(written, table), name) == AUTO)
