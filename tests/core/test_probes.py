"""PROBE and PROBE_ACK: lengths, round trip, and whatever bytes come."""

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.contract.errors import MalformedDatagram
from dlcpd.core.wire import probes
from dlcpd.core.wire.header import HEADER_SIZE, Header, Kind

TOKEN = 0xABCD


@pytest.mark.parametrize("size", [64, 1184, 8928])
def test_a_probe_has_the_length_it_asks_about(size: int) -> None:
    probe = probes.pack_probe(TOKEN, 3, 0xFFFFFFFF, size)
    assert len(probe) == size
    assert Header.unpack_untrusted(probe) == Header(Kind.PROBE, TOKEN, path=3)
    assert probes.unpack_probe_untrusted(probe) == 0xFFFFFFFF
    assert not any(probe[HEADER_SIZE + 4 :])


def test_an_answer_is_smaller_than_any_question() -> None:
    answer = probes.pack_answer(TOKEN, 3, 7, 8928)
    assert len(answer) < probes.LEAST
    assert Header.unpack_untrusted(answer) == Header(Kind.PROBE_ACK, TOKEN, path=3)
    assert probes.unpack_answer_untrusted(answer) == (7, 8928)


@given(st.binary(max_size=128))
def test_any_bytes_are_a_value_or_refused(data: bytes) -> None:
    for unpack in (probes.unpack_probe_untrusted, probes.unpack_answer_untrusted):
        with contextlib.suppress(MalformedDatagram):
            unpack(data)


@pytest.mark.parametrize("size", [0, 31, 32, 36, 63])
def test_a_short_question_gets_no_answer(size: int) -> None:
    with pytest.raises(MalformedDatagram):
        probes.unpack_probe_untrusted(bytes(size))
