"""Both sides of a connection between controls, with randomness that is the same in every run.

Else no input could reach beyond the first answer: each has a key and a cookie of its own.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final
from unittest.mock import patch

from nacl.bindings import crypto_box_seed_keypair

from dlcpd.daemon.peers.curve import Cipher, ClientHandshake, ServerHandshake
from dlcpd.daemon.peers.frames import FrameReader, check_greeting_untrusted, greeting
from dlcpd.daemon.peers.keys import KEY_BYTES, KeyPair

CLIENT, SERVER, SHORT = (
    KeyPair(*crypto_box_seed_keypair(bytes([number]) * KEY_BYTES)) for number in range(3)
)
Step = Callable[[bytes], object]  # the other side's next frame


@contextmanager
def _no_chance() -> Iterator[None]:
    with (
        patch.object(KeyPair, "new", lambda: SHORT),
        patch("dlcpd.daemon.peers.curve.secrets.token_bytes", bytes),
    ):
        yield


def called(data: bytes) -> None:
    """What somebody sends who connects to a control. Raises: BrokenStream."""
    with _no_chance():
        server = ServerHandshake(SERVER)
        _read(data, [check_greeting_untrusted, server.welcome, server.client, _finish(server)])


def calling(data: bytes) -> None:
    """What somebody sends to whom a control connects. Raises: BrokenStream."""
    with _no_chance():
        client = ClientHandshake(CLIENT, SERVER.public)
        client.hello()
        _read(data, [check_greeting_untrusted, client.initiate, client.finish])


def _finish(server: ServerHandshake) -> Step:
    """Of the server's side: what comes after the handshake."""

    def message(body: bytes) -> object:
        return server.ready()[1].open_untrusted(body)

    return message


def _read(data: bytes, steps: list[Step]) -> None:
    reader, left = FrameReader(), list(steps)
    while data and left:
        piece, data = data[: reader.wanted], data[reader.wanted :]
        if whole := reader.feed(piece):
            left.pop(0)(whole)


def conversation() -> tuple[bytes, bytes]:
    """All that a client says, a message included, and all that a server says."""
    with _no_chance():
        client, server = ClientHandshake(CLIENT, SERVER.public), ServerHandshake(SERVER)
        hello = client.hello()
        welcome = server.welcome(_body(hello))
        initiate = client.initiate(_body(welcome))
        server.client(_body(initiate))
        ready, _ = server.ready()
        message = client.finish(_body(ready)).seal(b"message")
    return (
        greeting(as_server=False) + hello + initiate + message,
        greeting(as_server=True) + welcome + ready,
    )


def _body(frame: bytes) -> bytes:
    """Without the header, which has 2 bytes or 9."""
    return frame[9:] if frame[0] & 2 else frame[2:]


def cipher() -> Cipher:
    """One end of a connection whose key is known here."""
    return Cipher(bytes(KEY_BYTES), b"CurveZMQMESSAGEC", b"CurveZMQMESSAGEC", 0, 0)


SEALED: Final = _body(cipher().seal(b"message"))
