"""Who logs in where SSH does not: from the environment, and from nowhere else.

SWITCHCFG_GNMI_CA and so on, or SWITCHCFG_EOS_CA: the file with who signs devices' certificates is
needed, because servers are always verified; _CERT and _KEY (files), _USER and _PASSWORD as the
devices ask for them.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from switchcfg.errors import Unreachable


@dataclass(frozen=True, slots=True)
class Login:
    """How to log in. Files are checked when they are used."""

    ca: str
    cert: str
    key: str
    user: str
    password: str

    def __repr__(self) -> str:
        return f"Login(ca={self.ca!r})"  # a password is nothing for a traceback


def prefix(kind: str) -> str:
    """What the variables of one kind of device begin with."""
    return f"SWITCHCFG_{kind}_"


def login(kind: str, environment: Mapping[str, str] = os.environ) -> Login:
    """For one kind of device. Raises: Unreachable where what is needed is missing."""
    before = prefix(kind)
    found = {
        name.lower(): environment.get(before + name, "")
        for name in ("CA", "CERT", "KEY", "USER", "PASSWORD")
    }
    if not found["ca"]:
        raise Unreachable(f"{before}CA is not set: a file with who signs devices' certificates")
    if bool(found["cert"]) != bool(found["key"]):
        raise Unreachable(f"{before}CERT and {before}KEY: need both or none")
    return Login(**found)
