"""Descriptors that a session needs beside those that it begins with."""

import os

import pytest

from dlcpd.contract.errors import TooMany
from dlcpd.daemon.sessions import session


def test_when_none_is_left_those_made_are_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    reading, writing = os.pipe()
    made: list[int] = []

    def dup(descriptor: int) -> int:
        if len(made) == 2:
            raise OSError(24, "Too many open files")
        made.append(real(descriptor))
        return made[-1]

    real = os.dup
    monkeypatch.setattr(os, "dup", dup)
    try:
        with pytest.raises(TooMany, match="no descriptor left for a session: Too many open"):
            session.duplicates(reading, 3)
        for descriptor in made:
            with pytest.raises(OSError, match="Bad file"):
                os.fstat(descriptor)
    finally:
        os.close(reading)
        os.close(writing)
