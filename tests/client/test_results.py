"""Tensors in the arena that hold the results of a step, and those of the next one."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from dlcp_client.ddp.results import ResultTensors


class Session:
    """Makes tensors."""

    def empty(self, shape: Any, dtype: Any, wait: float) -> torch.Tensor:
        return torch.empty(shape, dtype=dtype)

    def released(self, work: Any, wait: float) -> bool:
        work.released = work.released or work.in_time <= wait
        return bool(work.released)


def bucket(index: int, count: int = 4, dtype: torch.dtype = torch.float32) -> Any:
    return SimpleNamespace(index=lambda: index, buffer=lambda: torch.empty(count, dtype=dtype))


def step(results: ResultTensors, *buckets: Any, released: float = 0.0) -> list[int]:
    """Addresses of the results of a step. `released`: seconds until peers have them."""
    taken = []
    for one in buckets:
        result = results.empty(Session(), one, 1.0)  # type: ignore[arg-type]
        results.keep(one, result, SimpleNamespace(released=not released, in_time=released))  # type: ignore[arg-type]
        taken.append(result)
    kept.extend(taken)  # or the next tensor might lie where one was
    return [result.data_ptr() for result in taken]


kept: list[torch.Tensor] = []


def test_each_bucket_has_its_own_in_every_step() -> None:
    results = ResultTensors()
    first = step(results, bucket(0), bucket(1))
    assert len(set(first)) == 2
    assert step(results, bucket(0), bucket(1)) == first


@pytest.mark.parametrize(
    "other", [bucket(0, 5), bucket(0, 4, torch.float64)], ids=["size", "dtype"]
)
def test_other_buckets_have_others(other: Any) -> None:
    results = ResultTensors()
    first = step(results, bucket(0), bucket(1))
    assert not {*step(results, other, bucket(1))} & {*first}


def test_one_that_a_peer_may_need_is_left_alone() -> None:
    results = ResultTensors()
    first = step(results, bucket(0), released=2.0)  # seconds; `step` waits for one
    assert step(results, bucket(0)) != first


def test_one_that_a_peer_will_soon_have_is_waited_for() -> None:
    results = ResultTensors()
    first = step(results, bucket(0), released=0.5)
    assert step(results, bucket(0)) == first


def test_none_is_held_after_the_end() -> None:
    results = ResultTensors()
    first = step(results, bucket(0))
    results.clear()
    assert step(results, bucket(0)) != first
