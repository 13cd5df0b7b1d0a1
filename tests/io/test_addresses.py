"""Addresses of peers, as control hands them to the engine."""

import pytest

from dlcpd.io.commands import UdpAddress


@pytest.mark.parametrize(
    ("host", "here"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("::1", True), ("192.0.2.1", False), ("?", False)],
)
def test_datagrams_to_loopback_stay_on_this_host(host: str, here: bool) -> None:
    assert UdpAddress(host, 1).is_loopback is here
