"""The parts of the backend that need no peers."""

import pickle
import threading
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.futures import Future

from dlcp_client.c10d.errors import as_torch, torch_errors
from dlcp_client.c10d.reduction import Reduction
from dlcp_client.c10d.sessions import GroupMember, Sessions
from dlcp_client.c10d.single_rank import SingleRankGroup
from dlcp_client.c10d.staging import APART, BYTES, copied, lent, room
from dlcp_client.c10d.work import GroupWork, joined
from dlcpd.contract.errors import (
    BadOperation,
    DeadlineExceeded,
    DlcpError,
    Peer,
    PeerLost,
    error_for,
)


class Operation:
    """A transport's work, ended by the test."""

    source = -1

    def __init__(self) -> None:
        self.error: Exception | None = None
        self._ended = threading.Event()
        self._base: Future[None] = Future()

    def end(self, error: Exception | None = None) -> None:
        self.error = error
        self._ended.set()
        self._base.set_result(None)

    def wait(self, timeout: float | None = None) -> bool:
        if not self._ended.wait(timeout):
            raise TimeoutError("not finished; it goes on")
        if self.error:
            raise self.error
        return True

    def done(self) -> bool:
        return self._ended.is_set()

    def get_future(self) -> "Future[Any]":
        return self._base.then(lambda _: self.wait())


# --- works --------------------------------------------------------------------------------


def test_a_work_ends_with_its_last_part_and_finishes_once() -> None:
    first, second, finished = Operation(), Operation(), []
    work = GroupWork([first, second], [torch.ones(1)], lambda: finished.append(1))
    first.end()
    assert not work.is_completed()
    with pytest.raises(DeadlineExceeded):
        work.wait(timedelta(milliseconds=10))
    assert not finished
    second.end()
    assert work.wait()
    assert work.wait(timedelta(0))  # PyTorch's "no limit"
    assert work.is_success()
    assert finished == [1]


def test_a_future_holds_the_results_after_they_are_put_in_place() -> None:
    part, result = Operation(), torch.zeros(1)
    work = GroupWork([part], [result], lambda: result.fill_(7))
    future = work.get_future()
    assert future is work.get_future()
    assert not future.done()
    part.end()
    assert [t.item() for t in future.wait()] == [7]


@pytest.mark.parametrize("count", [1, 2])
def test_a_failure_is_an_error_of_the_work_and_of_its_future(count: int) -> None:
    parts = [Operation() for _ in range(count)]
    work = GroupWork(parts, [], lambda: pytest.fail("a failed operation has no results"))
    future = work.get_future()
    for part in parts:
        part.end(PeerLost("rank 1 is gone"))
    with pytest.raises(PeerLost, match="rank 1 is gone"):
        work.wait()
    with pytest.raises(RuntimeError, match="rank 1 is gone"):
        future.wait()
    assert not work.is_success()
    assert isinstance(work.exception(), PeerLost)


def test_joined_works_finish_each_of_theirs() -> None:
    tensors = [torch.zeros(1), torch.zeros(1)]
    works = [GroupWork([], [t], partial(t.add_, 1)) for t in tensors]
    assert [t.item() for t in joined(works).get_future().wait()] == [1, 1]


# --- errors -------------------------------------------------------------------------------


def test_errors_are_pytorchs_and_ours_in_one() -> None:
    with pytest.raises(dist.DistBackendError, match="gone") as caught, torch_errors():
        raise PeerLost("gone", Peer(2, "host-c"))
    assert isinstance(caught.value, PeerLost)
    assert (caught.value.rank, caught.value.host) == (2, "host-c")
    assert as_torch(caught.value) is caught.value
    assert "timeout=" in str(as_torch(TimeoutError("late")))


@pytest.mark.parametrize("error", [DeadlineExceeded("late"), PeerLost("gone", Peer(2, "host-c"))])
def test_errors_pass_through_a_pipe(error: DlcpError) -> None:
    """As torchft sends those of its group in a process of its own."""
    sent = as_torch(error)
    got = pickle.loads(pickle.dumps(sent))  # noqa: S301
    assert type(got) is type(sent) and str(got) == str(sent) and got.peer == error.peer


def test_errors_say_the_words_by_which_tools_know_them() -> None:
    assert str(as_torch(DeadlineExceeded("late"))).startswith("timed out: late")
    lost = PeerLost("rank 2 left", Peer(2, "host-c"))
    assert str(as_torch(lost)) == "Connection closed by peer: rank 2 left"
    assert str(as_torch(PeerLost("rank 1 did not arrive"))) == "rank 1 did not arrive"


def test_errors_from_the_daemon_stay_those_of_the_contract() -> None:
    as_torch(PeerLost("gone"))
    assert type(error_for("peer_lost", "gone")) is PeerLost


# --- staging ------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bool, torch.complex64, torch.bfloat16])
def test_dense_tensors_are_moved_where_they_are(dtype: torch.dtype) -> None:
    tensor = torch.ones(2, 3).to(dtype)
    buffer = lent([tensor], BYTES)
    assert buffer.flats[0].data_ptr() == tensor.data_ptr()
    assert buffer.count == tensor.nbytes
    assert copied([tensor], BYTES).flats[0].data_ptr() != tensor.data_ptr()


def test_others_are_copied_and_copied_back() -> None:
    tensor = torch.zeros(3, 4).t()
    buffer = lent([tensor], torch.float32)
    assert buffer.flats[0].data_ptr() != tensor.data_ptr()
    buffer.flats[0].copy_(torch.arange(12.0))
    buffer.copy_back()
    assert torch.equal(tensor, torch.arange(12.0).view(4, 3))


def test_lists_stand_one_after_the_other() -> None:
    tensors = [torch.zeros(2), torch.zeros(3)]
    buffer = room(tensors, BYTES)
    assert buffer.sizes == buffer.uneven == (8, 12)
    (flat,) = buffer.flats
    flat.view(torch.float32).copy_(torch.arange(5.0))
    buffer.copy_back()
    assert [t.tolist() for t in tensors] == [[0, 1], [2, 3, 4]]


LARGE = APART // 4  # float32


@pytest.mark.parametrize("stage", [lent, room])
def test_large_tensors_of_a_list_are_moved_where_they_are(stage: Any) -> None:
    tensors = [torch.zeros(LARGE), torch.zeros(LARGE, 2)]
    buffer = stage(tensors, BYTES)
    assert [flat.data_ptr() for flat in buffer.flats] == [t.data_ptr() for t in tensors]
    assert (buffer.count, buffer.uneven) == (12 * LARGE, (4 * LARGE, 8 * LARGE))
    assert copied(tensors, BYTES).count == 12 * LARGE
    assert isinstance(copied(tensors, BYTES).whole, torch.Tensor)


def test_a_list_with_a_tensor_that_is_not_contiguous() -> None:
    tensors = [torch.zeros(LARGE), torch.zeros(2, LARGE).t()]
    filled = torch.arange(3.0 * LARGE)
    for stage in (lent, room):
        buffer = stage(tensors, torch.float32)
        at = 0
        for flat in buffer.flats:
            flat.copy_(filled[at : at + flat.numel()])
            at += flat.numel()
        buffer.copy_back()
        found = torch.cat([tensor.reshape(-1) for tensor in tensors])
        assert torch.equal(found, filled)
        for tensor in tensors:
            tensor.zero_()


def test_small_integers_wrap_around_as_in_their_own_dtype() -> None:
    asked = Reduction.of(dist.ReduceOp.SUM, torch.uint8)
    tensor = torch.tensor([200], dtype=torch.uint8)
    buffer = lent([tensor], asked.carried)
    buffer.multiply(2)
    buffer.copy_back()
    assert tensor.item() == 400 % 256


def test_what_is_no_reduction_is_refused() -> None:
    with pytest.raises(BadOperation, match="not a reduction"):
        Reduction.of("sum of squares", torch.float32)


# --- which transport serves which group -----------------------------------------------------


class Counted:
    """A transport that counts."""

    def __init__(self, *place: Any) -> None:
        self.groups: list[tuple[list[int], str]] = []
        self.closed = 0

    def group(self, ranks: Any, name: str, *, timeout: float) -> Any:
        self.groups.append((list(ranks), name))
        if name == "bad":
            raise PeerLost("nobody came")
        group = SingleRankGroup()
        group.size = len(ranks)
        return group

    def close(self) -> None:
        self.closed += 1


def member(name: str, *ranks: int, whole: bool = False) -> GroupMember:
    store: Any = None
    return GroupMember(store, name, ranks, 0, timedelta(seconds=1), whole=whole)


def counting() -> tuple[list[Counted], Sessions]:
    """The transports that were connected, and who connects them."""
    made: list[Counted] = []

    def connect(*place: Any) -> Counted:
        made.append(Counted(*place))
        return made[-1]

    return made, Sessions(connect)


def test_groups_of_a_job_share_its_transport_until_the_last_one_ends() -> None:
    made, sessions = counting()
    _, end_world = sessions.open(member("0", 0, 1, 2, whole=True))
    _, end_turned = sessions.open(member("1", 2, 0))
    with pytest.raises(PeerLost):
        sessions.open(member("bad", 0, 1))
    assert [len(made), made[0].groups[1]] == [1, ([2, 0], "1")]
    end_world(True)
    ended = [made[0].closed]
    end_turned(True)
    assert [*ended, made[0].closed] == [0, 1]
    sessions.open(member("0", 0, 1, 2, whole=True))
    assert len(made) == 2


def test_where_the_job_has_another_backend_groups_of_the_same_ranks_share_one() -> None:
    made, sessions = counting()
    for ranks in ((4, 6), (4, 6), (6, 4)):
        sessions.open(member("g", *ranks))
    assert [m.groups for m in made] == [[([0, 1], "g")] * 2, [([0, 1], "g")]]
    sessions.open(member("alone", 4))
    assert len(made) == 2


def test_the_backend_claims_cuda_only_in_a_build_of_torch_that_has_it() -> None:
    built = torch.backends.cuda.is_built()  # type: ignore[no-untyped-call]  # of PyTorch
    cuda = ["cuda"] if built else []
    assert dist.Backend.backend_capability["dlcp"] == ["cpu", *cuda]
