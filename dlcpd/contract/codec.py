"""Names of codecs: how an operation's values are encoded for the network.

"bf16", "fp16": each value rounded to 16 bits. "int8", "fp8_e4m3", "fp8_e5m2": to 8 bits, with a
scale for each block of values. "topk:0.01": the largest hundredth of the values, with their
places. Details: docs/compression.md.
"""

from dataclasses import dataclass
from typing import Final, NamedTuple

from dlcpd.contract.errors import BadPolicy

MAX_CODEC: Final = 32  # characters of a name
MAX_FRACTION: Final = 0.25  # of "topk", 6 bytes a value: above it int8 is smaller, and better
_WIDE: Final = frozenset({"float32", "float64"})
_NARROW: Final = frozenset({"float16", "bfloat16"})
_PACKAGE: Final = "dlcpd.numerics.codecs"


@dataclass(frozen=True, slots=True)
class CodecKind:
    """A codec: `module.codec(CodecName)` makes it. `takes`: its dtypes; `fraction`: whether its
    name ends in a fraction."""

    module: str
    takes: frozenset[str] = _WIDE | _NARROW
    fraction: bool = False


KINDS: Final[dict[str, CodecKind]] = {
    "bf16": CodecKind(f"{_PACKAGE}.float16", _WIDE),
    "fp16": CodecKind(f"{_PACKAGE}.float16", _WIDE),
    "int8": CodecKind(f"{_PACKAGE}.int8"),
    "fp8_e4m3": CodecKind(f"{_PACKAGE}.float8"),
    "fp8_e5m2": CodecKind(f"{_PACKAGE}.float8"),
    "topk": CodecKind(f"{_PACKAGE}.topk", fraction=True),
}


class CodecName(NamedTuple):
    """The parsed name of a codec."""

    kind: str  # of KINDS
    fraction: float = 0.0  # of the values that are sent, where the kind has one

    def __str__(self) -> str:
        """The canonical spelling, which ranks compare."""
        return f"{self.kind}:{self.fraction:g}" if KINDS[self.kind].fraction else self.kind


def parsed(name: object) -> CodecName:
    """The parsed `name`. Raises: BadPolicy that says what to write instead."""
    if isinstance(name, str) and len(name) <= MAX_CODEC:
        kind, colon, rest = name.partition(":")
        known = KINDS.get(kind)
        if known and not known.fraction and not colon:
            return CodecName(kind)
        if known and known.fraction and _is_fraction(rest):
            return CodecName(kind, float(rest))
    raise BadPolicy(
        f"codec {name!r}: use one of {_spelling()}, where the number is the fraction of the values "
        f"that are sent, above 0, at most {MAX_FRACTION:g}"
    )


def check_takes(codec: CodecName, dtype: str, reduce: str) -> None:
    """Check that an operation of this dtype and reduction can have the codec.

    Raises: BadPolicy that names the unsuitable one.
    """
    if reduce not in ("sum", "avg"):
        raise BadPolicy(
            f"codec {codec}: {reduce} of rounded values is not that of the values; use sum or avg, "
            f"or leave the codec out"
        )
    if dtype in KINDS[codec.kind].takes:
        return
    why = "has 16 bits already" if dtype in _NARROW else "is none of the real floats"
    raise BadPolicy(f"codec {codec}: {dtype} {why}; leave the codec out")


def _spelling() -> str:
    return ", ".join(f'"{name}:0.01"' if k.fraction else f'"{name}"' for name, k in KINDS.items())


def _is_fraction(text: str) -> bool:
    try:
        return 0 < float(text) <= MAX_FRACTION
    except ValueError:
        return False
