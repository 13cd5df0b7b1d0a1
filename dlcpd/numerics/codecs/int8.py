"""Values -127..127 as int8, rounded to nearest, ties to even. -128 stands for NaN and infinity."""

from typing import Final

import numpy as np

from dlcpd.contract.codec import CodecName
from dlcpd.core.wire.datagram import Bytes
from dlcpd.numerics.codecs.block_scaled import BlockScaled
from dlcpd.numerics.codecs.codec import Numbers

LARGEST: Final = 127.0
_NO_NUMBER: Final = -128


def codes(numbers: Numbers) -> Bytes:
    """Codes of values within -127.4..127.4, NaN and infinity."""
    rounded = np.rint(numbers)
    if not np.isfinite(rounded).all():
        rounded[~np.isfinite(rounded)] = _NO_NUMBER
    return rounded.astype(np.int8).view(np.uint8)


def values(body: Bytes) -> Numbers:
    """Inverse of `codes`; every value that was not finite becomes NaN."""
    found = body.view(np.int8).astype(np.float32)
    none = found == _NO_NUMBER
    if np.count_nonzero(none):
        found[none] = np.nan
    return found


def codec(wanted: CodecName) -> BlockScaled:
    """Constructor for `dlcpd.contract.codec.KINDS`."""
    return BlockScaled(wanted.kind, LARGEST, codes, values)
