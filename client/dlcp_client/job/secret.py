"""The secret that the ranks of a job share, and what they prove with it.

It proves to a rank that what it finds in the job's store was put there by another rank: a store
asks nobody who they are. The secret itself goes nowhere: not to the store, whose traffic is in
clear, and not to a daemon.
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

# Whoever reads the store can try guesses against what it finds there, as fast as hashes go: so it
# has to be random, and 32 hexadecimal digits are 128 bits.
MIN_LENGTH: Final = 32  # bytes
MAX_LENGTH: Final = 4096
MIN_DIFFERENT: Final = 8  # bytes: of 32 random hexadecimal digits, fewer differ once in 25 million
MAKE_ONE: Final = "make one with `openssl rand -hex 32`, the same for all ranks"


class JobSecret:
    """Never shown: it has no public part, and its repr says nothing."""

    __slots__ = ("_key",)

    def __init__(self, text: bytes, source: str) -> None:
        """Raises: BadConfig naming `source`, for what can be guessed."""
        if not MIN_LENGTH <= len(text) <= MAX_LENGTH or len(set(text)) < MIN_DIFFERENT:
            raise BadConfig(
                f"{source}: a job's secret is random and has {MIN_LENGTH} to {MAX_LENGTH} bytes; "
                f"{MAKE_ONE}"
            )
        self._key = hashlib.sha256(b"dlcpd job secret" + text).digest()

    def __repr__(self) -> str:
        return "JobSecret(...)"

    def tag(self, purpose: str, *parts: str) -> str:
        """64 hexadecimal digits that only a holder of the secret can work out: HMAC-SHA256.

        Tags of different purposes, or parts, have nothing to do with each other.
        """
        message = json.dumps([purpose, *parts]).encode()  # it says where each part ends
        return hmac.digest(self._key, message, "sha256").hex()

    def proves(self, tag: str, purpose: str, *parts: str) -> bool:
        """Whether `tag` is that of these."""
        return hmac.compare_digest(tag.encode(), self.tag(purpose, *parts).encode())


def job_secret(environment: Environment) -> JobSecret | None:
    """That of this process's job, if it has one. Raises: BadConfig."""
    if environment.secret and environment.secret_file:
        raise BadConfig("DLCPD_JOB_SECRET and DLCPD_JOB_SECRET_FILE are both set: unset one")
    if environment.secret_file:
        source = f"DLCPD_JOB_SECRET_FILE={environment.secret_file}"
        return JobSecret(_read(environment.secret_file, source), source)
    if environment.secret:
        return JobSecret(os.fsencode(environment.secret).strip(), "DLCPD_JOB_SECRET")
    return None


def _read(file: Path, source: str) -> bytes:
    """Raises: BadConfig."""
    try:
        return read_trusted(file, MAX_LENGTH + 1, forbidden=0o077).strip()
    except OSError as exc:
        raise BadConfig(f"{source}: cannot be read: {exc.strerror}") from exc
