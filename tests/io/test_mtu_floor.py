"""What forged ICMP has told the kernel of a path makes no segment shorter than the base size."""

import pytest

from dlcpd.core.endpoint import Endpoint, PeerSpec
from dlcpd.core.paths.pacing import Pacer
from dlcpd.core.send_scheduler import SendScheduler
from dlcpd.core.wire.sizes import BASE
from dlcpd.io.discovery.mtu import MtuDiscovery
from dlcpd.io.udp import mmsg


class Path:
    index = 0
    address = ("127.0.0.1", 9)

    def __init__(self) -> None:
        self.too_big: list[tuple[int, int]] = []

    def limit(self, peer: int, size: int) -> None: ...

    def send_control(self, control: object) -> None: ...


@pytest.mark.parametrize(("mtu", "largest"), [(200, 8896), (552, 8896), (1279, 1408), (552, 1024)])
def test_a_segment_has_the_base_size_at_least(
    mtu: int, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mmsg, "route_mtu", lambda _here, _there: mtu)
    path = Path()
    endpoint = Endpoint(min(BASE, largest), 1 << 20, SendScheduler(Pacer(0)))
    session = endpoint.open_session(1, 0, [PeerSpec(1, "b", 1, 2, 1)], peer_timeout=1.0)
    mtus = MtuDiscovery(endpoint, [path], largest, lambda _news: None)
    mtus.begin(1, session.flows[1], [("127.0.0.1", 10)], 0.0)
    [way] = mtus._towards[session.flows[1].index].ways  # noqa: SLF001  # no one else tells it
    assert way.search.most == min(BASE, largest)
