import pytest
import zmq
from zmq.utils import z85

from dlcpd.daemon.peers.keys import KEY_CHARACTERS, KeyPair, key_bytes, key_text


def test_text_is_that_of_libzmq() -> None:
    for _ in range(100):
        public, _ = zmq.curve_keypair()
        assert key_text(key_bytes(public.decode())) == public.decode()
        ours = KeyPair.new().public
        assert key_text(ours) == z85.encode(ours).decode()


def test_a_pair_fits() -> None:
    pair = KeyPair.new()
    assert zmq.curve_public(key_text(pair.secret).encode()).decode() == key_text(pair.public)


@pytest.mark.parametrize(
    "text",
    ["", "0" * 39, "0" * 41, "0" * 39 + "~", "0" * 39 + "_", "#" * KEY_CHARACTERS, "é" * 40],
)
def test_other_text_is_no_key(text: str) -> None:
    with pytest.raises(ValueError, match=r"Z85|ascii|base85"):
        key_bytes(text)
