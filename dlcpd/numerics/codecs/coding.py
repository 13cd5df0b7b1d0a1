"""Encodes tensors of all float types for the wire and back, and computes the rounding errors.

Codecs take float32; this module converts other dtypes. Waived segments count as zero, so the
values they held are found by decoding with all other segments of the body zero.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from dlcpd.core.transfer.packetizer import segment_count
from dlcpd.core.wire.bitmap import Segments
from dlcpd.core.wire.datagram import Bytes
from dlcpd.numerics.codecs.codec import Codec, Numbers, body_at, pieces
from dlcpd.numerics.elements import LARGEST, NARROW, STORAGE, Array, narrow, view, widen
from dlcpd.numerics.magnitude import Energies


def encode(
    codec: Codec,
    dtype: str,
    source: Bytes,
    wire: Bytes,
    left: Array | None = None,
    *,
    rounds: bool = False,
) -> Iterator[int]:
    """Encode `source` into `wire`, a piece at a time: yields the bytes of each.

    `left`, of as many values of type `elements.wide(dtype)`, gets the rounding errors: source
    minus its decoded value; 0 where either is NaN or infinite. `rounds`: the source itself is
    overwritten with its decoded values.
    """
    stored = view(source, dtype)
    body = wire[body_at(codec, len(stored)) :]
    wire[codec.head(len(stored)) : body_at(codec, len(stored))] = 0
    for piece in pieces(codec, len(stored)):
        given = stored[piece.values]
        codec.encode(_singles(given, dtype), wire[piece.head], body[piece.body])
        if left is not None or rounds:
            decoded = np.empty(len(given), np.float32)
            codec.decode(wire[piece.head], body[piece.body], decoded)
            got = _as_stored(decoded, dtype)
            if left is not None:
                left[piece.values] = _difference(given, got, dtype)
            if rounds:
                given[:] = got
        yield given.nbytes


def decode(codec: Codec, dtype: str, wire: Bytes, target: Bytes) -> None:
    """Write to `target` the values that `wire` holds."""
    stored = view(target, dtype)
    body = wire[body_at(codec, len(stored)) :]
    for piece in pieces(codec, len(stored)):
        into = stored[piece.values]
        if dtype == "float32":
            codec.decode(wire[piece.head], body[piece.body], into)
            continue
        decoded = np.empty(len(into), np.float32)
        codec.decode(wire[piece.head], body[piece.body], decoded)
        into[:] = _as_stored(decoded, dtype)


def lost_values(
    codec: Codec, dtype: str, wire: Bytes, count: int, segments: Segments, *, segment_size: int
) -> Array:
    """`count` values of the type `elements.wide(dtype)`: those that `segments` of `wire` hold, and
    zero elsewhere. No segment may touch the head."""
    only = np.zeros(len(wire), np.uint8)
    head = body_at(codec, count)
    only[:head] = wire[:head]
    for segment in segments.tolist():
        here = slice(segment * segment_size, (segment + 1) * segment_size)
        only[here] = wire[here]
    values = np.empty(count, STORAGE[dtype])
    decode(codec, dtype, only, values.view(np.uint8))
    return widen(values, dtype)


def wire_energies(codec: Codec, count: int, wire: Bytes, segment_size: int) -> tuple[Energies, int]:
    """Sum of squares of the values that each segment holds, infinite if one is not finite; and the
    number of segments at the beginning that hold parts of the head, whose energy is infinite:
    they must arrive."""
    head, segments = body_at(codec, count), segment_count(len(wire), segment_size)
    first = -(-head // segment_size)  # segment that holds no part of the head
    starts = (np.arange(first, segments) * segment_size - head) // codec.item
    found = np.full(segments, np.inf)
    for kind in (np.float32, np.float64):  # squares of values above 1.8e19 need float64
        squares = _squares(codec, count, wire, np.dtype(kind))
        with np.errstate(all="ignore"):
            if len(starts):
                found[first:] = np.add.reduceat(squares, starts)
        if np.isfinite(found[first:]).all():
            break
    found[~np.isfinite(found)] = np.inf
    return found, first


def _squares(codec: Codec, count: int, wire: Bytes, kind: np.dtype[Any]) -> Array:
    """Squares of the values that the body holds."""
    body = wire[body_at(codec, count) :]
    squares, at = np.empty(codec.body(count) // codec.item, kind), 0
    with np.errstate(all="ignore"):
        for piece in pieces(codec, count):
            values = piece.values.stop - piece.values.start
            items = codec.items(wire[piece.head], body[piece.body], values).astype(kind, copy=False)
            np.multiply(items, items, out=squares[at : at + len(items)])
            at += len(items)
    return squares


def _singles(stored: Array, dtype: str) -> Numbers:
    """`stored` as float32; finite values beyond float32 become its largest value."""
    largest = LARGEST["float32"]
    if dtype != "float64":
        found: Numbers = widen(stored, dtype)
        return found
    with np.errstate(over="ignore"):
        beyond = np.isfinite(stored) & (np.abs(stored) > largest)
    clipped = np.where(beyond, np.copysign(largest, stored), stored)
    singles: Numbers = clipped.astype(np.float32)
    return singles


def _as_stored(decoded: Numbers, dtype: str) -> Array:
    return narrow(decoded, dtype) if dtype in NARROW else decoded.astype(STORAGE[dtype], copy=False)


def _difference(given: Array, got: Array, dtype: str) -> Array:
    with np.errstate(all="ignore"):
        apart = widen(given, dtype) - widen(got, dtype)
    numbers = np.isfinite(apart)
    if not numbers.all():
        apart[~numbers] = 0
    return apart
