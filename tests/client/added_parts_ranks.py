"""What one of two ranks does in a test of the parts that clients add: in a process of its own.

Functions return what went wrong, in words: an empty list is a pass.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from unittest import mock

import torch
from torch import Tensor

from dlcp_client import Session
from dlcp_client.arena.memory import copy_bytes
from dlcpd.contract.errors import BadTensor
from tests.client.group_ranks import session_of

COUNT = 40_960  # elements of a part: more than LEAST_ADDED, and several blocks of an average
ADDED = [(torch.float32, "sum"), (torch.float32, "avg"), (torch.float64, "sum")]
LEFT = [(torch.bfloat16, "sum"), (torch.float64, "avg"), (torch.float32, "max")]
BITS = {torch.float32: torch.int32, torch.float64: torch.int64, torch.bfloat16: torch.int16}


def values(rank: int, dtype: torch.dtype, count: int) -> Tensor:
    """Random ones; at the start of each half, all pairs of those that additions treat apart."""
    whole = torch.randn(count, generator=torch.Generator().manual_seed(rank)).to(dtype)
    limits = torch.finfo(dtype)
    special = [limits.max, -limits.max, limits.max / 2, limits.tiny, limits.smallest_normal / 4]
    special += [-limits.smallest_normal / 2 ** (7 if dtype == torch.bfloat16 else 23), 0.0, -0.0]
    special += [float("inf"), float("-inf"), float("nan"), 1.0]
    pairs = torch.tensor([pair[rank] for pair in product(special, repeat=2)], dtype=dtype)
    for start in (0, count // 2):
        whole[start : start + len(pairs)] = pairs
    return whole


def same(one: Tensor, other: Tensor) -> bool:
    """To the bit."""
    return torch.equal(one.view(BITS[one.dtype]), other.view(BITS[other.dtype]))


@contextmanager
def counted() -> Iterator[list[int]]:
    """The bytes of each copy to and from the arena."""
    copied = list[int]()

    def copy(target: int, source: int, size: int) -> None:
        copied.append(size)
        copy_bytes(target, source, size)

    with (
        mock.patch("dlcp_client.operations.places.copy_bytes", copy),
        mock.patch("dlcp_client.operations.results.copy_bytes", copy),
    ):
        yield copied


def results(rank: int, store: str) -> list[str]:
    """Of ordinary tensors, which equal those of engines; the input stays as it is."""
    found = []
    mine = slice(rank * COUNT, (rank + 1) * COUNT)
    with session_of(rank, store, 2) as session:
        for dtype, op in [*ADDED, *LEFT]:
            given = values(rank, dtype, 2 * COUNT)
            inside = session.empty(2 * COUNT, dtype)
            inside.copy_(given)
            session.world.reduce_scatter(inside[mine], inside, op).wait()
            whole, made = given.clone(), torch.zeros(COUNT, dtype=dtype)
            with counted() as copied:
                session.world.reduce_scatter(made, whole, op).wait()
            copies = 1 if (dtype, op) in ADDED else 3
            if sum(copied) != copies * made.nbytes:
                found.append(f"{op} of {dtype} copies {copied}, with parts of {made.nbytes}")
            if not same(made, inside[mine]) or not same(whole, given):
                found.append(f"{op} of {dtype}: {made[:8].tolist()}, or its input changed")
    return found


def forms(rank: int, store: str) -> list[str]:
    """Other places of the tensors, on one rank or on both."""
    found = []
    with session_of(rank, store, 2) as session:
        given = values(rank, torch.float32, 3 * COUNT)
        wanted = given.clone()
        session.all_reduce(wanted).wait()  # of two ranks, addition has one order
        checks = (_into_its_part, _into_a_shifted_part, _arena_on_one_rank, _uneven, _moved)
        for check in checks:
            made, expected = check(session, given.clone(), wanted)
            if not same(made, expected):
                found.append(f"{check.__name__}: {made[:8].tolist()}, not {expected[:8].tolist()}")
    return found


def _into_its_part(session: Session, whole: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    mine = slice(session.rank * COUNT, (session.rank + 1) * COUNT)
    session.world.reduce_scatter(whole[mine], whole[: 2 * COUNT]).wait()
    return whole[mine], wanted[mine]


def _into_a_shifted_part(session: Session, whole: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    start = session.rank * COUNT
    made = whole[start + 16 : start + 16 + COUNT]
    session.world.reduce_scatter(made, whole[: 2 * COUNT]).wait()
    return made, wanted[start : start + COUNT]


def _arena_on_one_rank(session: Session, whole: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    mine = slice(session.rank * COUNT, (session.rank + 1) * COUNT)
    if session.rank:
        inside = session.empty(2 * COUNT)
        whole = inside.copy_(whole[: 2 * COUNT])
    made = torch.zeros(COUNT)
    session.world.reduce_scatter(made, whole[: 2 * COUNT]).wait()
    return made, wanted[mine]


def _uneven(session: Session, whole: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    sizes = [COUNT, 2 * COUNT]
    made = torch.zeros(sizes[session.rank])
    session.world.reduce_scatter(made, whole, sizes=sizes).wait()
    return made, torch.split(wanted, sizes)[session.rank]


def _moved(session: Session, whole: Tensor, wanted: Tensor) -> tuple[Tensor, Tensor]:
    """The caller's names have other memory before the end."""
    mine = slice(session.rank * COUNT, (session.rank + 1) * COUNT)
    given, made = whole[: 2 * COUNT], torch.zeros(COUNT)
    work = session.world.reduce_scatter(made, given)
    given.data, made.data = torch.zeros(2 * COUNT), torch.zeros(COUNT)
    del whole
    work.wait()
    return made, wanted[mine]


def lost_memory(rank: int, store: str) -> list[str]:
    """An input without memory at the end is an error of this rank; the session goes on."""
    found, lose = [], rank == 1
    with session_of(rank, store, 2) as session:
        whole, made = torch.ones(2 * COUNT), torch.zeros(COUNT)
        work = session.world.reduce_scatter(made, whole)
        if lose:
            whole.untyped_storage().resize_(0)
        error = _error_of(work.wait)
        if ("has lost its memory" in error) != lose:
            found.append(f"rank {rank} has {error!r}, and {made[:4].tolist()}")
        session.world.barrier().wait()
    return found


def _error_of(call: Callable[[], object]) -> str:
    try:
        call()
    except BadTensor as error:
        return str(error)
    return ""
