"""Where the shards of an embedded server are: one beside each daemon."""

import tomllib
from typing import Any

import pytest
from torch._C._distributed_c10d import HashStore

from dlcp_client.ipc.embedded import default_config
from dlcp_client.ps.directory import MAX_SHARDS
from dlcp_client.ps.placement import EmbeddedDirectory, Placement
from dlcpd.contract.errors import BadMessage, ServerLost
from dlcpd.daemon.config.file import parse


def told(*machines: str, parts: int = 100) -> list[dict[str, Any]]:
    return [
        {
            "machine": machine,
            "socket_path": f"socket {rank}",
            "running": False,
            "host": f"host-{machine}",
            "parts": parts,
            "name": f"name {rank}",
        }
        for rank, machine in enumerate(machines)
    ]


def test_a_shard_is_beside_the_daemon_of_each_machine() -> None:
    said = told("a", "b", "a", "b", "c")
    found = [Placement.of(rank, said) for rank in range(5)]
    assert {one.owners for one in found} == {(0, 1, 4)}
    assert {one.hosts for one in found} == {("host-a", "host-b", "host-c")}
    assert {one.name for one in found} == {"name 0"}
    assert [one.local for one in found] == [(0, 2), (1, 3), (0, 2), (1, 3), (4,)]
    assert found[0].shards == 3


def test_ranks_that_share_no_daemon_have_a_shard_each() -> None:
    assert Placement.of(1, told("", "", "")).owners == (0, 1, 2)


def test_no_shard_has_nothing_and_none_is_more_than_a_worker_takes() -> None:
    assert Placement.of(0, told("a", "b", "c", parts=2)).owners == (0, 1)
    assert Placement.of(0, told("a", "b", parts=1)).owners == (0,)
    many = told(*map(str, range(MAX_SHARDS + 5)), parts=1000)
    assert Placement.of(0, many).owners == tuple(range(MAX_SHARDS))


def test_the_model_of_rank_0_says_how_many_tensors_there_are() -> None:
    said = told("a", "b", parts=2)
    said[1]["parts"] = 1  # another model, which shards refuse
    assert Placement.of(1, said).owners == (0, 1)


def test_an_older_rank_is_told_apart() -> None:
    for lacks in ("host", "parts", "name"):
        said = told("a", "b")
        del said[0][lacks]
        with pytest.raises(BadMessage, match=f"published no '{lacks}'.*same version"):
            Placement.of(1, said)


def test_a_daemon_takes_the_sessions_that_a_large_job_needs() -> None:
    sessions = Placement.of(0, told(*"abcd" * 16)).sessions(64)
    assert sessions == 16 * 4 + 64
    for wanted, configured in ((sessions, 128), (10, 64), (100_000, 1024)):
        text = default_config("127.0.0.1", sessions=wanted)
        assert parse(text, "test").daemon.max_sessions == configured
    assert "max_sessions" not in tomllib.loads(default_config("127.0.0.1"))["daemon"]


def test_an_end_that_was_told_is_named_and_silence_too() -> None:
    placement = Placement.of(0, told("a", "b"))
    directory = EmbeddedDirectory(HashStore(), placement.name, None, placement)
    directory.check_lives(1)
    with pytest.raises(ServerLost, match=r"shard 1 .* rank 1 on host-b, did not answer within 0"):
        directory.call(1, 2, {"worker": 0}, 0.0)
    directory.bury(1, "its process was killed by SIGKILL, and printed nothing")
    directory.check_lives(0)
    with pytest.raises(ServerLost, match=r"shard 1 .* rank 1 on host-b, has ended .*SIGKILL"):
        directory.call(1, 2, {"worker": 0}, 1e12)
