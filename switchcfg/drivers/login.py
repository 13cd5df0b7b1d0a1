"""Credentials for devices without SSH, read from the environment only.

SWITCHCFG_<KIND>_CA, such as SWITCHCFG_GNMI_CA, is required: the file of the CA that signs the
devices' certificates, because servers are always verified. _CERT and _KEY (files), _USER and
_PASSWORD are used if the devices need them.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from switchcfg.errors import Unreachable


@dataclass(frozen=True, slots=True)
class Login:
    """Credentials of one kind of device. Files are checked when they are used."""

    ca: str
    cert: str
    key: str
    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login(ca={self.ca!r})"  # keeps the password out of tracebacks


def prefix(kind: str) -> str:
    """Prefix of the environment variables of one kind of device."""
    return f"SWITCHCFG_{kind}_"


def login(kind: str, environment: Mapping[str, str] = os.environ) -> Login:
    """Credentials for one kind of device. Raises: Unreachable if a required variable is missing."""
    before = prefix(kind)
    found = {
        name.lower(): environment.get(before + name, "")
        for name in ("CA", "CERT", "KEY", "USER", "PASSWORD")
    }
    if not found["ca"]:
        raise Unreachable(
            f"{before}CA is not set: name the file of the CA that signs the devices' certificates"
        )
    if bool(found["cert"]) != bool(found["key"]):
        raise Unreachable(f"{before}CERT and {before}KEY: set both or neither")
    return Login(**found)
