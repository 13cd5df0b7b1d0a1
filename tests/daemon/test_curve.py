"""The handshake of CurveZMQ, both sides of it; with libzmq at the other end: test_peers."""

from collections.abc import Callable

import pytest
from nacl.bindings import crypto_box

from dlcpd.daemon.peers import curve
from dlcpd.daemon.peers.curve import (
    COMMAND,
    MORE,
    OVERHEAD,
    Cipher,
    ClientHandshake,
    ServerHandshake,
    TurnedAway,
)
from dlcpd.daemon.peers.frames import BrokenStream
from dlcpd.daemon.peers.keys import KEY_BYTES, KeyPair

Change = Callable[[str, bytes], bytes]  # name of a step and its body -> what arrives
STEPS = ("hello", "welcome", "initiate", "ready")


def body(frame: bytes) -> bytes:
    """Without the header, which has 2 bytes or 9."""
    return frame[9:] if frame[0] & 2 else frame[2:]


def as_it_is(_: str, data: bytes) -> bytes:
    return data


def shake_hands(
    change: Change = as_it_is, *, client: KeyPair | None = None, expected: bytes = b""
) -> tuple[bytes, Cipher, Cipher]:
    """The client's key as the server knows it, and the ciphers of client and server."""
    keys = KeyPair.new()
    server = ServerHandshake(keys)
    shake = ClientHandshake(client or KeyPair.new(), expected or keys.public)
    hello = change("hello", body(shake.hello()))
    welcome = change("welcome", body(server.welcome(hello)))
    initiate = change("initiate", body(shake.initiate(welcome)))
    key = server.client(initiate)
    ready, cipher = server.ready()
    return key, shake.finish(change("ready", body(ready))), cipher


def test_the_server_learns_the_clients_key_and_both_can_speak() -> None:
    keys = KeyPair.new()
    key, client, server = shake_hands(client=keys)
    assert key == keys.public
    for size in (0, 1, 255, 70_000):
        sealed = client.seal(b"x" * size, MORE)
        assert len(body(sealed)) == size + OVERHEAD
        assert server.open_untrusted(body(sealed)) == (MORE, b"x" * size)
        assert client.open_untrusted(body(server.seal(b"y" * size))) == (0, b"y" * size)
    assert server.open_untrusted(body(client.seal(b"\x04PING", COMMAND)))[0] == COMMAND


@pytest.mark.parametrize("step", STEPS)
def test_a_step_with_any_byte_changed_is_refused(step: str) -> None:
    """But for the padding of HELLO, which means nothing."""
    sizes: dict[str, int] = {}

    def measure(name: str, data: bytes) -> bytes:
        sizes[name] = len(data)
        return data

    shake_hands(measure)
    for at in range(sizes[step]):
        if step == "hello" and 8 <= at < 80:
            continue

        def flip(name: str, data: bytes, at: int = at) -> bytes:
            return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :] if name == step else data

        with pytest.raises(BrokenStream):
            shake_hands(flip)


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("size", [0, 1, 8, 20, -1])
def test_a_step_cut_short_is_refused(step: str, size: int) -> None:
    with pytest.raises(BrokenStream):
        shake_hands(lambda name, data: data[:size] if name == step else data)


def test_a_server_without_the_key_is_found_out() -> None:
    with pytest.raises(BrokenStream):
        shake_hands(expected=KeyPair.new().public)


def test_nobody_can_borrow_the_key_of_another() -> None:
    """Who claims a public key without its secret cannot make the vouch."""
    stolen = KeyPair(KeyPair.new().public, KeyPair.new().secret)
    with pytest.raises(BrokenStream):
        shake_hands(client=stolen)


def test_a_vouch_for_another_connection_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def other(plain: bytes, nonce: bytes, public: bytes, secret: bytes) -> bytes:
        vouch = nonce.startswith(b"VOUCH")
        return crypto_box(bytes(len(plain)) if vouch else plain, nonce, public, secret)

    monkeypatch.setattr(curve, "crypto_box", other)
    with pytest.raises(BrokenStream, match="vouch"):
        shake_hands()


def test_a_recorded_handshake_opens_nothing_again() -> None:
    keys, heard = KeyPair.new(), dict[str, bytes]()
    first, second = ServerHandshake(keys), ServerHandshake(keys)
    shake = ClientHandshake(KeyPair.new(), keys.public)
    heard["hello"] = body(shake.hello())
    heard["initiate"] = body(shake.initiate(body(first.welcome(heard["hello"]))))
    first.client(heard["initiate"])
    second.welcome(heard["hello"])
    with pytest.raises(BrokenStream):
        second.client(heard["initiate"])


def test_a_key_of_small_order_is_refused() -> None:
    """With it anybody knows the shared key."""
    with pytest.raises(BrokenStream):
        ClientHandshake(KeyPair.new(), bytes(KEY_BYTES)).hello()
    with pytest.raises(BrokenStream):
        shake_hands(
            lambda name, data: (
                data[:80] + bytes(KEY_BYTES) + data[112:] if name == "hello" else data
            )
        )


def test_a_message_again_or_changed_or_of_the_other_side_is_refused() -> None:
    _, client, server = shake_hands()
    one, two = body(client.seal(b"one")), body(client.seal(b"two"))
    assert server.open_untrusted(one) == (0, b"one")
    assert server.open_untrusted(two) == (0, b"two")
    for wrong in (one, two, body(server.seal(b"own")), b"", b"\x07MESSAGE", one[:30]):
        with pytest.raises(BrokenStream):
            server.open_untrusted(wrong)
    three = bytearray(body(client.seal(b"three")))
    three[-1] ^= 1
    with pytest.raises(BrokenStream):
        server.open_untrusted(bytes(three))


@pytest.mark.parametrize("from_client", [True, False])
def test_a_message_after_an_omitted_one_is_refused(*, from_client: bool) -> None:
    _, client, server = shake_hands()
    sender, receiver = (client, server) if from_client else (server, client)
    omitted, later = body(sender.seal(b"omitted")), body(sender.seal(b"later"))
    with pytest.raises(BrokenStream, match=r"message \d+ after message \d+"):
        receiver.open_untrusted(later)
    assert receiver.open_untrusted(omitted) == (0, b"omitted"), "the refused one changed nothing"


def test_who_is_turned_away_learns_why_and_from_whom() -> None:
    keys = KeyPair.new()
    client, server = ClientHandshake(KeyPair.new(), keys.public), ServerHandshake(keys)
    server.client(body(client.initiate(body(server.welcome(body(client.hello()))))))
    error = body(server.error("not_authorised"))
    assert b"not_authorised" not in error, "who listens does not learn it"
    other = b"0" if error[-1:] != b"0" else b"1"  # the text of an ERROR is hexadecimal
    for changed in (error[:-1] + other, error[:20], b"\x05ERROR\x03400", b"\x05ERROR"):
        with pytest.raises(BrokenStream) as broken:
            client.finish(changed)
        assert not isinstance(broken.value, TurnedAway)
    with pytest.raises(TurnedAway) as caught:
        client.finish(error)
    assert caught.value.reason == "not_authorised"
