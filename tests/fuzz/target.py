"""What a fuzzer drives: bytes into one parser, which takes them or raises its one error."""

import struct
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

ACCEPTED: Final = "accepted"
_LENGTH: Final = struct.Struct("<H")


@dataclass(frozen=True, slots=True)
class Target:
    """`seeds` are valid: `run` takes each. `covers` are the `*_untrusted` functions that `run`
    calls, as MODULE:NAME; tests/fuzz/test_targets.py compares them with those that there are."""

    name: str
    run: Callable[[bytes], object]
    error: type[Exception] | tuple[()]  # (): none, what is refused is counted
    seeds: tuple[bytes, ...]
    covers: tuple[str, ...] = ()

    def outcome(self, data: bytes) -> str:
        """ACCEPTED, or the reason of the one error. Raises: anything else that `run` raises."""
        try:
            self.run(data)
        except self.error as exc:
            return str(getattr(exc, "reason", type(exc).__name__))
        return ACCEPTED


def joined(frames: Iterable[bytes]) -> bytes:
    """Several datagrams or frames as one input."""
    return b"".join(_LENGTH.pack(len(frame)) + frame for frame in frames)


def apart(data: bytes) -> Iterator[bytes]:
    """Inverse of `joined`, of any bytes: the last may be cut."""
    while len(data) >= _LENGTH.size:
        (size,) = _LENGTH.unpack_from(data)
        yield data[_LENGTH.size : _LENGTH.size + size]
        data = data[_LENGTH.size + size :]
