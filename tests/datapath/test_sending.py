"""C makes the headers that numpy makes."""

import ctypes

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcpd.core.wire.datagram import Transmit
from dlcpd.core.wire.header import HEADER_SIZE, Header, Kind
from dlcpd.io.datapath.choices import COMPILED
from dlcpd.io.datapath.library import Library
from dlcpd.io.datapath.sending import CompiledSender
from tests.io.batches import data_path

NAME = np.zeros(16, np.uint8)


def headers(library: Library, batch: Transmit, row: int, end: int) -> bytes:
    sender = CompiledSender(library, 2, [0] * 32)
    sender.begin(batch, NAME, -1, gso=True)
    out = np.zeros((end - row, HEADER_SIZE), np.uint8)
    library.dlcpd_headers(sender.at, row, end, ctypes.c_void_p(out.ctypes.data))
    return out.tobytes()


@settings(max_examples=200, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.integers(0, 4095), st.integers(0, 31), st.integers(0, 7)),
        min_size=1,
        max_size=70,
    ),
    number=st.integers(0, (1 << 32) - 1),
    sent_at=st.integers(0, (1 << 32) - 1),
    token=st.integers(0, (1 << 64) - 1),
    begin=st.integers(0, 69),
)
def test_headers_are_numpys(
    rows: list[tuple[int, int, int]], number: int, sent_at: int, token: int, begin: int
) -> None:
    found = data_path(COMPILED)
    assert found is not None
    segments, tags, flags = (np.array(column) for column in zip(*rows, strict=True))
    first = Header(Kind.DATA, token, 5, 6, 7, 0, 8, path=3, packet_number=number, sent_at=sent_at)
    batch = Transmit(
        1,
        3,
        first,
        flags.astype(np.uint8),
        np.zeros(8, np.uint8),
        segments.astype(np.intp),
        64,
        tags.astype(np.uint8),
    )
    begin = min(begin, len(rows) - 1)
    wanted = batch.headers()[begin:].tobytes()
    assert headers(found.library, batch, begin, len(rows)) == wanted
