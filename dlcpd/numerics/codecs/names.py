"""Which codec a name means."""

from functools import lru_cache
from typing import Final

from dlcpd.contract.codec import TOP_K, parsed
from dlcpd.numerics.codecs import integers
from dlcpd.numerics.codecs.blocks import Blocks
from dlcpd.numerics.codecs.codec import Codec
from dlcpd.numerics.codecs.eighths import E4M3, E5M2, Float8
from dlcpd.numerics.codecs.halves import Half
from dlcpd.numerics.codecs.largest import Largest

_HALVES: Final = {"bf16": "bfloat16", "fp16": "float16"}
_EIGHTHS: Final[dict[str, Float8]] = {"fp8_e4m3": E4M3, "fp8_e5m2": E5M2}


@lru_cache(maxsize=64)
def codec_of(name: str) -> Codec:
    """Raises: BadPolicy."""
    wanted = parsed(name)
    if wanted.kind == TOP_K:
        return Largest(str(wanted), wanted.fraction)
    if wanted.kind in _HALVES:
        return Half(wanted.kind, _HALVES[wanted.kind])
    if (eighth := _EIGHTHS.get(wanted.kind)) is not None:
        return Blocks(wanted.kind, eighth.largest, eighth.codes, eighth.values)
    return Blocks(wanted.kind, integers.LARGEST, integers.codes, integers.values)
