"""A peer's end of a connection between controls, blocking, that may send anything."""

import socket
from typing import Self

from dlcpd.daemon.peers.curve import Cipher, ClientHandshake, ServerHandshake
from dlcpd.daemon.peers.frames import GREETING_BYTES, greeting
from dlcpd.daemon.peers.keys import KeyPair, key_bytes, key_text
from dlcpd.daemon.peers.peers import PeerAddress
from tests.daemon.kit import PATIENCE


class RawPeer:
    """An open connection: the handshake is over. `cipher` makes frames of what it says."""

    def __init__(self, sock: socket.socket, cipher: Cipher) -> None:
        self.sock, self.cipher = sock, cipher

    @classmethod
    def connect(cls, to: PeerAddress, keys: KeyPair) -> Self:
        """As a peer with these keys does; returns once it is let in."""
        sock = socket.create_connection(to.target, PATIENCE)
        return cls(sock, _call(sock, ClientHandshake(keys, key_bytes(to.key))))

    @classmethod
    def accept(cls, listener: socket.socket, keys: KeyPair) -> Self:
        """As a peer with these keys does; lets anybody in."""
        sock, _ = listener.accept()
        sock.settimeout(PATIENCE)
        try:
            return cls(sock, _serve(sock, ServerHandshake(keys)))
        except BaseException:
            sock.close()
            raise

    def say(self, message: bytes, flags: int = 0) -> None:
        """Raises: OSError once the other side has cut the connection."""
        self.sock.sendall(self.cipher.seal(message, flags))

    def hear(self) -> bytes:
        """The next message."""
        return self.cipher.open_untrusted(frame_of(self.sock))[1]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()


def listening(keys: KeyPair) -> tuple[PeerAddress, socket.socket]:
    """A port of 127.0.0.1 for `accept`, and what a Join calls it."""
    sock = socket.create_server(("127.0.0.1", 0))
    sock.settimeout(PATIENCE)
    port = sock.getsockname()[1]
    return PeerAddress(f"tcp://127.0.0.1:{port}", key_text(keys.public)), sock


def _call(sock: socket.socket, shake: ClientHandshake) -> Cipher:
    sock.sendall(greeting(as_server=False))
    exactly(sock, GREETING_BYTES)
    sock.sendall(shake.hello())
    sock.sendall(shake.initiate(frame_of(sock)))
    return shake.finish(frame_of(sock))


def _serve(sock: socket.socket, shake: ServerHandshake) -> Cipher:
    sock.sendall(greeting(as_server=True))
    exactly(sock, GREETING_BYTES)
    sock.sendall(shake.welcome(frame_of(sock)))
    shake.client(frame_of(sock))
    ready, cipher = shake.ready()
    sock.sendall(ready)
    return cipher


def frame_of(sock: socket.socket) -> bytes:
    """The body of the next one."""
    flags, size = exactly(sock, 2)
    if flags & 2:  # of the 8 bytes of a long one's length, `size` is the first
        size = int.from_bytes(exactly(sock, 7), "big")
    return exactly(sock, size)


def exactly(sock: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        got = sock.recv(size - len(data))
        if not got:
            raise ConnectionResetError("cut in the handshake")
        data += got
    return data
