"""The greeting of `doctor --listen` over TCP: its version and host, and the sockets to probe."""

import ipaddress
import json
from dataclasses import asdict, dataclass
from typing import Any, Final, Self

from dlcpd.contract.errors import BadMessage
from dlcpd.doctor.datagrams import TOKEN

MOST: Final = 32768  # bytes of a greeting; 128 sockets take 10 KiB
MOST_SOCKETS: Final = 128  # 8 engines of 16 paths
MOST_TEXT: Final = 255


@dataclass(frozen=True, slots=True)
class End:
    """A socket that answers. `held`: a daemon holds the configured port; this is another port."""

    path: int  # number in [network] paths; -1: control
    address: str
    port: int
    held: bool


@dataclass(frozen=True, slots=True)
class Greeting:
    """One line of JSON."""

    version: str
    host: str
    token: bytes
    agreed: dict[str, int]  # settings that must be equal on all hosts of a job
    control: End
    data: tuple[End, ...]

    def pack(self) -> bytes:
        values = asdict(self) | {"token": self.token.hex()}
        return json.dumps(values).encode() + b"\n"

    @classmethod
    def unpack_untrusted(cls, line: bytes) -> Self:
        """Raises: BadMessage."""
        try:
            values = json.loads(line)
            ends = [_end(row) for row in values["data"][:MOST_SOCKETS]]
            found = cls(
                version=_text(values["version"]),
                host=_text(values["host"]),
                token=bytes.fromhex(values["token"]),
                agreed={_text(key): int(value) for key, value in values["agreed"].items()},
                control=_end(values["control"]),
                data=tuple(ends),
            )
        # OverflowError: JSON of Python knows Infinity
        except (
            ValueError,
            TypeError,
            KeyError,
            AttributeError,
            RecursionError,
            OverflowError,
        ) as exc:
            raise BadMessage(f"the answer is not from `dlcpctl doctor --listen`: {exc}") from exc
        if len(found.token) != TOKEN:
            raise BadMessage(f"a token of {len(found.token)} bytes; {TOKEN} are needed")
        return found


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MOST_TEXT:
        raise ValueError(f"{str(value)[:32]!r} is not a text of at most {MOST_TEXT} characters")
    return value


def _end(row: dict[str, Any]) -> End:
    port = int(row["port"])
    if not 0 < port < 1 << 16:
        raise ValueError(f"{port} is not a port")
    address = ipaddress.ip_address(_text(row["address"]))  # no name: no DNS lookup
    return End(int(row["path"]), str(address), port, bool(row["held"]))
