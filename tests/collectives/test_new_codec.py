"""A codec is one row of `KINDS` and the module that it names."""

import numpy as np
import pytest

from dlcp_lab.simulation.reference import copies, draw
from dlcpd.contract.codec import KINDS, CodecKind, CodecName, parsed
from dlcpd.core.wire.datagram import Bytes
from dlcpd.numerics.codecs.codec import Grain, Numbers
from dlcpd.numerics.codecs.names import codec_of
from tests.collectives.test_codecs import COUNT, NAME, Net, network, reference


class Rounded:
    """Float32 without the lower half of its mantissa, in four bytes."""

    name, block, item, grain = "rounded", 1, 4, Grain(1, 4)

    def head(self, count: int) -> int:
        return 0

    def body(self, count: int) -> int:
        return 4 * count

    def encode(self, numbers: Numbers, head: Bytes, body: Bytes) -> None:
        body.view(np.uint32)[:] = numbers.view(np.uint32) & np.uint32(0xFFFFF000)

    def decode(self, head: Bytes, body: Bytes, numbers: Numbers) -> None:
        numbers[:] = body.view(np.float32)

    def items(self, head: Bytes, body: Bytes, count: int) -> Numbers:
        return body.view(np.float32)


def codec(_wanted: CodecName) -> Rounded:
    return Rounded()


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> Net:
    monkeypatch.setitem(KINDS, "rounded", CodecKind(__name__))
    return network()


def test_a_new_codec_is_known_by_its_name_and_carries_an_operation(net: Net) -> None:
    assert parsed("rounded") == ("rounded", 0.0)
    assert codec_of("rounded").name == "rounded"
    parts = draw("float32", 3, COUNT, seed=5)
    held = copies(parts)
    net.submit_all(1, held, name=NAME, codec="rounded")
    net.run()
    expected = reference(net, parts, "rounded", "float32", "sum")
    assert all(tensor.tobytes() == expected.tobytes() for tensor in held)
