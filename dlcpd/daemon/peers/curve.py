"""CurveZMQ (ZeroMQ RFC 26): authenticates both ends and encrypts messages.

Both sides of the handshake, and the cipher that results. The cryptography is libsodium's. Pure: no
socket, no clock. Keys are 32 bytes; each handshake also draws a short-term pair.
"""

import hmac
import secrets
from typing import Final

from nacl.bindings import crypto_box, crypto_box_afternm, crypto_box_beforenm, crypto_box_open
from nacl.bindings import crypto_box_open_afternm as open_afternm
from nacl.exceptions import CryptoError

from dlcpd.daemon.peers.frames import BrokenStream, frame
from dlcpd.daemon.peers.keys import KEY_BYTES, KeyPair

MORE: Final = 1  # flags of a message: another part follows
COMMAND: Final = 2  # a command of the protocol, such as a heartbeat
_NONCE: Final = 8  # bytes of a counter; random nonces have 16
_LONG_NONCE: Final = 16
_BOX: Final = 16  # bytes that encryption adds
_COOKIE: Final = 96
OVERHEAD: Final = 33  # bytes of a frame beside the message: name, nonce, encryption and flags
_HELLO: Final = b"\x05HELLO"
_HELLO_BYTES: Final = 200
_HELLO_VERSION: Final = b"\x01\x00" + bytes(72)  # the padding: HELLO is longer than its answer
_WELCOME: Final = b"\x07WELCOME"
_WELCOME_BYTES: Final = 168
_INITIATE: Final = b"\x08INITIATE"
_VOUCH_BYTES: Final = 2 * KEY_BYTES + _BOX
_READY: Final = b"\x05READY"
_ERROR: Final = b"\x05ERROR"
_MAX_REASON: Final = 64  # characters of an error's code
_MESSAGE: Final = b"\x07MESSAGE"
# Nonces: these prefixes and a counter of 8 bytes, or 16 random bytes.
_N_HELLO, _N_WELCOME, _N_VOUCH = b"CurveZMQHELLO---", b"WELCOME-", b"VOUCH---"
_N_INITIATE, _N_READY = b"CurveZMQINITIATE", b"CurveZMQREADY---"
_N_ERROR = b"CurveZMQERROR---"  # not of RFC 26: its errors are in clear, and can be forged
_N_CLIENT, _N_SERVER = b"CurveZMQMESSAGEC", b"CurveZMQMESSAGES"


class TurnedAway(BrokenStream):
    """The server, authenticated, refused this client; `reason` is its error code."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"turned away: {reason}")
        self.reason = reason


class Cipher:
    """Encrypts the messages of one connection.

    Rejects changed, replayed and reordered ones, and those after an omitted one: TCP loses none, so
    another counter than the next is an attack.
    """

    def __init__(self, shared: bytes, ours: bytes, theirs: bytes, sent: int, received: int) -> None:
        self._shared, self._ours, self._theirs = shared, ours, theirs
        self._sent, self._received = sent, received  # counters of the last nonces

    def seal(self, message: bytes, flags: int = 0) -> bytes:
        """The frame of an encrypted message."""
        self._sent += 1
        nonce = self._sent.to_bytes(_NONCE, "big")
        box = crypto_box_afternm(bytes([flags]) + message, self._ours + nonce, self._shared)
        return frame(_MESSAGE + nonce + box)

    def open_untrusted(self, body: bytes) -> tuple[int, bytes]:
        """Flags and message of a frame's body.

        Raises: BrokenStream.
        """
        start = len(_MESSAGE) + _NONCE
        nonce = body[len(_MESSAGE) : start]
        counter = int.from_bytes(nonce, "big")
        if body[: len(_MESSAGE)] != _MESSAGE or len(body) <= start + _BOX:
            raise BrokenStream("no MESSAGE")
        if counter != self._received + 1:
            raise BrokenStream(f"message {counter} after message {self._received}")
        try:
            plain = open_afternm(body[start:], self._theirs + nonce, self._shared)
        except CryptoError as exc:
            raise BrokenStream("a message that its key does not open") from exc
        self._received = counter
        return plain[0], plain[1:]


class ClientHandshake:
    """The connecting side. It accepts only the holder of `server_key`."""

    def __init__(self, keys: KeyPair, server_key: bytes) -> None:
        self._keys, self._server_key, self._short = keys, server_key, KeyPair.new()
        self._shared = b""

    def hello(self) -> bytes:
        """The frame HELLO. Raises: BrokenStream for an invalid server key."""
        nonce = (1).to_bytes(_NONCE, "big")
        box = _seal(bytes(64), _N_HELLO + nonce, self._server_key, self._short.secret)
        body = _HELLO + _HELLO_VERSION + self._short.public + nonce + box
        return frame(body, command=True)

    def initiate(self, welcome: bytes) -> bytes:
        """The frame INITIATE, which answers WELCOME. Raises: BrokenStream."""
        _check(welcome, _WELCOME, _WELCOME_BYTES)
        start = len(_WELCOME) + _LONG_NONCE
        nonce = _N_WELCOME + welcome[len(_WELCOME) : start]
        plain = _open(welcome[start:], nonce, self._server_key, self._short.secret)
        theirs, cookie = plain[:KEY_BYTES], plain[KEY_BYTES:]
        self._shared = _shared(theirs, self._short.secret)
        random = secrets.token_bytes(_LONG_NONCE)
        subject = self._short.public + self._server_key
        vouch = random + _seal(subject, _N_VOUCH + random, theirs, self._keys.secret)
        nonce = (2).to_bytes(_NONCE, "big")
        plain = self._keys.public + vouch + _metadata(b"DEALER")
        box = crypto_box_afternm(plain, _N_INITIATE + nonce, self._shared)
        return frame(_INITIATE + cookie + nonce + box, command=True)

    def finish(self, ready: bytes) -> Cipher:
        """The cipher, after READY. Raises: BrokenStream; TurnedAway if the server sent ERROR."""
        if ready.startswith(_ERROR):
            raise TurnedAway(_reason(ready, self._shared))
        start = len(_READY) + _NONCE
        if ready[: len(_READY)] != _READY or len(ready) < start + _BOX:
            raise BrokenStream("no READY")
        nonce = ready[len(_READY) : start]
        _open_shared(ready[start:], _N_READY + nonce, self._shared)
        received = int.from_bytes(nonce, "big")
        return Cipher(self._shared, _N_CLIENT, _N_SERVER, sent=2, received=received)


class ServerHandshake:
    """The listening side. After `client` the caller decides: `ready` admits the client, `error`
    refuses it.
    """

    def __init__(self, keys: KeyPair) -> None:
        self._keys = keys
        self._short: KeyPair  # made, like the cookie, only for a client that knows the server's key
        self._cookie = self._client_short = self._shared = b""
        self._received = 0

    def welcome(self, hello: bytes) -> bytes:
        """The frame WELCOME, which answers HELLO. Raises: BrokenStream."""
        _check(hello, _HELLO + _HELLO_VERSION[:2], _HELLO_BYTES)
        start = len(_HELLO) + len(_HELLO_VERSION)
        self._client_short = hello[start : start + KEY_BYTES]
        nonce, box = hello[start + KEY_BYTES :][:_NONCE], hello[start + KEY_BYTES + _NONCE :]
        _open(box, _N_HELLO + nonce, self._client_short, self._keys.secret)
        self._short = KeyPair.new()
        self._cookie = secrets.token_bytes(_COOKIE)  # random: the state is kept here
        random = secrets.token_bytes(_LONG_NONCE)
        plain = self._short.public + self._cookie
        box = _seal(plain, _N_WELCOME + random, self._client_short, self._keys.secret)
        return frame(_WELCOME + random + box, command=True)

    def client(self, initiate: bytes) -> bytes:
        """The client's key; INITIATE proves that the client holds it. Raises: BrokenStream."""
        start = len(_INITIATE) + _COOKIE + _NONCE
        least = start + 2 * _BOX + _LONG_NONCE + 3 * KEY_BYTES
        cookie = initiate[len(_INITIATE) : len(_INITIATE) + _COOKIE]
        if initiate[: len(_INITIATE)] != _INITIATE or len(initiate) < least:
            raise BrokenStream("no INITIATE")
        if not hmac.compare_digest(cookie, self._cookie):
            raise BrokenStream("another cookie than the one that was sent")
        self._shared = _shared(self._client_short, self._short.secret)
        nonce = initiate[start - _NONCE : start]
        plain = _open_shared(initiate[start:], _N_INITIATE + nonce, self._shared)
        key, vouch = plain[:KEY_BYTES], plain[KEY_BYTES:][: _LONG_NONCE + _VOUCH_BYTES]
        nonce_of_vouch = _N_VOUCH + vouch[:_LONG_NONCE]
        subject = _open(vouch[_LONG_NONCE:], nonce_of_vouch, key, self._short.secret)
        if not hmac.compare_digest(subject, self._client_short + self._keys.public):
            raise BrokenStream("a vouch for somebody else")
        self._received = int.from_bytes(nonce, "big")
        return key

    def ready(self) -> tuple[bytes, Cipher]:
        """The frame READY, which admits the client, and the cipher."""
        nonce = (1).to_bytes(_NONCE, "big")
        box = crypto_box_afternm(_metadata(b"ROUTER"), _N_READY + nonce, self._shared)
        cipher = Cipher(self._shared, _N_SERVER, _N_CLIENT, sent=1, received=self._received)
        return frame(_READY + nonce + box, command=True), cipher

    def error(self, reason: str) -> bytes:
        """The frame ERROR, which refuses the client; only the client can read `reason`."""
        nonce = (1).to_bytes(_NONCE, "big")
        box = crypto_box_afternm(reason.encode(), _N_ERROR + nonce, self._shared)
        text = (nonce + box).hex().encode()  # RFC 23: printable, and shorter than 256
        return frame(_ERROR + bytes([len(text)]) + text, command=True)


def _check(body: bytes, start: bytes, size: int) -> None:
    if len(body) != size or not body.startswith(start):
        raise BrokenStream(f"no {start[1:8].decode('ascii', 'replace')}")


def _seal(plain: bytes, nonce: bytes, public: bytes, secret: bytes) -> bytes:
    try:
        return crypto_box(plain, nonce, public, secret)
    except CryptoError as exc:
        raise BrokenStream("a key that is none") from exc


def _open(box: bytes, nonce: bytes, public: bytes, secret: bytes) -> bytes:
    try:
        return crypto_box_open(box, nonce, public, secret)
    except CryptoError as exc:
        raise BrokenStream("a box that its key does not open") from exc


def _shared(public: bytes, secret: bytes) -> bytes:
    try:
        return crypto_box_beforenm(public, secret)
    except CryptoError as exc:
        raise BrokenStream("a key that is none") from exc


def _open_shared(box: bytes, nonce: bytes, shared: bytes) -> bytes:
    try:
        return open_afternm(box, nonce, shared)
    except CryptoError as exc:
        raise BrokenStream("a box that its key does not open") from exc


def _reason(error: bytes, shared: bytes) -> str:
    try:
        sealed = bytes.fromhex(error[len(_ERROR) + 1 :].decode("ascii"))
    except ValueError as exc:
        raise BrokenStream("an error in clear") from exc
    if len(sealed) < _NONCE + _BOX:
        raise BrokenStream("an error without a reason")
    reason = _open_shared(sealed[_NONCE:], _N_ERROR + sealed[:_NONCE], shared)
    return reason[:_MAX_REASON].decode("ascii", "replace")


def _metadata(socket_type: bytes) -> bytes:
    """Metadata that libzmq checks; dlcpd ignores what it receives."""
    pairs = ((b"Socket-Type", socket_type), (b"Identity", b""))
    return b"".join(
        bytes([len(name)]) + name + len(value).to_bytes(4, "big") + value for name, value in pairs
    )
