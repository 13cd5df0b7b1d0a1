"""`fused.register(tune=True)`: the fastest way of a step, without a change of any number."""

import logging
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.optim import SGD, Adam

from dlcp_client import Session, bounded, exact, fused
from dlcp_client.fused.flat_bucket import flat_buckets
from dlcp_client.fused.language.tuning.measuring import WINDOW
from dlcp_client.fused.language.tuning.results import Result
from dlcp_client.fused.ways import equal_ways, share, shares
from dlcpd.contract.errors import BadConfig, RanksDisagree
from dlcpd.schedules.layout import layout
from tests.client import fused_tuning_ranks
from tests.client.fused_tuning_ranks import COMPARED
from tests.client.real import connected, each_rank
from tests.client.test_ddp import on_each_rank
from tests.client.test_flat_bucket import session as session_of_hosts

WAYS = ["one operation", "reduce-scatter, update, all-gather", "all-reduce, update of everything"]


@pytest.mark.processes
@pytest.mark.parametrize("world", [2, 3])
def test_steps_by_all_ways_give_the_same_weights(
    tmp_path: Path, world: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    ranks = on_each_rank(fused_tuning_ranks.compared, tmp_path, world, world=world)
    for name in ("SGD", "momentum", "AMSGrad", "AdamW", "tiny"):
        [first, *_] = found = [rank[name] for rank in ranks]
        [chosen] = re.findall(r"(\S.*\S) +\d+\.\d+ +chosen", first["explained"])
        assert chosen in WAYS
        for one in found:
            assert one["apart"] == 0.0, name
            assert one["state"], name
            assert one["returned"], name
            assert np.array_equal(one["weights"], first["weights"])
        whole = sum(one["parts"][1] for one in found)
        for one in found:
            assert one["parts"][0] == (whole if chosen == WAYS[2] else one["parts"][1]), name
    for rank in ranks:
        assert rank["loop"]["apart"] < 1e-6
        assert rank["loop"]["norms apart"] < 1e-6
        assert rank["loop"]["scales"][0] == rank["loop"]["scales"][1]
        assert rank["loop"]["infinite"] == [5, 25]
        assert rank["scaled"]["apart"] == 0.0


# --- the result of an earlier job -------------------------------------------------------------


@pytest.fixture(scope="module")
def sessions() -> Iterator[list[Session]]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    made = connected()
    yield made
    each_rank(lambda rank: made[rank].close())
    torch.set_num_threads(before)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "dlcpd" / "tuning"


def trained(sessions: list[Session], steps: int, width: int = 30) -> list[tuple[int, str]]:
    """By rank: steps that were measured, and the choice."""

    def rank(number: int) -> tuple[int, str]:
        net = nn.Linear(40, width)
        optimizer = SGD(net.parameters(), lr=0.1, momentum=0.9)
        handle = fused.register(net, optimizer, session=sessions[number], tune=True)
        for _ in range(steps):
            optimizer.zero_grad()
            net(torch.ones(40)).sum().backward()
            optimizer.step()
        tuned: Any = handle._tuned  # noqa: SLF001  # what it did
        handle.close()
        return tuned.measured, tuned.chosen

    found = each_rank(rank)
    for one in found:
        assert isinstance(one, tuple), one
    return found


@pytest.mark.processes
def test_a_second_start_measures_nothing_and_notices_a_changed_link(
    sessions: list[Session], cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "dlcp_client"):
        [first, second] = trained(sessions, 2 + COMPARED)
        assert first == second
        assert first[0] == 1 + COMPARED
        assert first[1] in WAYS
        assert trained(sessions, WINDOW) == [(0, first[1])] * 2
    said = [line.getMessage() for line in caplog.records if "on 2 ranks: " in line.getMessage()]
    assert sum("measured as well: " in line for line in said) == 2, "once on each rank"
    assert sum(line.endswith("from an earlier job") for line in said) == 2
    [file] = cache.iterdir()
    kept = msgspec.json.decode(file.read_bytes(), type=Result)
    assert sorted(row.title for row in kept.rows) == sorted(WAYS)
    assert all(row.measured for row in kept.rows)
    # as if links had been a thousand times as fast
    file.write_bytes(msgspec.json.encode(msgspec.structs.replace(kept, seconds=1e-6)))
    again = trained(sessions, 2 * (WINDOW + 1) + COMPARED)
    assert {measured for measured, _ in again} == {1 + COMPARED}
    assert msgspec.json.decode(file.read_bytes(), type=Result).seconds > 1e-5
    trained(sessions, 1, width=31)
    assert len(list(cache.iterdir())) == 1, "another model has another result, once it has one"


@pytest.mark.processes
def test_a_damaged_result_is_named_and_measured_anew(
    sessions: list[Session], cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    trained(sessions, 2 + COMPARED)
    [file] = cache.iterdir()
    file.write_bytes(file.read_bytes()[:-9])
    assert [measured for measured, _ in trained(sessions, 3)] == [3, 3]
    assert f"{file} is ignored, and measured anew" in caplog.text


@pytest.mark.processes
def test_what_only_one_way_can_do_is_refused(sessions: list[Session], cache: Path) -> None:
    net = nn.Linear(3, 3)
    for optimizer, options, text in (
        (Adam(net.parameters()), {"eager": True}, "tune=True with eager=True"),
        (fused.LAMB(net.parameters(), kernel="eager"), {}, "tune=True with LAMB, whose norms"),
        (Adam(net.parameters()), {"policy": bounded(0.1)}, "a policy that changes numbers"),
        (Adam(net.parameters()), {"policy": exact(gather="bf16")}, "an exact one without gather"),
    ):
        with pytest.raises(BadConfig, match=text):
            fused.register(net, optimizer, session=sessions[0], tune=True, **options)

    def rank(number: int) -> None:
        mine = nn.Linear(3, 3)
        optimizer = Adam(mine.parameters())
        handle = fused.register(mine, optimizer, session=sessions[number], tune=True)
        with pytest.raises(BadConfig, match="a policy that changes numbers"):
            handle.set_policy(bounded(0.1))
        handle.set_policy(exact(deadline=20.0))
        handle.close()
        plain = SGD(mine.parameters(), momentum=0.9 * number)
        with pytest.raises(RanksDisagree, match="or another model, optimizer or schedule of sums"):
            fused.register(mine, plain, session=sessions[number], tune=True)

    assert each_rank(rank) == [None, None]


# --- ways -------------------------------------------------------------------------------------


def test_hosts_with_several_ranks_have_two_ways() -> None:
    def titles(hosts: int, world: int) -> list[str]:
        session: Any = session_of_hosts(hosts)
        session.world_size, session.world = world, None
        return [way.title for way in equal_ways(session)]

    assert titles(1, 4) == titles(4, 4) == WAYS
    assert titles(2, 4) == titles(2, 3) == [WAYS[0], WAYS[2]]


@given(st.integers(1, 3000), st.integers(1, 9), st.sampled_from([torch.float32, torch.float64]))
def test_ranks_have_the_parts_that_engines_give_them(
    count: int, ranks: int, dtype: torch.dtype
) -> None:
    parameter = nn.Parameter(torch.empty(count, device="meta", dtype=dtype))
    [bucket] = flat_buckets(session_of_hosts(1), [{"params": [parameter]}], [parameter])
    nbytes = bucket.weights.nbytes
    theirs = layout(nbytes, ranks, nbytes)
    sizes = [sum(chunk.size for chunk in theirs.owned_by(rank)) for rank in range(ranks)]
    assert [one * bucket.unit for one in shares(bucket, ranks)] == sizes
    bounds = [share(bucket, rank, ranks) for rank in range(ranks)]
    assert [start for start, _ in bounds[1:]] == [stop for _, stop in bounds[:-1]]
