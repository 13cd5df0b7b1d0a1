"""Codecs by name: in which form an operation's values cross the network.

"bf16", "fp16": each value rounded to 16 bits. "int8", "fp8_e4m3", "fp8_e5m2": to 8 bits, with a
scale for each block of values. "topk:0.01": the largest hundredth of the values, and where they
are. What they do: docs/compression.md.
"""

from typing import Final, NamedTuple

from dlcpd.contract.errors import BadPolicy

MAX_CODEC: Final = 32  # characters of a name
MAX_FRACTION: Final = 0.25  # of "topk": 6 bytes a value; above it int8 is smaller, and better
HALF: Final = ("bf16", "fp16")
BYTE: Final = ("int8", "fp8_e4m3", "fp8_e5m2")
TOP_K: Final = "topk"
_SPELLING: Final = ", ".join(f'"{name}"' for name in (*HALF, *BYTE, f"{TOP_K}:0.01"))
_WIDE: Final = frozenset({"float32", "float64"})
_NARROW: Final = frozenset({"float16", "bfloat16"})


class CodecName(NamedTuple):
    """What a name says."""

    kind: str  # of HALF or BYTE, or TOP_K
    fraction: float = 0.0  # of the values that TOP_K keeps

    def __str__(self) -> str:
        """The one spelling that ranks compare."""
        return f"{self.kind}:{self.fraction:g}" if self.kind == TOP_K else self.kind


def parsed(name: object) -> CodecName:
    """Raises: BadPolicy saying what to write instead."""
    if isinstance(name, str) and len(name) <= MAX_CODEC:
        kind, colon, rest = name.partition(":")
        if not colon and kind in HALF + BYTE:
            return CodecName(kind)
        if kind == TOP_K and _is_fraction(rest):
            return CodecName(kind, float(rest))
    raise BadPolicy(
        f"codec {name!r}: use one of {_SPELLING}, where the number is the fraction of the values "
        f"that are sent, above 0, at most {MAX_FRACTION:g}"
    )


def check_takes(codec: CodecName, dtype: str, reduce: str) -> None:
    """Whether an operation of these can have the codec.

    Raises: BadPolicy naming what it cannot take.
    """
    if reduce not in ("sum", "avg"):
        raise BadPolicy(
            f"codec {codec}: {reduce} of rounded values is not that of the values; use sum or avg, "
            f"or leave the codec out"
        )
    if dtype in _WIDE or (dtype in _NARROW and codec.kind not in HALF):
        return
    why = "has 16 bits already" if dtype in _NARROW else "is none of the real floats"
    raise BadPolicy(f"codec {codec}: {dtype} {why}; leave the codec out")


def _is_fraction(text: str) -> bool:
    try:
        return 0 < float(text) <= MAX_FRACTION
    except ValueError:
        return False
