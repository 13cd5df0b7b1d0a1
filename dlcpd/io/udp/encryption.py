"""Chooses the encryption of an engine's data. The library for it is loaded only if it is used."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from dlcpd.contract.errors import BadConfig

if TYPE_CHECKING:
    from dlcpd.io.udp.encrypted_path import Encryption

NONE, AES_256_GCM = "none", "aes-256-gcm"
CHOICES: Final = (NONE, AES_256_GCM)


def encryption(setting: str) -> Encryption | None:
    """The encryption for `setting`, one of CHOICES; None: datagrams are sent in clear.

    Raises: BadConfig.
    """
    if setting == NONE:
        return None
    try:
        from dlcpd.io.udp.encrypted_path import Encryption  # noqa: PLC0415  # see above
    except ImportError as exc:
        raise BadConfig(
            f"[network] data_encryption {setting!r} needs the package cryptography, 45 or later "
            f"({exc}): pip install 'dlcpd[encryption]'"
        ) from exc
    return Encryption()
