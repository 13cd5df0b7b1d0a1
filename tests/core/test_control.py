"""Bodies of control datagrams: the vectors in both directions, and no input that raises more."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.contract.errors import MalformedDatagram
from dlcpd.core.wire import control
from dlcpd.core.wire.bitmap import pack_bits
from dlcpd.core.wire.control import MAX_END_ROWS, MAX_LISTED, MAX_TEXT, EndRow, Ready, SpaceCredit
from dlcpd.core.wire.header import HEADER_SIZE, Header, Kind

VECTORS = json.loads((Path(__file__).parents[1] / "vectors" / "header.json").read_text())


Parametrize = pytest.MarkDecorator


def reason_of(parse: Callable[[bytes], object], data: bytes) -> str:
    """Why `parse` refuses, or nothing; any other exception is a failure."""
    try:
        parse(data)
    except MalformedDatagram as exc:
        return exc.reason
    return ""


def good(table: str) -> Parametrize:
    chosen = [v for v in VECTORS[table] if "reject" not in v]
    return pytest.mark.parametrize("vector", chosen, ids=[v["name"] for v in chosen])


def bad(table: str) -> Parametrize:
    chosen = [v for v in VECTORS[table] if "reject" in v]
    return pytest.mark.parametrize("vector", chosen, ids=[v["name"] for v in chosen])


def body(vector: dict[str, Any]) -> bytes:
    return bytes.fromhex(vector["hex"])


# --- READY ---------------------------------------------------------------------------


@good("ready")
def test_ready(vector: dict[str, Any]) -> None:
    ready = Ready(**vector["fields"])
    assert ready.pack() == body(vector)
    assert control.unpack_ready_untrusted(body(vector)) == ready


@bad("ready")
def test_ready_rejected(vector: dict[str, Any]) -> None:
    with pytest.raises(MalformedDatagram) as caught:
        control.unpack_ready_untrusted(body(vector))
    assert caught.value.reason == vector["reject"]


@good("ready_carries")
def test_ready_carries_data(vector: dict[str, Any]) -> None:
    fields = vector["fields"]
    ready = Ready(**fields | {"carried": bytes.fromhex(fields["carried"])})
    assert ready.pack() == body(vector)
    assert control.unpack_ready_untrusted(body(vector), carries=True) == ready


@bad("ready_carries")
def test_ready_carries_data_rejected(vector: dict[str, Any]) -> None:
    with pytest.raises(MalformedDatagram) as caught:
        control.unpack_ready_untrusted(body(vector), carries=True)
    assert caught.value.reason == vector["reject"]


SUBMITTED = Ready("sum of float32[9]", 42, 1408, 7, 100, 300, window=9, checked=3, digest=8)
THEIRS = SUBMITTED._replace(outgoing=300, incoming=100)


@pytest.mark.parametrize(
    "other",
    [
        {"text": "sum of float32[8]"}, {"text": ""}, {"fingerprint": 43}, {"tag": 8},
        {"outgoing": 301}, {"incoming": 101}, {"outgoing": 100, "incoming": 300},
    ],
    ids=str,
)  # fmt: skip
def test_any_difference_in_what_was_submitted_is_told_and_described(other: dict[str, Any]) -> None:
    assert SUBMITTED.agrees_with(THEIRS)
    theirs = THEIRS._replace(**other)
    assert not SUBMITTED.agrees_with(theirs)
    assert not theirs.agrees_with(SUBMITTED)
    assert theirs.describe() != THEIRS.describe()


@pytest.mark.parametrize(
    "other", [{"window": 1}, {"checked": 4}, {"digest": 9}, {"segment_size": 64}], ids=str
)
def test_what_travels_along_is_no_disagreement(other: dict[str, Any]) -> None:
    assert SUBMITTED.agrees_with(THEIRS._replace(**other))


def test_what_a_peer_is_told_along_changes_nothing_else() -> None:
    told = SUBMITTED.told(window=1, checked=2, digest=3)
    assert told == SUBMITTED._replace(window=1, checked=2, digest=3)


def test_a_description_reads_well() -> None:
    assert SUBMITTED.describe() == (
        "sum of float32[9] (tag 7, sends 100 B to its peer, awaits 300 B; "
        "the rest as 000000000000002a)"
    )
    assert "tag" not in SUBMITTED._replace(tag=0).describe()


def test_the_longest_ready_fits_any_datagram() -> None:
    assert HEADER_SIZE + len(SUBMITTED._replace(text="x" * MAX_TEXT).pack()) < 1280  # RFC 8200


# --- CREDIT, END, PERMIT, COMPLETE, bitmaps ----------------------------------------------


@good("credit")
def test_credit(vector: dict[str, Any]) -> None:
    rows = [SpaceCredit(*row) for row in vector["rows"]]
    assert control.pack_credit(vector["window"], rows) == body(vector)
    assert control.unpack_credit_untrusted(body(vector)) == (vector["window"], rows)


@bad("credit")
def test_credit_rejected(vector: dict[str, Any]) -> None:
    with pytest.raises(MalformedDatagram) as caught:
        control.unpack_credit_untrusted(body(vector))
    assert caught.value.reason == vector["reject"]


def test_a_count_of_packets_beyond_32_bits_wraps_into_its_field() -> None:
    packed = control.pack_credit(0, [SpaceCredit(0, 4, 0, 5, (1 << 32) + 5, 0, 0, 0)])
    assert control.unpack_credit_untrusted(packed)[1][0].received == 5


def test_a_packet_number_of_end_beyond_32_bits_wraps_into_its_field() -> None:
    packed = control.pack_ends([EndRow(0, 4, (1 << 32) + 5)])
    assert control.unpack_ends_untrusted(packed) == [EndRow(0, 4, 5)]


@good("end")
def test_end(vector: dict[str, Any]) -> None:
    rows = [EndRow(*row) for row in vector["rows"]]
    assert control.pack_ends(rows) == body(vector)
    assert control.unpack_ends_untrusted(body(vector)) == rows


@bad("end")
def test_end_rejected(vector: dict[str, Any]) -> None:
    with pytest.raises(MalformedDatagram) as caught:
        control.unpack_ends_untrusted(body(vector))
    assert caught.value.reason == vector["reject"]


@good("permit")
def test_permit(vector: dict[str, Any]) -> None:
    limit, costs = control.unpack_permit_untrusted(body(vector), vector["segments"])
    assert (limit, costs.tolist()) == (vector["limit"], vector["costs"])
    assert control.pack_permit(limit, costs) == body(vector)


@bad("permit")
def test_permit_rejected(vector: dict[str, Any]) -> None:
    with pytest.raises(MalformedDatagram) as caught:
        control.unpack_permit_untrusted(body(vector), vector["segments"])
    assert caught.value.reason == vector["reject"]


@good("complete")
def test_complete(vector: dict[str, Any]) -> None:
    assert control.pack_transfers(vector["transfers"]) == body(vector)
    assert control.unpack_transfers_untrusted(body(vector)) == vector["transfers"]


@bad("complete")
def test_complete_rejected(vector: dict[str, Any]) -> None:
    with pytest.raises(MalformedDatagram) as caught:
        control.unpack_transfers_untrusted(body(vector))
    assert caught.value.reason == vector["reject"]


def test_full_lists_fit_any_datagram() -> None:
    rows = [EndRow(0, 0, 0)] * MAX_END_ROWS
    assert HEADER_SIZE + len(control.pack_ends(rows)) < 1280
    assert HEADER_SIZE + 2 * MAX_LISTED < 1280  # IPv6 minimum link (RFC 8200)


@good("bitmap")
def test_bitmap(vector: dict[str, Any]) -> None:
    bits = control.unpack_bits_untrusted(body(vector), vector["segments"])
    assert len(bits) == vector["segments"]
    assert np.flatnonzero(bits).tolist() == vector["indices"]
    assert pack_bits(bits) == body(vector)


@bad("bitmap")
def test_bitmap_rejected(vector: dict[str, Any]) -> None:
    with pytest.raises(MalformedDatagram) as caught:
        control.unpack_bits_untrusted(body(vector), vector["segments"])
    assert caught.value.reason == vector["reject"]


@given(st.binary(max_size=600), st.integers(1, 4096))
def test_random_bodies_raise_only_malformed_datagram(data: bytes, segments: int) -> None:
    for parse in (
        control.unpack_ready_untrusted,
        partial(control.unpack_ready_untrusted, carries=True),
        control.unpack_credit_untrusted,
        control.unpack_ends_untrusted,
        control.unpack_transfers_untrusted,
        lambda raw: control.unpack_bits_untrusted(raw, segments),
        lambda raw: control.unpack_permit_untrusted(raw, segments),
    ):
        assert reason_of(parse, data) in ("", "length", "body", "path")


def test_a_control_datagram_is_a_header_and_its_body() -> None:
    header = Header(Kind.NACK, 5, 7, round=2)
    data = control.datagram(header, b"\x01")
    assert Header.unpack_untrusted(data) == header
    assert control.body_untrusted(data) == b"\x01"
    assert control.body_untrusted(control.datagram(header)) == b""
