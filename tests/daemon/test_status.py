"""A report of any size reaches the client that asks, and a client that does not read holds few."""

import socket
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from dlcpd.contract.errors import BadMessage
from dlcpd.contract.frames import decode_untrusted, encode
from dlcpd.contract.inquiries import MAX_PARTS, STATUS_PART, Status
from dlcpd.contract.messages import Hello, Welcome
from dlcpd.daemon.clients.connection import MAX_LONG
from dlcpd.daemon.status import WallClockOffset
from dlcpd.inspection.report import query
from tests.daemon.kit import Client, Daemon, configuration
from tests.daemon.report_sizes import cost

BIG = "big"  # mode of the stand-in: its reports have PEERS rows
RANKS, PEERS, PATHS = 8, 255, 16


def test_a_report_of_256_ranks_and_16_paths_is_whole(tmp_path: Path) -> None:
    with Daemon(configuration(tmp_path), mode=BIG) as daemon:
        report = query(str(daemon.socket), 0)
    engine = report["engine"]
    assert "error" not in engine and "truncated" not in engine
    assert len(engine["sessions"]) == RANKS
    for session in engine["sessions"].values():
        assert [peer["rank"] for peer in session["peers"]] == list(range(1, PEERS + 1))
        assert {len(peer["paths"]) for peer in session["peers"]} == {PATHS}


@pytest.mark.parametrize(("ranks", "paths"), [(8, 1), (64, 4)])
def test_the_table_of_costs_counts_every_row(tmp_path: Path, ranks: int, paths: int) -> None:
    measured = cost(tmp_path, ranks, paths, questions=1)
    assert measured.peers == RANKS * (ranks - 1) * paths
    assert measured.size > 100 * measured.peers and measured.health >= 0


def test_clients_that_do_not_read_hold_few_reports(tmp_path: Path) -> None:
    with Daemon(configuration(tmp_path), mode=BIG) as daemon:
        clients = []
        for _ in range(MAX_LONG + 1):
            client = Client.connect(daemon.socket)
            client.greet()
            clients.append(client)
        heads = [client.status_part() for client in clients]
        assert all(head.left > 10 for head in heads)
        first = clients[0]  # the oldest made room
        while isinstance(message := first.receive(), Status):
            assert message.left
        assert message is None
        second = clients[1].rest_of_status(heads[1])
        assert len(second["engine"]["sessions"]) == RANKS
        for client in clients:
            client.close()


def test_a_start_is_told_by_the_wall_clock_of_now_and_is_the_same_in_all_reports() -> None:
    """Else `changes(dlcpd_start_time_seconds)` would count reports, or the start of a daemon on a
    host that booted with a wrong clock would be wrong for ever."""
    step = 0.0
    epoch = WallClockOffset(lambda: time.time() + step)
    known = {epoch.now() for _ in range(100)}
    step = 0.4
    known.add(epoch.now())
    assert len(known) == 1, "a clock that is slewed"
    for step in (3600.0, -3600.0):
        assert epoch.now() - min(known) == pytest.approx(step, abs=0.5)
        assert epoch.now() == epoch.now()


def test_parts_out_of_order_are_refused(tmp_path: Path) -> None:
    parts = Status.parts({"text": "x" * 3 * STATUS_PART})
    assert [part.left for part in parts] == [3, 2, 1, 0]
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listener.bind(str(tmp_path / "s"))
    listener.listen()

    def serve() -> None:
        client, _ = listener.accept()
        with client:
            assert isinstance(decode_untrusted(client.recv(1 << 16)), Hello)
            client.sendall(encode(Welcome(1, "alpha", "tcp://10.0.0.1:5000", "k" * 40)))
            client.recv(1 << 16)
            for part in (parts[0], parts[2]):
                client.sendall(encode(part))

    thread = threading.Thread(target=serve)
    thread.start()
    with listener, pytest.raises(BadMessage, match="out of order"):
        query(str(tmp_path / "s"), 0)
    thread.join()


@pytest.mark.parametrize("size", [0, 1, STATUS_PART, STATUS_PART + 1])
def test_parts_are_the_report(size: int) -> None:
    value: dict[str, Any] = {"text": "x" * size}
    *first, last = Status.parts(value)
    assert last.read(b"".join(part.report for part in first)) == value
    assert len(first) < MAX_PARTS and not last.left
