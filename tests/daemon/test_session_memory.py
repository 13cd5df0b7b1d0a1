"""What a session needs from the kernel, and what it is told when there is no more of it."""

import errno
import os

import pytest

from dlcpd.contract.errors import TooMany
from dlcpd.daemon.sessions.session import resources
from tests.descriptors import open_descriptors


def test_a_session_without_descriptors_is_one_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    before = open_descriptors()
    monkeypatch.setattr("socket.socketpair", refuse)
    with pytest.raises(TooMany, match="Too many open files"):
        resources(1 << 16, 1)
    assert open_descriptors() == before
