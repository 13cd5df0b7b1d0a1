"""Who is named when several leave because one was lost."""

import contextlib
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgpack
import pytest

from dlcpd.contract.frames import decode_untrusted, encode
from dlcpd.contract.messages import Failed
from tests.daemon.kit import Client, Daemon, configuration, join_all, until
from tests.io.engines import ask


@pytest.mark.parametrize("told", ["SessionFailed", "OperationsFailed"])
def test_a_client_that_leaves_after_bad_news_is_not_their_cause(tmp_path: Path, told: str) -> None:
    """Control of rank 1 finds both at once: its client is gone, and its engine has said why."""
    news: dict[str, dict[str, Any]] = {
        "SessionFailed": {"rank": 2, "code": "peer_lost", "text": "rank 2 is silent"},
        "OperationsFailed": {"failures": [(0, 1, [0], "deadline_exceeded", "rank 2 is silent")]},
    }
    first = configuration(tmp_path, "host-a", "127.0.0.1")
    second = configuration(tmp_path, "host-b", "127.0.0.2")
    with Daemon(first) as a, Daemon(second) as b, a.client() as survivor, b.client() as leaver:
        join_all([survivor, leaver], "job")
        stop(b)
        leaver.sock.close()
        leaver.emit(told, **news[told])
        assert_emitted(leaver)
        b.signal(signal.SIGCONT)
        assert "rank 2 is silent" in first_news(survivor)


def test_all_that_survive_name_the_rank_that_froze(tmp_path: Path) -> None:
    """Each leaves at its first bad news, as a trainer does that an exception ends."""
    daemons = [
        Daemon(configuration(tmp_path, f"host-{n}", more=impatient(f"127.0.0.{n + 1}")), mode="")
        for n in range(3)
    ]
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(stack.enter_context(d).client()) for d in daemons]
        join_all(clients, "job")
        frozen = daemons[1].engine_pid
        os.kill(frozen, signal.SIGSTOP)
        stack.callback(os.kill, frozen, signal.SIGKILL)
        survivors = [clients[0], clients[2]]
        for client in survivors:
            assert client.lane
            os.pwrite(client.arena, bytes(4096), 0)  # as the client's library commits memory
            client.lane.send(encode(ask(1, count=1000, deadline=60.0)))
        with ThreadPoolExecutor() as pool:
            texts = list(pool.map(last_words, survivors))
    assert ["rank 1 on host-1" in text for text in texts] == [True, True], texts


def impatient(address: str) -> str:
    """[network] of a host that waits for a silent peer for one second only."""
    return (
        f'[network]\npaths = [{{ address = "{address}" }}]\npeer_timeout = 1.0\n'
        f"suspect_after = 0.5\n"
    )


def last_words(client: Client) -> str:
    """The text of its first failure, at which it leaves."""
    assert client.lane
    message = decode_untrusted(client.lane.recv(1 << 20))
    client.close()
    assert isinstance(message, Failed), message
    return message.text


def stop(daemon: Daemon) -> None:
    daemon.signal(signal.SIGSTOP)
    stat = Path(f"/proc/{daemon.process.pid}/stat")
    until(lambda: stat.read_text().rpartition(")")[2].split()[0] == "T", "it has stopped")


def assert_emitted(client: Client) -> None:
    """The stand-in has said what it was asked to say."""
    assert client.lane
    client.lane.send(msgpack.packb(["Echo", {}]))
    assert client.command("Echo") == {}


def first_news(client: Client) -> str:
    """What its engine hears first of the end of a peer."""
    assert client.lane
    while True:
        name, fields = msgpack.unpackb(client.lane.recv(1 << 20))
        if name == "PeerGone":
            return str(fields["text"])
        if name == "AbortOperations":
            return str(fields["aborted"][0][3])
