"""BUNDLE: vectors in both directions, any parts, and no input that raises more."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.contract.errors import MalformedDatagram
from dlcpd.core.wire import bundle
from dlcpd.core.wire.header import HEADER_SIZE, Header, Kind
from tests.core.test_control import bad, body, good

TOKEN, PATH, TAG = 0x0123456789ABCDEF, 1, 18
KINDS = sorted(set(Kind) - {Kind.BUNDLE, Kind.PIECE, Kind.PROBE, Kind.PROBE_ACK})
PARTS = st.lists(
    st.builds(
        lambda kind, operation, transfer, rest: (
            Header(kind, TOKEN, operation=operation, transfer=transfer, path=PATH, tag=TAG).pack()
            + rest
        ),
        st.sampled_from(KINDS),
        st.integers(0, (1 << 32) - 1),
        st.integers(0, (1 << 16) - 1),
        st.binary(max_size=40),
    ),
    max_size=bundle.MAX_PARTS,
)


@good("bundle")
def test_bundle(vector: dict[str, Any]) -> None:
    parts = [bytes.fromhex(part) for part in vector["parts"]]
    header = Header.unpack_untrusted(body(vector))
    assert bundle.pack(header.token, header.path, header.tag, parts) == body(vector)
    assert bundle.unpack_untrusted(body(vector)) == with_headers(parts)


@bad("bundle")
def test_bundle_rejected(vector: dict[str, Any]) -> None:
    with pytest.raises(MalformedDatagram) as caught:
        bundle.unpack_untrusted(body(vector))
    assert caught.value.reason == vector["reject"]


@given(PARTS)
def test_parts_come_back_in_order_and_cost_less_than_alone(parts: list[bytes]) -> None:
    packed = bundle.pack(TOKEN, PATH, TAG, parts)
    assert bundle.unpack_untrusted(packed) == with_headers(parts)
    saved = bundle.PART_SAVES * len(parts)
    assert len(packed) == HEADER_SIZE + sum(map(len, parts)) - saved


@given(PARTS, st.data())
def test_a_bundle_that_is_cut_off_has_no_parts_or_whole_ones(
    parts: list[bytes], data: st.DataObject
) -> None:
    packed = bundle.pack(TOKEN, PATH, TAG, parts)
    length = data.draw(st.integers(HEADER_SIZE, len(packed)))
    with suppress(MalformedDatagram):
        found = bundle.unpack_untrusted(packed[:length])
        assert found == with_headers(parts)[: len(found)]


def with_headers(parts: Sequence[bytes]) -> list[tuple[Header, bytes]]:
    return [(Header.unpack_untrusted(part), part) for part in parts]
