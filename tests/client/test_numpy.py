"""Two ranks of numpy arrays with a real daemon: every collective, every dtype, every refusal."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from torch._C._distributed_c10d import HashStore

import dlcp_client.numpy as dlcp
from dlcp_client import connect
from dlcp_client.numpy.arrays import ARRAYS
from dlcpd.contract.errors import (
    BadConfig,
    BadPolicy,
    BadTensor,
    DlcpError,
    RanksDisagree,
    SessionClosed,
)
from dlcpd.contract.messages import DTYPES
from tests.client.real import WORLD, each_rank

pytestmark = pytest.mark.processes


def connected(store: Any) -> list[dlcp.Session]:
    more: dict[str, Any] = {"timeout": 60.0, "arena_bytes": 16 << 20}
    sessions = each_rank(lambda rank: dlcp.connect(store, rank, WORLD, **more))
    for session in sessions:
        if isinstance(session, BaseException):
            raise session
    return sessions


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[dlcp.Session]]:
    sessions = connected(dlcp.FileStore(tmp_path_factory.mktemp("job") / "store"))
    yield sessions
    each_rank(lambda rank: sessions[rank].close())


def reduced(pair: list[dlcp.Session], arrays: list[Any], *args: Any, **more: Any) -> list[Any]:
    works = [s.all_reduce(a, *args, **more) for s, a in zip(pair, arrays, strict=True)]
    return [work.result(60.0) for work in works]


def dtype_of(name: str) -> np.dtype[Any]:
    return np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_is_reduced_in_place(pair: list[dlcp.Session], name: str) -> None:
    arrays = [np.ones((3, 5), dtype_of(name)) for _ in range(WORLD)]
    results = reduced(pair, arrays)
    for array, result in zip(arrays, results, strict=True):
        assert result is array
        assert (array == (1 if name == "bool" else 2)).all()


@pytest.mark.parametrize("name", DTYPES)
def test_arrays_of_the_arena_are_used_where_they_are(pair: list[dlcp.Session], name: str) -> None:
    arrays = [session.zeros((4, 3), dtype_of(name)) for session in pair]
    assert all(a.shape == (4, 3) and a.dtype == dtype_of(name) and not a.any() for a in arrays)
    places = [ARRAYS.block(array).address for array in arrays]
    for session, place in zip(pair, places, strict=True):
        assert session._connection.arena.offset_of(place) >= 0  # noqa: SLF001
    arrays[0][:] = 1
    assert all((result == 1).all() for result in reduced(pair, arrays))


def test_memory_of_the_arena_lives_as_long_as_a_view(pair: list[dlcp.Session]) -> None:
    session = pair[0]
    before = session._connection.arena.used  # noqa: SLF001
    row = session.zeros((4, 1024))[1]
    assert session._connection.arena.used == before + 4 * 4096  # noqa: SLF001
    other = session.zeros((4, 1024))
    other[:] = 7
    assert not row.any()
    del row, other
    assert session._connection.arena.used == before  # noqa: SLF001


def test_a_read_only_array_is_read_and_the_result_is_new(pair: list[dlcp.Session]) -> None:
    arrays = [np.full(100, rank + 1.0) for rank in range(WORLD)]
    for array in arrays:
        array.flags.writeable = False
    results = reduced(pair, arrays)
    assert all((result == 3).all() and result.flags.writeable for result in results)
    assert [array[0] for array in arrays] == [1.0, 2.0]
    works = [s.world.reduce(array, 0) for s, array in zip(pair, arrays, strict=True)]
    assert (works[0].result(60.0) == 3).all()
    works[1].wait(60.0)


class OfAnotherLibrary:
    """An array as JAX's: it can be looked into, and is not to be written."""

    def __init__(self, array: Any) -> None:
        self.array = array

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        if isinstance(self.array, Exception):
            raise self.array
        return self.array


class OnlyDlpack:
    """As CuPy's: one that numpy converts by DLPack or not at all."""

    def __init__(self, array: Any, device: int) -> None:
        self.array, self.device = array, device

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device, 0


@pytest.mark.parametrize("kind", ["array", "dlpack", "torch"])
def test_arrays_of_other_libraries_are_read(pair: list[dlcp.Session], kind: str) -> None:
    makes: dict[str, Any] = {
        "array": OfAnotherLibrary,
        "dlpack": lambda array: OnlyDlpack(array, 1),
        "torch": torch.from_numpy,
    }
    own = [np.full(6, rank + 1, np.float32) for rank in range(WORLD)]
    results = reduced(pair, [makes[kind](array) for array in own])
    assert all((result == 3).all() for result in results)
    assert [array[0] for array in own] == [1, 2]
    targets = [np.empty(6, np.float32) for _ in range(WORLD)]
    works = [
        s.world.all_reduce(makes[kind](a), "avg", into=target)
        for s, a, target in zip(pair, own, targets, strict=True)
    ]
    assert all((work.result(60.0) == 1.5).all() for work in works)
    assert all((target == 1.5).all() for target in targets)


def test_a_bounded_average(pair: list[dlcp.Session]) -> None:
    arrays = [np.full(10_000, float(rank)) for rank in range(WORLD)]
    results = reduced(pair, arrays, "avg", policy=dlcp.bounded(0.01), name="gradient")
    assert np.array_equal(*results)


def test_the_other_collectives(pair: list[dlcp.Session]) -> None:
    worlds = [session.world for session in pair]
    mine = [np.arange(4, dtype=np.int64) + 10 * rank for rank in range(WORLD)]
    both = np.concatenate(mine)

    def all_do(call: Any) -> list[Any]:
        works = [call(world, mine[world.rank].copy()) for world in worlds]
        return [work.result(60.0) for work in works]

    for result in all_do(lambda w, a: w.broadcast(a, 1)):
        assert np.array_equal(result, mine[1])
    for result in all_do(lambda w, a: w.all_gather(np.empty(8, np.int64), a)):
        assert np.array_equal(result, both)
    for rank, result in enumerate(all_do(lambda w, a: w.reduce_scatter(np.empty(2, np.int64), a))):
        assert np.array_equal(result, (mine[0] + mine[1])[2 * rank : 2 * rank + 2])
    first, _ = all_do(lambda w, a: w.gather(np.empty(8, np.int64) if w.rank == 0 else None, a, 0))
    assert np.array_equal(first, both)
    for rank, result in enumerate(
        all_do(lambda w, _a: w.scatter(np.empty(4, np.int64), both if w.rank == 0 else None, 0))
    ):
        assert np.array_equal(result, mine[rank])
    first, second = all_do(lambda w, a: w.all_to_all(np.empty(4, np.int64), a))
    assert np.array_equal(first, [0, 1, 10, 11]) and np.array_equal(second, [2, 3, 12, 13])
    all_do(lambda w, _a: w.barrier())
    _, got = all_do(
        lambda w, a: w.send(a, 1, 7) if w.rank == 0 else w.receive(np.empty(4, np.int64), 0, 7)
    )
    assert np.array_equal(got, mine[0])


def test_a_group_of_one(pair: list[dlcp.Session]) -> None:
    group = pair[1].group([1])
    assert (group.all_reduce(np.full(3, 2.0)).result(60.0) == 2).all()
    group.close()


class Subclass(np.ndarray):
    """Stands for masked arrays and their kind."""


BAD: list[tuple[Any, str]] = [
    ([1.0, 2.0], "list is not an array"),
    (np.zeros(3, ">f4"), "dtype >f4 cannot be reduced"),
    (np.zeros(3, np.uint16), "dtype uint16 cannot be reduced; convert to one of float32"),
    (np.array(["a"]), "dtype <U1"),
    (np.zeros(3, ml_dtypes.float8_e5m2), "dtype float8_e5m2"),
    (np.zeros((4, 4)).T[1:], "not contiguous; reduce np.ascontiguousarray"),
    (np.zeros(3).view(Subclass), "Subclass is an array subclass"),
    (OnlyDlpack(np.zeros(3), 2), "is on a device"),
    (OfAnotherLibrary(RuntimeError("Array has been deleted.")), "Array has been deleted"),
]


@pytest.mark.parametrize(("array", "text"), BAD, ids=[text for _, text in BAD])
def test_a_bad_array_is_refused_and_described(
    pair: list[dlcp.Session], array: Any, text: str
) -> None:
    with pytest.raises(BadTensor) as caught:
        pair[0].all_reduce(array)
    assert text in str(caught.value)


def test_too_many_elements_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlcp_client.numpy.arrays.MAX_ELEMENTS", 7)  # in fact 4 GiB of float32
    ARRAYS.block(np.zeros(7))
    with pytest.raises(BadTensor, match="8 elements is too large: one operation takes at most 7"):
        ARRAYS.block(np.zeros(8))


def test_nothing_is_written_to_what_is_read_only(pair: list[dlcp.Session]) -> None:
    target = np.zeros(4)
    target.flags.writeable = False
    with pytest.raises(BadTensor, match="into a read-only array"):
        pair[0].world.all_reduce(np.zeros(4), into=target)
    with pytest.raises(BadTensor, match="into a read-only array"):
        pair[0].world.all_gather(OfAnotherLibrary(np.zeros(8)), np.zeros(4))  # type: ignore[arg-type]


def test_what_is_asked_for_is_checked(pair: list[dlcp.Session]) -> None:
    with pytest.raises(BadPolicy, match=r"'bounded'"):
        pair[0].all_reduce(np.zeros(4), policy="bounded")  # type: ignore[arg-type]
    with pytest.raises(BadPolicy, match="operation 'mean'"):
        pair[0].all_reduce(np.zeros(4), "mean")
    with pytest.raises(BadTensor, match="avg of int32 would round"):
        pair[0].all_reduce(np.zeros(4, np.int32), "avg")


@pytest.mark.parametrize("asked", ["uint16", "no such type", 7.5], ids=str)
def test_a_dtype_that_is_none_is_refused(pair: list[dlcp.Session], asked: Any) -> None:
    with pytest.raises(BadTensor, match="use one of float32"):
        pair[0].zeros(3, asked)


def test_bfloat16_needs_a_package(
    pair: list[dlcp.Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert pair[0].zeros(3, "bfloat16").dtype == ml_dtypes.bfloat16
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    with pytest.raises(BadTensor, match="need the package ml_dtypes"):
        pair[0].zeros(3, "bfloat16")


def test_ranks_that_disagree_are_told(pair: list[dlcp.Session]) -> None:
    works = [s.all_reduce(np.zeros(8 + rank)) for rank, s in enumerate(pair)]
    for work in works:
        with pytest.raises(RanksDisagree):
            work.wait(60.0)
    assert (reduced(pair, [np.ones(4), np.ones(4)])[0] == 2).all()


def test_an_array_whose_memory_goes_meanwhile_fails_its_operation(
    pair: list[dlcp.Session],
) -> None:
    arrays = [np.ones(1 << 16) for _ in range(WORLD)]
    works = [s.all_reduce(a) for s, a in zip(pair, arrays, strict=True)]
    arrays[0].resize(8, refcheck=False)
    with pytest.raises(BadTensor, match=r"of 524288 B when .*, its target has 64 B now"):
        works[0].wait(60.0)
    assert (works[1].result(60.0) == 2).all()


def test_a_store_of_torch_will_do_and_a_closed_session_says_so() -> None:
    sessions = connected(HashStore())
    kept = sessions[0].zeros(4)
    each_rank(lambda rank: sessions[rank].close())
    kept[:] = 1  # still mapped
    with pytest.raises(SessionClosed):
        sessions[0].all_reduce(kept)
    with pytest.raises(DlcpError):
        sessions[0].zeros(4)


def test_a_job_may_have_ranks_with_torch_and_without() -> None:
    store = HashStore()
    makes: list[Any] = [connect, dlcp.connect]
    sessions = each_rank(lambda rank: makes[rank](store, rank, WORLD, arena_bytes=16 << 20))
    arrays = [torch.ones(50_000), np.ones(50_000, np.float32)]
    assert all((result == 2).all() for result in reduced(sessions, arrays))
    each_rank(lambda rank: sessions[rank].close())


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no store": ({"rank": 0, "world_size": 1}, "the ranks have no way to find each other"),
    "no rank": ({"store": HashStore(), "world_size": 1}, "rank=None, RANK=''"),
    "a rank that is none": ({"store": HashStore(), "rank": "a", "world_size": 1}, "rank='a'"),
    "a rank outside": (
        {"store": HashStore(), "rank": 2, "world_size": 2},
        "rank 2 is not in a world",
    ),
    "an empty world": ({"store": HashStore(), "rank": 0, "world_size": 0}, "world size 0"),
    "a store that is none": (
        {"store": 7, "rank": 0, "world_size": 1},
        "int has no method set, get",
    ),
    "no timeout": ({"timeout": 0.0}, "timeout 0.0"),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_connect_that_cannot_work_says_why(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("RANK", "WORLD_SIZE", "DLCPD_STORE"):
        monkeypatch.delenv(name, raising=False)
    options, text = WRONG[case]
    with pytest.raises(BadConfig) as caught:
        dlcp.connect(**options)
    assert text in str(caught.value)


def test_a_store_of_an_earlier_launch_is_refused(tmp_path: Path) -> None:
    dlcp.FileStore(tmp_path / "store").claim(0)
    with pytest.raises(BadConfig, match="rank 0 has already connected with it"):
        dlcp.connect(tmp_path / "store", 0, 2)
