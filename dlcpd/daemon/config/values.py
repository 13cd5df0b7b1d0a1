"""Settings that have a form of their own: a function each that checks the value, and returns it.

`where` names the setting in errors.
"""

import ipaddress
from pathlib import Path
from typing import Any, Final

from dlcpd.contract.errors import BadConfig
from dlcpd.contract.limits import MAX_ENGINES
from dlcpd.contract.toml_text import printable, shown
from dlcpd.core.wire.header import MAX_PATHS
from dlcpd.core.wire.sizes import MAX_SEGMENT, UNIT
from dlcpd.io.setting_rules import problem
from dlcpd.io.settings import whole_units

# an address: that of the default route, or loopback without one; a size: the largest that passes
AUTO: Final = "auto"
MAX_CPUS: Final = 8192  # as many as Linux is built for
LEAST_MEMORY: Final = 1 << 20  # bytes of max_memory_bytes
MAX_ID: Final = (1 << 32) - 2  # of a user or group; the kernel takes the next one for "none"
MAX_USERS: Final = 256  # entries of allowed_users; more is a group's job


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


def address(value: Any, where: str) -> str:
    """An IP address that peers can send to, or AUTO. Raises: BadConfig."""
    if value == AUTO:
        return AUTO
    try:
        found = ipaddress.ip_address(value if isinstance(value, str) else "")
    except ValueError:
        raise BadConfig(
            f'{where}: {shown(value)} is not an IP address; give an address, or "{AUTO}"'
        ) from None
    if "%" in str(found):
        raise BadConfig(
            f"{where}: {value} has a zone, which peers do not know: give the address without it"
        )
    if found.is_unspecified or found.is_multicast:
        raise BadConfig(f"{where}: {value} is not an address that peers can send to")
    return str(found)


def relays(value: Any, where: str) -> tuple[str, ...]:
    """A list of IP addresses, one per path. Raises: BadConfig."""
    if not isinstance(value, list) or len(value) > MAX_PATHS or AUTO in value:
        raise BadConfig(f"{where}: must be a list of at most {MAX_PATHS} addresses")
    return tuple(address(row, f"{where}[{n}]") for n, row in enumerate(value))


def segment_size(value: Any, where: str) -> int | str:
    """Bytes of the largest payload of a datagram, or AUTO. Raises: BadConfig."""
    if value == AUTO:
        return AUTO
    return whole_units(value, where, UNIT, MAX_SEGMENT)


def memory(value: Any, where: str) -> int | str:
    """Bytes of memory, or AUTO. Raises: BadConfig."""
    if value == AUTO:
        return AUTO
    if wrong := problem(value, {"type": int, "low": LEAST_MEMORY, "high": 1 << 50}):
        raise BadConfig(f'{where}: {wrong}; or give "{AUTO}"')
    return int(value)


def users(value: Any, where: str) -> tuple[int | str, ...]:
    """A list of user ids and names. Raises: BadConfig."""
    if not isinstance(value, list) or len(value) > MAX_USERS:
        raise BadConfig(f"{where}: must be a list of at most {MAX_USERS} user ids or names")
    for user in value:
        if not (_identifier(user) and user != ""):
            raise BadConfig(f"{where}: {shown(user)} is neither a user id nor a name")
    return tuple(value)


def group(value: Any, where: str) -> int | str:
    """A group id or name. Raises: BadConfig."""
    if not _identifier(value):
        raise BadConfig(f"{where}: {shown(value)} is neither a group id nor a name")
    found: int | str = value
    return found


def _identifier(value: Any) -> bool:
    if type(value) is int:
        return 0 <= value <= MAX_ID
    return type(value) is str and printable(value)


def engines(value: Any, where: str) -> int | str:
    """A number of engines, or AUTO. Raises: BadConfig."""
    if value == AUTO:
        return AUTO
    if wrong := problem(value, {"type": int, "low": 1, "high": MAX_ENGINES}):
        raise BadConfig(f'{where}: {wrong}; or give "{AUTO}"')
    return int(value)


def engine_cpus(value: Any, where: str) -> tuple[str, ...]:
    """A list of CPU lists, one per engine. Raises: BadConfig."""
    if not isinstance(value, list) or len(value) > MAX_ENGINES:
        raise BadConfig(f"{where}: must be a list of at most {MAX_ENGINES} texts, one per engine")
    for text in value:
        try:
            cpu_numbers(text)
        except (AttributeError, ValueError):
            raise BadConfig(
                f'{where}: {shown(text)} names no CPUs; write them like "2-5,8"'
            ) from None
    return tuple(value)


def directory(value: Any, where: str) -> str:
    """An absolute path, or "". Raises: BadConfig."""
    if type(value) is not str or (value and not Path(value).is_absolute()):
        raise BadConfig(f"{where}: {shown(value)} is not an absolute path")
    if not printable(value):
        raise BadConfig(f"{where}: {shown(value)} has a character that cannot be printed")
    return value


def address_of(listen: str) -> tuple[str, int]:
    """Host and port of an address that `listen` accepted."""
    host, _, port = listen.rpartition(":")
    return host.strip("[]"), int(port)


def listen(value: Any, where: str) -> str:
    """An IP address and a port, or "". Raises: BadConfig."""
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
            f"{where}: {shown(value)} is not an IP address and a port; "
            'write it like "127.0.0.1:9464"'
        ) from None
    return str(value)
