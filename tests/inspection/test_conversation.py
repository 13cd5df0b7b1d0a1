"""What commands of dlcpctl hear where they cannot even ask."""

import errno
import os
import socket

import pytest

from dlcpd.contract.errors import DaemonUnavailable
from dlcpd.inspection.conversation import Conversation


def test_no_descriptor_left_to_ask_with(monkeypatch: pytest.MonkeyPatch) -> None:
    def socket_of(*_: object) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket, "socket", socket_of)
    with pytest.raises(DaemonUnavailable, match="Too many open files"):
        Conversation("somewhere.sock")
