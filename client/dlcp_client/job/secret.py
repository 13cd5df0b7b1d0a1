"""The secret that the ranks of a job share, and the signatures made with it.

A signature proves to a rank that another rank wrote a value to the job's store, which does not
authenticate clients. The secret itself leaves no rank: it goes neither to the store, whose traffic
is unencrypted, nor to a daemon.
"""

import hashlib
import hmac
import json
import os
from pathlib import Path
from typing import Final

from dlcp_client.environment import Environment
from dlcpd.contract.errors import BadConfig
from dlcpd.ipc.held_folder import read_trusted

# A reader of the store can test guesses of the secret as fast as it can hash. So the secret must be
# random; 32 hexadecimal digits are 128 bits.
MIN_LENGTH: Final = 32  # bytes
MAX_LENGTH: Final = 4096
MIN_DIFFERENT: Final = 8  # bytes: 32 random hexadecimal digits have fewer once in 25 million
MAKE_ONE: Final = "generate a secret with `openssl rand -hex 32`, and give it to all ranks"


class JobSecret:
    """Never shown: it has no public attribute, and its repr does not contain it."""

    __slots__ = ("_key",)

    def __init__(self, text: bytes, source: str) -> None:
        """Raises: BadConfig naming `source`, if the secret can be guessed."""
        if not MIN_LENGTH <= len(text) <= MAX_LENGTH or len(set(text)) < MIN_DIFFERENT:
            raise BadConfig(
                f"{source}: the secret of a job is random and has {MIN_LENGTH} to {MAX_LENGTH} "
                f"bytes; {MAKE_ONE}"
            )
        self._key = hashlib.sha256(b"dlcpd job secret" + text).digest()

    def __repr__(self) -> str:
        return "JobSecret(...)"

    def tag(self, purpose: str, *parts: str) -> str:
        """64 hexadecimal digits that only a holder of the secret can compute: HMAC-SHA256.

        Tags of different purposes, or parts, are unrelated.
        """
        message = json.dumps([purpose, *parts]).encode()  # JSON marks where each part ends
        return hmac.digest(self._key, message, "sha256").hex()

    def proves(self, tag: str, purpose: str, *parts: str) -> bool:
        """Whether `tag` is valid for purpose and parts."""
        return hmac.compare_digest(tag.encode(), self.tag(purpose, *parts).encode())


def job_secret(environment: Environment) -> JobSecret | None:
    """The secret of this process's job, or None. Raises: BadConfig."""
    if environment.secret and environment.secret_file:
        raise BadConfig("DLCPD_JOB_SECRET and DLCPD_JOB_SECRET_FILE are both set: unset one")
    if environment.secret_file:
        source = f"DLCPD_JOB_SECRET_FILE={environment.secret_file}"
        return JobSecret(_read(environment.secret_file, source), source)
    if environment.secret:
        return JobSecret(os.fsencode(environment.secret).strip(), "DLCPD_JOB_SECRET")
    return None


def _read(file: Path, source: str) -> bytes:
    """The content of `file`. Raises: BadConfig."""
    try:
        return read_trusted(file, MAX_LENGTH + 1, forbidden=0o077).strip()
    except OSError as exc:
        raise BadConfig(f"{source}: this process cannot read the file: {exc.strerror}") from exc
