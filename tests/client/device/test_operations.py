"""Operations on tensors of a device: values, order, room, and nothing left behind."""

import os
import threading
from functools import partial

import pytest
import torch

from dlcp_client import Session
from dlcp_client.operations.operation import PIECE
from dlcp_lab.device.fake import IN, OUT, FakeDevice
from tests.client.device.conftest import ARENA
from tests.client.device.engines import reduce_all, seen, watched
from tests.client.stand_in import StandIn, wait_until

# torch waits for a Future in C++, where no signal is looked at: only a thread can end a hang.
pytestmark = pytest.mark.timeout(60, method="thread")

OPERATIONS = int(os.environ.get("DLCPD_DEVICE_OPERATIONS", "2000"))  # of each rank


@pytest.mark.parametrize("elements", [1, 1000, PIECE // 4, PIECE // 4 + 1, 3 * PIECE // 4 + 7])
def test_the_result_is_that_of_the_cpu_bit_for_bit(
    world: StandIn, device: FakeDevice, elements: int
) -> None:
    given = [torch.randn(elements, generator=torch.Generator().manual_seed(r)) for r in range(2)]
    there = [device.tensor(one) for one in given]
    versions = [one._version for one in there]  # noqa: SLF001  # no public name
    for work in [*reduce_all(world, there, op="avg"), *reduce_all(world, given, op="avg")]:
        work.wait()
    for rank in range(2):
        assert torch.equal(seen(device, there[rank]), given[rank])
    assert device.copied == {OUT: 2 * given[0].nbytes, IN: 2 * given[0].nbytes}  # once each way
    assert [one._version for one in there] == versions  # noqa: SLF001  # autograd sees no change


def test_a_large_tensor_goes_in_pieces_of_a_chunk_at_least(
    world: StandIn, device: FakeDevice
) -> None:
    tensors = [device.tensor(torch.ones(3 * PIECE // 4 + 7)) for _ in range(2)]
    for work in reduce_all(world, tensors):
        work.wait()
    counts = [ask.input_count for _, ask in sorted(world.far[0].submits.items())]
    assert counts == [PIECE // 4, PIECE // 4, PIECE // 4 + 7]


def test_a_kernel_before_is_waited_for_and_one_after_sees_the_result(
    world: StandIn, device: FakeDevice
) -> None:
    tensors = [device.tensor(torch.zeros(1000)) for _ in range(2)]
    for rank, tensor in enumerate(tensors):
        device.launch(partial(tensor.fill_, rank + 1), writes=[tensor])
    works = reduce_all(world, tensors)
    for work, tensor in zip(works, tensors, strict=True):
        work.wait()
        device.launch(partial(tensor.mul_, 2), writes=[tensor])
    assert all(bool((seen(device, t) == 6).all()) for t in tensors)


def test_done_and_result_follow_the_copy_as_wait_does(world: StandIn, device: FakeDevice) -> None:
    tensors = [device.tensor(torch.ones(10)) for _ in range(2)]
    first, second = reduce_all(world, tensors)
    while not first.done():
        wait_until(world.sessions[0], lambda: first.ended)
    assert seen(device, first.tensor).tolist() == [2.0] * 10
    assert seen(device, second.result()).tolist() == [2.0] * 10
    assert first.stats is not None
    assert first.source == -1


def test_futures_complete_and_chain(world: StandIn, device: FakeDevice) -> None:
    tensors = [device.tensor(torch.ones(2 * PIECE // 4)) for _ in range(2)]
    works = reduce_all(world, tensors)
    names = [work.then(lambda _: threading.current_thread().name) for work in works]
    assert works[0].get_future() is works[0].get_future()
    for work, name in zip(works, names, strict=True):
        [tensor] = work.get_future().wait()
        assert tensor is work.tensor
        assert seen(device, tensor)[0] == 2
        assert name.wait() == "dlcp-callbacks"
        assert work.then(lambda t: t.numel()).wait() == 2 * PIECE // 4  # after the end


def test_the_call_returns_before_the_device_is_ready(world: StandIn, device: FakeDevice) -> None:
    """Nothing blocks in a hook of the backward pass: it would keep kernels from being queued."""
    computed = threading.Event()
    tensors = [device.tensor(torch.zeros(4)) for _ in range(2)]
    device.launch(computed.wait, writes=tensors)
    works = reduce_all(world, tensors)
    assert not any(world.far[0].submits)
    computed.set()
    for work in works:
        work.wait()


@pytest.mark.parametrize("seed", range(6))
def test_all_ranks_submit_in_the_order_of_the_calls(seed: int) -> None:
    """Each rank has a device of its own, whose copies take as long as they like; tensors of the
    CPU, which need no copy, do not overtake."""
    world = StandIn(arena_bytes=ARENA)
    sizes = [
        torch.randint(1, 5000, (), generator=torch.Generator().manual_seed(i)).item()
        for i in range(30)
    ]

    def rank_of(rank: int, session: Session, there: FakeDevice) -> None:
        works = []
        for number, size in enumerate(sizes):
            values = torch.full((int(size),), float(rank))
            works.append(session.all_reduce(there.tensor(values) if number % 3 else values))
        for work in works:
            work.wait()

    with (
        FakeDevice(seed, slowest=0.004).holding() as one,
        FakeDevice(seed + 100, name="fake:1", slowest=0.001).holding() as other,
    ):
        for session, there in zip(world.sessions, (one, other), strict=True):
            watched(session, there)
        threads = [
            threading.Thread(target=rank_of, args=(rank, world.sessions[rank], there))
            for rank, there in enumerate((one, other))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        world.close()
    for far in world.far:
        assert [ask.input_count for _, ask in sorted(far.submits.items())] == sizes


def test_more_than_the_arena_holds_goes_through_it(world: StandIn, device: FakeDevice) -> None:
    """Those for which there is no room wait on the thread of the staging, in their order."""
    tensors = [[device.tensor(torch.full((ARENA // 16,), 1.0)) for _ in range(2)] for _ in range(9)]
    works = [work for pair in tensors for work in reduce_all(world, pair)]
    for work in works:
        work.wait()
    assert all(seen(device, t)[-1] == 2 for pair in tensors for t in pair)


def small_world(device: FakeDevice) -> StandIn:
    """Of an arena that holds one operation of 7 MiB, which is not cut."""
    made = StandIn(arena_bytes=12 << 20)
    for session in made.sessions:
        watched(session, device)
    return made


def mebibytes(device: FakeDevice, size: float) -> list[torch.Tensor]:
    return [device.tensor(torch.ones(int(size * (1 << 18)))) for _ in range(2)]


def test_who_waits_for_room_is_not_overtaken_by_who_finds_some(device: FakeDevice) -> None:
    """It leaves later, and until then would hold what the first one waits for."""
    world = small_world(device)
    world.answering = False
    works = reduce_all(world, mebibytes(device, 5))
    world.wait_for(1)
    works += reduce_all(world, mebibytes(device, 7.5))
    works += reduce_all(world, mebibytes(device, 4.75))
    world.answering = True
    world.answer(1)
    for work in works:
        work.wait()
    world.close()


def test_room_that_a_copy_to_the_device_needs_is_waited_for(device: FakeDevice) -> None:
    world = small_world(device)
    blocked = threading.Event()
    device._streams[IN].put(blocked.wait, device.mark())  # noqa: SLF001
    works = reduce_all(world, mebibytes(device, 7))
    while device.copied[IN] < 2 * 7 << 20:
        world.sessions[0].failure()  # reads the frames that have arrived
    works += reduce_all(world, mebibytes(device, 7))
    threading.Timer(0.1, blocked.set).start()
    for work in works:
        work.wait()
    world.close()


def workers() -> int:
    """Threads, but those for callbacks, of which there may be 16 for a session."""
    return sum(thread.name != "dlcp-callbacks" for thread in threading.enumerate())


@pytest.mark.timeout(30 + OPERATIONS // 50, method="thread")
def test_many_operations_leave_nothing_behind(world: StandIn) -> None:
    with FakeDevice(seed=1, slowest=0.0).holding() as device:
        tensors = [device.tensor(torch.ones(64)) for _ in range(2)]
        threads = 0
        for number in range(OPERATIONS):
            for work in reduce_all(world, tensors, op="max"):
                work.wait()
            if number == 10:
                threads = workers()
        assert workers() == threads
        for session in world.sessions:
            assert len(session._connection.staging._landings) <= 2  # noqa: SLF001
            assert session._connection.arena.used <= 3 * 4096  # noqa: SLF001
            assert not session._connection.table._announced  # noqa: SLF001
            assert not session._connection.submission._unplaced  # noqa: SLF001
        assert device.open <= 8
        for session in world.sessions:
            session.close()
        assert device.pinned == 0
