"""What of a configuration that is read again takes effect at once, and what waits for a start."""

from dataclasses import dataclass, fields, replace
from typing import Final

from dlcpd.daemon.config import Config

# Keys of [daemon]. All others are facts by now: sockets, memory, what peers and engines were told.
LIVE: Final = ("allowed_users", "drain_timeout", "log_format", "log_level")


@dataclass(frozen=True, slots=True)
class Reloaded:
    """`config`: the one in force from now on. `changed`, `waiting`: keys as "table.key"."""

    config: Config
    changed: tuple[str, ...]
    waiting: tuple[str, ...]


def reloaded(old: Config, new: Config) -> Reloaded:
    """`old` with what may change of `new` while a daemon runs. Both are resolved."""
    values = {key: getattr(new.daemon, key) for key in LIVE}
    config = replace(old, daemon=replace(old.daemon, **values))
    return Reloaded(config, _differences(old, config), _differences(config, new))


def _differences(one: Config, other: Config) -> tuple[str, ...]:
    return tuple(
        f"{table.name}.{key.name}"
        for table in fields(Config)
        for key in fields(getattr(one, table.name))
        if getattr(getattr(one, table.name), key.name)
        != getattr(getattr(other, table.name), key.name)
    )
