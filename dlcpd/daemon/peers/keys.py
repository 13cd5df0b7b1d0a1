"""CURVE keys: a control process's key pair, and keys as text in Z85 (ZeroMQ RFC 32)."""

import base64
from dataclasses import dataclass, field
from typing import Final

from nacl.bindings import crypto_box_keypair, crypto_scalarmult_base

KEY_BYTES: Final = 32
KEY_CHARACTERS: Final = 40
# Z85 is the base 85 of RFC 1924, which Python has, with other digits.
_Z85: Final = (
    b"0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
)
_B85: Final = (
    b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz!#$%&()*+-;<=>?@^_`{|}~"
)
_TO_Z85: Final = bytes.maketrans(_B85, _Z85)
_FROM_Z85: Final = bytes.maketrans(_Z85, _B85)


@dataclass(frozen=True, slots=True)
class KeyPair:
    """`secret` never leaves this process, except into the file of an identity."""

    public: bytes
    secret: bytes = field(repr=False)

    @classmethod
    def new(cls) -> "KeyPair":
        """A new random pair."""
        return cls(*crypto_box_keypair())

    @classmethod
    def of_secret(cls, secret: bytes) -> "KeyPair":
        """The pair that `secret` belongs to."""
        return cls(crypto_scalarmult_base(secret), secret)

    @property
    def text(self) -> str:
        """The public key in Z85."""
        return key_text(self.public)


def key_text(key: bytes) -> str:
    """The 40 characters of a key."""
    return base64.b85encode(key).translate(_TO_Z85).decode("ascii")


def key_bytes(text: str) -> bytes:
    """Raises: ValueError when `text` is no key."""
    digits = text.encode("ascii")
    if len(digits) != KEY_CHARACTERS or digits.translate(None, _Z85):
        raise ValueError("a key is 40 characters of Z85")
    return base64.b85decode(digits.translate(_FROM_Z85))
