"""The same on a GPU, where there is one."""

from collections.abc import Iterator

import pytest
import torch

from dlcp_client import Work
from dlcp_client.operations.operation import PIECE
from tests.client.device.engines import reduce_all
from tests.client.stand_in import StandIn

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="this torch finds no GPU"),
    pytest.mark.timeout(60, method="thread"),
]

ARENA = 48 << 20  # bytes


@pytest.fixture
def gpus() -> Iterator[StandIn]:
    """Two ranks; on a host with one GPU they share it."""
    made = StandIn(arena_bytes=ARENA)
    yield made
    made.close()


def there(values: torch.Tensor, rank: int) -> torch.Tensor:
    return values.to(torch.device("cuda", rank % torch.cuda.device_count()))


@pytest.mark.parametrize("elements", [1, 1000, PIECE // 4, 3 * PIECE // 4 + 7])
def test_the_result_is_that_of_the_cpu_bit_for_bit(gpus: StandIn, elements: int) -> None:
    given = [torch.randn(elements, generator=torch.Generator().manual_seed(r)) for r in range(2)]
    on_gpu = [there(one, rank) for rank, one in enumerate(given)]
    for work in [*reduce_all(gpus, on_gpu, op="avg"), *reduce_all(gpus, given, op="avg")]:
        work.wait()
    assert all(torch.equal(one.cpu(), other) for one, other in zip(on_gpu, given, strict=True))


def test_kernels_before_and_after_keep_their_places(gpus: StandIn) -> None:
    """Long ones, so that a copy that does not wait for them would be wrong."""
    for _ in range(20):
        tensors = [there(torch.zeros(PIECE // 2), rank) for rank in range(2)]
        for tensor in tensors:
            for _ in range(50):
                tensor.add_(1)
        for work, tensor in zip(reduce_all(gpus, tensors), tensors, strict=True):
            work.wait()
            tensor.mul_(2)
        assert all(bool((tensor == 200).all()) for tensor in tensors)


def test_a_future_makes_the_stream_wait_and_not_the_process(gpus: StandIn) -> None:
    tensors = [there(torch.ones(PIECE // 2), rank) for rank in range(2)]
    works: list[Work] = reduce_all(gpus, tensors)
    futures = [work.then(lambda tensor: tensor * 2) for work in works]
    for future in futures:
        with torch.cuda.stream(torch.cuda.Stream()):  # type: ignore[no-untyped-call]
            assert bool((future.wait() == 4).all())


def test_memory_is_locked_and_unlocked(gpus: StandIn) -> None:
    session = gpus.sessions[0]
    for work in reduce_all(gpus, [there(torch.ones(8), rank) for rank in range(2)]):
        work.wait()
    assert session._connection.staging._pinned._until > 0  # noqa: SLF001
