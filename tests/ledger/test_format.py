"""What a ledger's bytes may be: written and read alike, torn at the end, and damaged."""

import re
import struct
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import Any
from zlib import crc32

import msgpack
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.contract.errors import BadLedger
from dlcpd.core.wire.header import MAX_SEGMENTS
from dlcpd.ledger.frames import HEAD, frame, records_untrusted
from dlcpd.ledger.inputs import Asked
from dlcpd.ledger.masks import pack, pack_paths, unpack_paths_untrusted, unpack_untrusted
from dlcpd.ledger.records import Record, decode_untrusted, encode
from tests.ledger.examples import ENDED, FILE, OPENING, RECORDS


def read(data: bytes, *, torn: bool = True) -> list[Record]:
    return list(records_untrusted(data, may_be_torn=torn))


@given(st.integers(1, MAX_SEGMENTS), st.floats(0, 1), st.integers(0, 1 << 32))
def test_masks_are_read_as_they_were_written(count: int, share: float, seed: int) -> None:
    missing = np.flatnonzero(np.random.default_rng(seed).random(count) < share)
    mask = pack(missing, count)
    assert unpack_untrusted(mask, count).tolist() == missing.tolist()
    assert len(mask) <= 1 + -(-count // 8)


@given(st.binary(max_size=40), st.integers(-1, 300))
def test_any_mask_is_read_within_its_segments_or_refused(mask: bytes, count: int) -> None:
    try:
        found = unpack_untrusted(mask, count)
    except BadLedger:
        return
    assert all(0 <= segment < count for segment in found.tolist())


def test_paths_are_read_as_they_were_written() -> None:
    assert unpack_paths_untrusted(pack_paths({3: 4096, 0: 1})) == {0: 1, 3: 4096}
    with pytest.raises(BadLedger, match="no list of paths"):
        unpack_paths_untrusted(b"ab")


def test_records_are_read_as_they_were_written() -> None:
    assert read(FILE, torn=False) == RECORDS


def test_wherever_the_last_record_is_torn_all_before_it_are_read() -> None:
    whole = len(FILE) - len(frame(ENDED))
    for length in range(whole, len(FILE)):
        assert read(FILE[:length]) == RECORDS[:-1]
        if length > whole:
            with pytest.raises(BadLedger, match=f"damaged at byte {whole}: the end"):
                read(FILE[:length], torn=False)
    assert read(FILE[:whole] + bytes(100)) == RECORDS[:-1]  # a machine that stopped


@pytest.mark.parametrize("at", range(len(FILE)))
def test_a_flipped_bit_is_damage_wherever_it_is(at: int) -> None:
    data = bytearray(FILE)
    data[at] ^= 1 << at % 8
    with pytest.raises(BadLedger, match=r"damaged at byte \d+: "):
        read(bytes(data))


@pytest.mark.parametrize("record", RECORDS, ids=lambda record: type(record).__name__)
def test_a_record_with_a_field_of_another_type_is_refused_by_its_name(record: Record) -> None:
    for place, name in enumerate(record.__struct_fields__):
        wrongs: tuple[Any, ...] = (None, -1, "x" * 300, [1.5], {}, True)
        for wrong in wrongs:
            kind, values = msgpack.unpackb(encode(record))
            values[place] = wrong
            with pytest.raises(BadLedger, match=rf"^{type(record).__name__}\.{name}: "):
                decode_untrusted(msgpack.packb([kind, values]))


@given(
    st.recursive(st.none() | st.integers(0, 9) | st.binary() | st.text(), st.lists, max_leaves=8)
)
def test_any_value_is_a_record_or_refused(value: object) -> None:
    with suppress(BadLedger):
        decode_untrusted(msgpack.packb(value))


def test_bytes_that_are_no_records_are_refused_even_with_a_right_check_sum() -> None:
    for body in (b"\xc1", msgpack.packb([9, []]), b"\x91" * 5000, msgpack.packb([0, [1]])):
        good = frame(OPENING)
        counts = struct.pack("<II", len(body), crc32(body))
        data = good + counts + struct.pack("<I", crc32(counts)) + body
        found = records_untrusted(data, may_be_torn=True)
        assert list(islice(found, 1)) == [OPENING]
        with pytest.raises(BadLedger, match=f"damaged at byte {len(good)}: "):
            next(found)
    assert HEAD.size == 12


def test_the_function_of_the_documentation_makes_inputs() -> None:
    page = (Path(__file__).parents[2] / "docs" / "ledger.md").read_text()
    [block] = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    names: dict[str, Any] = {}
    exec(block, names)  # noqa: S102  # our own page
    asked = Asked("name", 3, 9, 0, "float32", 4096)
    made = names["inputs"](1, asked)
    assert made.nbytes == 4096
    assert (made == names["inputs"](1, asked)).all() and (made != names["inputs"](0, asked)).any()
