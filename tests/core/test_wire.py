"""Headers: the vectors are the truth; the scalar codec and its numpy twin both follow them."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcpd.contract.errors import MalformedDatagram
from dlcpd.contract.traffic import DROP_PRECEDENCES
from dlcpd.core.wire import header_batch
from dlcpd.core.wire.header import (
    HEADER_SIZE,
    KNOWN_FLAGS,
    MAX_PATHS,
    MAX_SEGMENTS,
    MAX_STREAMS,
    MAX_TAGS,
    MAX_TRANSFERS,
    VERSION,
    Flag,
    Header,
    Key,
    Kind,
)
from dlcpd.core.wire.header_batch import NUMBER, OPERATION, SEGMENT, SENT_AT, TRANSFER

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "header.json").read_text())["header"]
GOOD = [pytest.param(v, id=v["name"]) for v in VECTORS if "fields" in v]
BAD = [pytest.param(v, id=v["name"]) for v in VECTORS if "reject" in v]
WHOLE = [v for v in VECTORS if len(v["hex"]) >= 2 * HEADER_SIZE]


def header(fields: dict[str, Any]) -> Header:
    return Header(**{**fields, "kind": Kind(fields["kind"])})


def row(vector: dict[str, Any]) -> bytes:
    return bytes.fromhex(vector["hex"])[:HEADER_SIZE]


def rows(vectors: list[dict[str, Any]]) -> np.ndarray:
    return np.frombuffer(b"".join(map(row, vectors)), np.uint8).reshape(-1, HEADER_SIZE)


def fields_of(words: np.ndarray) -> dict[str, int]:
    """What the batch codec's users read out of one row."""
    first, fourth, fifth = int(words[0]), int(words[TRANSFER]), int(words[SEGMENT])
    return {
        "kind": first >> 8 & 0xFF,
        "flags": first >> 16 & 0xFF,
        "path": first >> 24,
        "operation": int(words[OPERATION]),
        "token": int(words[header_batch.TOKEN_LOW]) | int(words[header_batch.TOKEN_HIGH]) << 32,
        "stream": fourth & 0xFFFF,
        "transfer": fourth >> 16,
        "segment": fifth & 0xFFFF,
        "round": fifth >> 16 & 0xFF,
        "tag": fifth >> 24,
        "packet_number": int(words[NUMBER]),
        "sent_at": int(words[SENT_AT]),
        "checksum": int(words[8]) | int(words[9]) << 32,
    }


# --- the vectors, in both directions, through both codecs ------------------------------


@pytest.mark.parametrize("vector", GOOD)
def test_unpack(vector: dict[str, Any]) -> None:
    assert Header.unpack_untrusted(bytes.fromhex(vector["hex"])) == header(vector["fields"])


@pytest.mark.parametrize("vector", GOOD)
def test_pack(vector: dict[str, Any]) -> None:
    assert header(vector["fields"]).pack() == row(vector)


@pytest.mark.parametrize("vector", BAD)
def test_reject(vector: dict[str, Any]) -> None:
    with pytest.raises(MalformedDatagram) as caught:
        Header.unpack_untrusted(bytes.fromhex(vector["hex"]))
    assert caught.value.reason == vector["reject"]


@pytest.mark.parametrize("vector", GOOD)
def test_parse(vector: dict[str, Any]) -> None:
    assert fields_of(header_batch.parse(rows([vector]))[0]) == vector["fields"]


def verdict(data: bytes) -> str:
    """Why the scalar codec rejects a header; empty when it does not."""
    try:
        Header.unpack_untrusted(data)
    except MalformedDatagram as exc:
        return exc.reason
    return ""


def assert_one_verdict_per_group(headers: list[bytes]) -> None:
    data = np.frombuffer(b"".join(headers), np.uint8).reshape(-1, HEADER_SIZE)
    starts = header_batch.group_starts(header_batch.parse(data))
    assert starts[0] == 0
    assert starts[-1] == len(headers)
    for a, b in pairwise(starts):
        assert len({verdict(one) for one in headers[a:b]}) == 1


def test_every_vector_after_every_other() -> None:
    for one in WHOLE:
        for other in WHOLE:
            assert_one_verdict_per_group([row(one), row(other)])


@pytest.mark.parametrize("vector", GOOD)
def test_build(vector: dict[str, Any]) -> None:
    one = header(vector["fields"])
    tags = np.full(3, one.tag, np.uint8)
    flags = np.full(3, one.flags, np.uint8)
    first = one._replace(segment=0, tag=0, flags=0)
    words = header_batch.build(first, np.full(3, one.segment), tags, flags)
    assert words[:, NUMBER].tolist() == [(one.packet_number + i) % (1 << 32) for i in range(3)]
    words[:, NUMBER] = one.packet_number
    assert words.tobytes() == 3 * row(vector)


def test_every_way_to_be_rejected_has_a_vector() -> None:
    assert {v["reject"] for v in VECTORS if "reject" in v} == {
        "short",
        "version",
        "kind",
        "flags",
        "path",
        "segment",
        "tag",
    }


def test_every_kind_and_flag_has_a_vector() -> None:
    fields = [v["fields"] for v in VECTORS if "fields" in v]
    assert {f["kind"] for f in fields} == set(map(int, Kind))
    assert {f["flags"] for f in fields} >= {int(flag) for flag in Flag}


# --- beyond the vectors ------------------------------------------------------------------


def test_the_page_names_this_version() -> None:
    page = (Path(__file__).parents[2] / "docs" / "wire.md").read_text()
    assert f"between engines, version {VERSION & 0xF}." in page
    assert f"| 0 | 1 | version | `0x{VERSION:X}`:" in page


headers = st.builds(
    Header,
    st.sampled_from(Kind),
    st.integers(0, 2**64 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, MAX_STREAMS - 1),
    st.integers(0, MAX_TRANSFERS - 1),
    st.integers(0, MAX_SEGMENTS - 1),
    st.integers(0, 255),
    st.integers(0, MAX_TAGS - 1),
    st.integers(0, KNOWN_FLAGS),
    st.integers(0, MAX_PATHS - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**32 - 1),
    st.integers(0, 2**64 - 1),
)


@given(headers)
def test_headers_round_trip(one: Header) -> None:
    assert Header.unpack_untrusted(one.pack()) == one


@given(headers, st.integers(0, HEADER_SIZE - 1), st.integers(0, 255))
@settings(max_examples=250)
def test_one_corrupt_byte_is_seen_by_both_twins(one: Header, at: int, byte: int) -> None:
    data = bytearray(one.pack())
    data[at] = byte
    assert_one_verdict_per_group([one.pack(), bytes(data), one.pack()])
    if not verdict(bytes(data)):
        unpacked = Header.unpack_untrusted(bytes(data))
        assert unpacked.pack() == bytes(data)
        words = header_batch.parse(np.frombuffer(bytes(data), np.uint8)[None])
        assert header(fields_of(words[0])) == unpacked


@given(st.lists(st.binary(min_size=HEADER_SIZE, max_size=HEADER_SIZE), min_size=1, max_size=8))
def test_random_bytes_have_one_verdict_per_group(blobs: list[bytes]) -> None:
    assert_one_verdict_per_group(blobs)


@given(st.binary(max_size=3 * HEADER_SIZE))
def test_unpack_raises_only_malformed_datagram(data: bytes) -> None:
    try:
        one = Header.unpack_untrusted(data)
    except MalformedDatagram:
        return
    assert one.pack() == data[:HEADER_SIZE]


def test_the_key_of_a_datagram_is_that_of_its_transfer() -> None:
    one = Header(Kind.NACK, 7, operation=3, stream=9, transfer=5, segment=2)
    assert one.key == Key(stream=9, operation=3, transfer=5)


BASE = Header(Kind.DATA, 7, operation=3, stream=9, transfer=5, segment=0, path=1)


@pytest.mark.parametrize(
    ("change", "splits"),
    [
        ({"kind": Kind.END}, True),
        ({"path": 2}, True),
        ({"operation": 4}, True),
        ({"token": 8}, True),
        ({"token": 7 | 1 << 40}, True),
        ({"stream": 8}, True),
        ({"stream": 9 | 1 << 15}, True),
        ({"transfer": 6}, True),
        ({"transfer": 5 | 1 << 15}, True),
        ({"round": 1}, True),
        ({"segment": 9}, False),
        ({"flags": Flag.ENDING}, False),
        ({"tag": DROP_PRECEDENCES - 1}, False),
        ({"tag": DROP_PRECEDENCES}, True),
        ({"packet_number": 77}, False),
        ({"sent_at": 77}, False),
        ({"checksum": 77}, False),
    ],
    ids=str,
)
def test_a_group_shares_flow_kind_transfer_round_and_path(
    change: dict[str, Any], splits: bool
) -> None:
    batch = [BASE, BASE, BASE._replace(**change), BASE]
    data = np.frombuffer(b"".join(h.pack() for h in batch), np.uint8).reshape(-1, HEADER_SIZE)
    words = header_batch.parse(data)
    assert header_batch.group_starts(words) == ([0, 2, 3, 4] if splits else [0, 4])
    assert header_batch.group_starts(words[:1]) == [0, 1]
