"""Where other ranks of this machine reach a private daemon."""

import secrets
import socket
from typing import Self


class Door:
    """A listening socket without a file: it is gone when nobody holds it any more."""

    def __init__(self) -> None:
        self.name = f"\0dlcp-{secrets.token_hex(16)}"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.bind(self.name)
        self.socket.listen()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()
