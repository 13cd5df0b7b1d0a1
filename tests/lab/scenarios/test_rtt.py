"""`bench rtt`: connections that are told their congestion control, and one small run."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from dlcp_lab.emulation import cables
from dlcp_lab.scenarios.rtt import Measured
from dlcp_lab.scenarios.rtt import Path as NetworkPath
from dlcp_lab.scenarios.tcp import Connections
from dlcpd.contract.errors import BadConfig
from dlcpd.ctl import main as command


@pytest.fixture
def connected() -> Iterator[tuple[Connections, socket.socket, socket.socket]]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        with (
            Connections() as made,
        ):
            one = socket.create_connection(server.getsockname())
            other, _ = server.accept()
            beside = socket.create_server(("127.0.0.1", 0))
            unrelated = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with one, other, beside, unrelated:
            yield made, one, other
    made.close()


def test_both_ends_of_a_new_connection_change_their_congestion_control(
    connected: tuple[Connections, socket.socket, socket.socket],
) -> None:
    made, one, other = connected
    assert len(made.made) == 2
    made.control("reno")
    for end in (one, other):
        used = end.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16)
        assert used.rstrip(b"\0") == b"reno"
    with pytest.raises(BadConfig, match="TCP congestion control none-such: "):
        made.control("none-such")


def test_segments_with_data_are_counted(
    connected: tuple[Connections, socket.socket, socket.socket],
) -> None:
    made, one, other = connected
    assert made.segments() == (0, 0)
    one.sendall(b"data")
    assert other.recv(4) == b"data"
    assert made.segments() == (1, 0)


def test_shares_are_of_the_packets_of_their_kind() -> None:
    one = Measured([1.0], segments=1000, again=20, packets=1500, lost=15)
    one.add(Measured([2.0], segments=1000, again=0, packets=500, lost=5))
    assert one.times == [1.0, 2.0]
    assert (one.again_share, one.lost_share, one.again_per_lost) == (0.01, 0.01, 1.0)


def test_ports_of_a_long_path_hold_its_product() -> None:
    short, long = NetworkPath("50mbit", 0.002), NetworkPath("200mbit", 0.05)
    assert short.plan(2, 1)["buffer_bytes"] == 256 << 10
    assert long.plan(2, 1)["buffer_bytes"] == 1_250_000
    assert long.plan(4, 1)["delays"] == (("", 0.0125),)
    assert long.name(0.01) == "200mbit, 50 ms, loss 0.01"


@pytest.mark.netns
@pytest.mark.skipif(not cables.compiler(), reason="no C compiler")
def test_one_path(tmp_path: Path) -> None:
    file = tmp_path / "rtt.json"
    words = "--rates 50mbit --round-trips 4ms --losses 2% --size 64K --repeat 3 --seeds 1"
    code = command.main(["bench", "rtt", *words.split(), "--json", str(file)])
    document = json.loads(file.read_text())
    assert document["failed"] == []
    rows = {name.rpartition("0.02, ")[2]: row for name, *row in document["rows"]}
    assert rows.keys() == {"exact", "bounded", "gloo, bbr", "gloo, cubic"}
    for name, times in document["data"].items():
        assert name.startswith("50mbit, 4 ms, loss 0.02, ")
        assert len(times) == 3
        assert min(times) > 0.004  # a contribution there, a result back
    assert code == (0 if all(claim["holds"] for claim in document["claims"]) else 1)
