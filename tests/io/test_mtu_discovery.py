"""Whole engines on loopback: what paths carry is found, and strangers change nothing of it."""

import socket
import struct
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dlcpd.core.paths.pieces import cut
from dlcpd.core.wire.header import HEADER_SIZE, Header, Kind
from dlcpd.core.wire.probes import pack_answer, pack_probe
from dlcpd.core.wire.sizes import MAX_SEGMENT
from dlcpd.io.config import EngineConfig
from tests.io.engines import PATIENCE, Job, token

TO_FIRST, TO_SECOND = token(0, 1), token(1, 0)  # what rank 1 sends to rank 0 with, and back


def until(condition: Callable[[], Any]) -> None:
    """Wait for something that another process brings about."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def path_of(job: Job, rank: int) -> dict[str, Any]:
    [peer] = job.engines[rank].report()["sessions"]["1"]["peers"]
    path: dict[str, Any] = peer["paths"][0] | {"in_use": peer["segment_size"]}
    return path


@pytest.fixture
def job() -> Iterator[Job]:
    """Two engines that know what their path carries."""
    made = Job(2, lambda rank: EngineConfig(host=f"host{rank}"))
    try:
        for rank in (0, 1):
            until(lambda r=rank: path_of(made, r)["mtu_search"] == "complete")  # type: ignore[misc]
        yield made
    finally:
        made.close()


def send(job: Job, rank: int, data: bytes) -> None:
    """From an address that nobody knows."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as stranger:
        stranger.sendto(data, tuple(job.endpoints[rank][0]))


def grows(job: Job, rank: int, counter: str, before: dict[str, int]) -> None:
    counters = job.engines[rank].counters
    until(lambda: counters().get(counter, 0) > before.get(counter, 0))


def test_loopback_carries_the_largest_segments(job: Job) -> None:
    for rank in (0, 1):
        path = path_of(job, rank)
        assert path["in_use"] == path["segment"] == MAX_SEGMENT
        assert path["mtu"] == MAX_SEGMENT + HEADER_SIZE + 28


@pytest.mark.parametrize(
    ("data", "counter"),
    [
        (pack_probe(TO_FIRST + 1, 0, 1, 1184), "token"),
        (pack_probe(TO_FIRST, 0, 1, 63), "length"),
        (pack_answer(TO_FIRST + 1, 0, 1, 1184), "token"),
        (pack_answer(TO_FIRST, 0, 99_999, 1184), "probe"),
        (pack_answer(TO_FIRST, 0, 1, 1184) + b"x", "length"),
        (pack_answer(TO_FIRST, 9, 1, 1184), "path"),
        (next(cut(Header(Kind.DATA, TO_FIRST + 2).pack() + bytes(1000), 1, 512)), "token"),
        (Header(Kind.PIECE, TO_FIRST).pack() + bytes(8), "length"),
        (Header(Kind.PIECE, TO_FIRST).pack() + struct.pack("<IHH", 1, 10, 9) + b"xx", "body"),
    ],
)
def test_what_makes_no_sense_is_counted_and_changes_nothing(
    job: Job, data: bytes, counter: str
) -> None:
    known, before = path_of(job, 0), job.engines[0].counters()
    send(job, 0, data)
    grows(job, 0, counter, before)
    assert path_of(job, 0) == known


def test_a_probe_is_answered_to_the_peer_and_nobody_else(job: Job) -> None:
    """Its token says whose it is; the address it came from says nothing."""
    before = job.engines[1].counters()
    send(job, 0, pack_probe(TO_FIRST, 0, 77_777, 1184))
    grows(job, 1, "probe", before)  # an answer to a question that rank 1 never asked


def test_a_probe_in_pieces_proves_nothing(job: Job) -> None:
    before = [engine.counters() for engine in job.engines]
    for piece in cut(pack_probe(TO_FIRST, 0, 77_777, 1184), 1, 512):
        send(job, 0, piece)
    send(job, 0, pack_answer(TO_FIRST, 0, 99_999, 1184))
    grows(job, 0, "probe", before[0])  # by now the pieces have been looked at, too
    assert job.engines[1].counters().get("probe", 0) == before[1].get("probe", 0)


def test_data_in_pieces_is_data(job: Job) -> None:
    """It goes the way of all data: this one's operation is not known here."""
    before = job.engines[0].counters()
    for piece in cut(Header(Kind.DATA, TO_FIRST, 5).pack() + bytes(1000), 1, 512):
        send(job, 0, piece)
    grows(job, 0, "early", before)
