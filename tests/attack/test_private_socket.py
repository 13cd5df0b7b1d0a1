"""A user without rights goes for every socket of ours that can be seen, while a job starts."""

import multiprocessing
import os
import re
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Final

import pytest
import torch
from torch._C._distributed_c10d import HashStore

from dlcp_client import connect
from dlcp_client.ipc.private_socket import PrivateSocket
from tests.checks import Measured

RANKS: Final = 8
STRANGER: Final = 65534
WITHIN: Final = 10.0  # seconds
SEEN: Final = re.compile(r"([@/]\S*dlcp\S*)$", re.MULTILINE)


def hammer(told: Connection) -> None:
    """Fill the queue of every socket with our name in the kernel's list, until told to end."""
    os.setgroups([])
    os.setgid(STRANGER)
    os.setuid(STRANGER)
    held: list[socket.socket] = []
    seen, reached = set[str](), set[str]()
    while not told.poll():
        for name in SEEN.findall(Path("/proc/net/unix").read_text(errors="replace")):
            seen.add(name)
            for _ in range(256):
                sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
                sock.setblocking(False)
                try:
                    sock.connect(f"\0{name[1:]}" if name.startswith("@") else name)
                except OSError:
                    sock.close()
                    break
                held.append(sock)
                reached.add(name)
    told.send((seen, reached))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
@pytest.mark.check(111, "a stranger hammers every dlcp socket that it can see: 8 ranks start")
def test_a_stranger_does_not_keep_ranks_from_starting(
    monkeypatch: pytest.MonkeyPatch, measured: Measured
) -> None:
    monkeypatch.setenv("DLCPD_SHARE", "1")
    made, enter = set[str](), PrivateSocket.__enter__

    def noted(private_socket: PrivateSocket) -> PrivateSocket:
        made.add(private_socket.name.replace("\0", "@"))
        return enter(private_socket)

    monkeypatch.setattr(
        PrivateSocket, "__enter__", noted
    )  # other trainings of this machine have some too
    ours, theirs = multiprocessing.Pipe()
    stranger = multiprocessing.get_context("fork").Process(target=hammer, args=(theirs,))
    stranger.start()
    store, done = HashStore(), threading.Barrier(RANKS)
    try:
        with ThreadPoolExecutor(RANKS) as pool:

            def rank_of(rank: int) -> float:
                started = time.monotonic()
                session = connect(store, rank, RANKS, timeout=60.0, arena_bytes=16 << 20)
                took, tensor = time.monotonic() - started, torch.ones(1000)
                session.all_reduce(tensor).wait()
                done.wait(60.0)
                session.close()
                assert (tensor == RANKS).all()
                return took

            took = max(pool.map(rank_of, range(RANKS)))
    finally:
        ours.send("end")
        seen, reached = ours.recv() if ours.poll(30.0) else (set(), set())
        stranger.kill()
        stranger.join()
    busy = os.getloadavg()[0] / len(os.sched_getaffinity(0))
    measured(f"{len(seen & made)} seen, {len(reached & made)} reached, started in {took:.1f} s")
    assert not reached & made
    assert seen & made, "the list of the kernel has none: nothing was tried"
    assert took < WITHIN * max(busy, 1.0)
