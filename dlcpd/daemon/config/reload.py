"""Reload: the settings that take effect at once, and those that wait for a restart."""

from dataclasses import dataclass, fields, replace
from typing import Final

from dlcpd.daemon.config.tables import Config

# Keys of [daemon]; all of [planner] too. All others are in use: sockets, memory, values that peers
# and engines have.
LIVE: Final = ("allowed_users", "drain_timeout", "log_format", "log_level")


@dataclass(frozen=True, slots=True)
class Reloaded:
    """`config`: in force from now on. `changed`, `waiting` (for a restart): as "table.key"."""

    config: Config
    changed: tuple[str, ...]
    waiting: tuple[str, ...]


def reloaded(old: Config, new: Config) -> Reloaded:
    """`old` with the settings of `new` that may change at run time. Both are resolved."""
    values = {key: getattr(new.daemon, key) for key in LIVE}
    config = replace(old, daemon=replace(old.daemon, **values), planner=new.planner)
    return Reloaded(config, _differences(old, config), _differences(config, new))


def _differences(one: Config, other: Config) -> tuple[str, ...]:
    return tuple(
        f"{table.name}.{key.name}"
        for table in fields(Config)
        for key in fields(getattr(one, table.name))
        if getattr(getattr(one, table.name), key.name)
        != getattr(getattr(other, table.name), key.name)
    )
