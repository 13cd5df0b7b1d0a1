"""The configuration of `dlcpd server`, a TOML file with one table, [server]."""

from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final

from dlcp_client.ps.directory import MAX_SHARDS
from dlcp_client.server.core import DEFAULT_EVERY
from dlcpd.contract.errors import BadConfig
from dlcpd.contract.toml_text import hint, loaded, named, printable, shown
from dlcpd.ipc.text_file import read

MOST_BYTES: Final = 1 << 20  # of the file
MAX_EVERY: Final = 1 << 20  # versions
MAX_NAME: Final = 256  # characters
MOST_NAMED: Final = 4  # tables, in an error


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """One line per key. Relative folders are below the file's own."""

    name: str  # name of the server, which workers use
    shards: int  # shards of the whole server; parameters are divided among them by size
    store: str  # folder in which workers and the processes of the server find each other
    snapshots: str  # folder for durable state; a process that takes over a shard needs the same one
    serve: tuple[int, ...] = ()  # shards of this process; [] = all
    snapshot_every: int = DEFAULT_EVERY  # versions between snapshots
    fsync: bool = True  # false: acknowledged pushes survive the process, but not its machine
    socket: str = ""  # session socket of the host's daemon; "" = a private daemon
    daemon_config: str = ""  # configuration file of a private daemon

    @property
    def own(self) -> tuple[int, ...]:
        """The shards of this process."""
        return self.serve or tuple(range(self.shards))


def load(path: Path) -> ServerConfig:
    """The configuration in a file. Raises: BadConfig naming file and key."""
    text = read(path, str(path), "configuration file of dlcpd server", MOST_BYTES)
    return parse(text, str(path), path.parent)


def parse(text: str, source: str, folder: Path = Path()) -> ServerConfig:
    """The configuration in `text`. Raises: BadConfig naming `source` and key."""
    try:
        tables = loaded(text)
    except BadConfig as exc:
        raise BadConfig(f"{source}: {exc}") from exc
    if set(tables) != {"server"} or not isinstance(tables["server"], dict):
        found = ", ".join(map(named, list(tables)[:MOST_NAMED])) or "nothing"
        raise BadConfig(f"{source}: the file has one table, [server], and not {found}")
    values, known = tables["server"], {one.name for one in fields(ServerConfig)}
    if unknown := sorted(set(values) - known):
        raise BadConfig(
            f"{source}: [server] has no key {named(unknown[0])}; {hint(unknown[0], sorted(known))}"
        )
    for name in ("name", "shards", "store", "snapshots"):
        if name not in values:
            raise BadConfig(f"{source}: [server] {name} is missing: give {_WHAT[name]}")
    for name, value in values.items():
        if not _CHECKS[name](value):
            raise BadConfig(f"{source}: [server] {name} = {shown(value)}: {_WHAT[name]}")
    return _placed(values, source, folder)


def _placed(values: dict[str, Any], source: str, folder: Path) -> ServerConfig:
    """Check shards and resolve paths. Raises: BadConfig."""
    serve = tuple(values.get("serve", ()))
    if any(shard >= values["shards"] for shard in serve) or len(set(serve)) != len(serve):
        raise BadConfig(
            f"{source}: [server] serve = {shown(list(serve))} is not valid: give different numbers "
            f"of 0..{values['shards'] - 1}"
        )
    if values.get("socket") and values.get("daemon_config"):
        raise BadConfig(
            f"{source}: [server] daemon_config applies to a private dlcpd; unset socket"
        )
    paths = {
        name: str(folder / values[name])
        for name in ("store", "snapshots", "daemon_config")
        if values.get(name)
    }
    return ServerConfig(**{**values, **paths, "serve": serve})


def _text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_NAME and printable(value)


def _number(least: int, most: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and least <= value <= most


def _shards(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_number(0, MAX_SHARDS - 1), value))


_TEXT: Final = f"a text of 1..{MAX_NAME} characters"
_WHAT: Final = {
    "name": f"{_TEXT}, by which workers name the server",
    "shards": f"a number of 1..{MAX_SHARDS}: the shards of the server in all its processes",
    "store": "a folder that workers and all processes of the server see",
    "snapshots": "a folder for snapshots and logs",
    "serve": "a list of at least one number of a shard, from 0; left out: all shards",
    "snapshot_every": f"a number of versions, 1..{MAX_EVERY}",
    "fsync": "true or false",
    "socket": "the session socket of the host's dlcpd",
    "daemon_config": "the configuration file of a private dlcpd",
}
_CHECKS: Final[dict[str, Callable[[Any], bool]]] = {
    "name": _text,
    "shards": _number(1, MAX_SHARDS),
    "store": _text,
    "snapshots": _text,
    "serve": _shards,
    "snapshot_every": _number(1, MAX_EVERY),
    "fsync": lambda value: isinstance(value, bool),
    "socket": _text,
    "daemon_config": _text,
}
