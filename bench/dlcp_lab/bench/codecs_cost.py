"""Cost of a codec: bytes on the wire and CPU time in this process. No network."""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np

from dlcpd.numerics.codecs import coding
from dlcpd.numerics.codecs.codec import wire_size
from dlcpd.numerics.codecs.names import codec_of

VALUES: Final = 1 << 20  # per transfer: 4 MiB of float32
ROUNDS: Final = 5  # the fastest counts: other load on this CPU is no cost of the codec
SEED: Final = 1


@dataclass(frozen=True, slots=True)
class CodecCost:
    """Cost of one codec on float32. CPU seconds per 10**9 bytes."""

    codec: str
    ratio: float  # bytes on the wire / bytes of the tensor
    encode: float  # residual included
    decode: float


def cost(name: str) -> CodecCost:
    """Measure a codec on values distributed like gradients: many small, few large."""
    codec = codec_of(name)
    rng = np.random.default_rng(SEED)
    numbers = rng.normal(size=VALUES) * np.exp(rng.normal(size=VALUES))
    values = numbers.astype(np.float32).view(np.uint8)
    wire, left = np.zeros(wire_size(codec, VALUES), np.uint8), np.empty_like(values)
    encoding = _seconds(lambda: _all(coding.encode(codec, "float32", values, wire, left)))
    decoding = _seconds(lambda: coding.decode(codec, "float32", wire, left))
    gigabytes = len(values) / 1e9
    return CodecCost(name, len(wire) / len(values), encoding / gigabytes, decoding / gigabytes)


def _all(work: Iterator[int]) -> None:
    for _ in work:
        pass


def _seconds(call: Callable[[], None]) -> float:
    """CPU seconds of the fastest of ROUNDS calls; an untimed first call builds the tables."""
    call()
    times = []
    for _ in range(ROUNDS):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return min(times)
