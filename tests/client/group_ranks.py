"""What one rank does in a test of groups: each collective beside Gloo's, in the same process.

Functions return what went wrong, in words: an empty list is a pass.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any
from unittest import mock

import torch
import torch.distributed as dist

from dlcp_client import Session, connect
from dlcp_client.arena.memory import copy_bytes
from dlcp_client.group import Group
from dlcpd.contract.messages import DTYPES
from tests.client.ddp_ranks import group
from tests.client.real import TIMEOUT

KINDS = [getattr(torch, name) for name in DTYPES]
FEW = [torch.float32, torch.bfloat16, torch.bool, torch.complex64]  # of 4, 2, 1 and 8 bytes
LARGE = 3_000_001  # bytes: several chunks and an odd end
Pair = tuple[str, torch.Tensor, torch.Tensor]  # what, ours, what it must be

FOLD: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "sum": lambda a, b: a | b if a.dtype == torch.bool else a + b,
    "product": lambda a, b: a & b if a.dtype == torch.bool else a * b,
    "min": torch.minimum,
    "max": torch.maximum,
    "band": torch.bitwise_and,
    "bor": torch.bitwise_or,
    "bxor": torch.bitwise_xor,
}


@contextmanager
def session_of(rank: int, store: str, world: int, engines: int = 1) -> Iterator[Session]:
    """A session, within a default process group of Gloo. Many processes share few cores here, and
    one that gets none for a second is no dead peer."""
    file = Path(f"{store}.{rank}.toml")
    file.write_text(f"[network]\npeer_timeout = 10.0\nengines = {engines}\n")
    with (
        group(rank, store, world),
        connect(timeout=TIMEOUT, arena_bytes=256 << 20, config=file) as session,
    ):
        yield session
        dist.barrier()


@dataclass
class Case:
    """A group of ours and its equal of Gloo; the tensors of one comparison."""

    ours: Group
    theirs: Any
    dtype: torch.dtype
    count: int  # elements of one part
    arena: bool = False

    @property
    def size(self) -> int:
        return self.ours.size

    @property
    def rank(self) -> int:
        return self.ours.rank

    def new(self, count: int) -> torch.Tensor:
        """A tensor to be written to, full of ones."""
        if self.arena:
            return self.ours.session.empty(count, self.dtype).fill_(1)
        return torch.ones(count, dtype=self.dtype)

    def given(self, count: int) -> torch.Tensor:
        """Small whole numbers, different on each rank: sums of them are exact in every type."""
        seed = torch.Generator().manual_seed(1000 * count + self.rank)
        drawn = torch.randint(0, 2 if self.dtype == torch.bool else 6, (count,), generator=seed)
        return self.new(count).copy_(drawn)

    def gathered(self, mine: torch.Tensor) -> list[torch.Tensor]:
        """Every rank's tensor, by Gloo, which moves bytes of any type; in our order of ranks."""
        parts = [torch.empty_like(mine) for _ in range(self.size)]
        if mine.numel():
            raw = [part.view(torch.uint8) for part in parts]
            dist.all_gather(raw, mine.view(torch.uint8), group=self.theirs)
        return [parts[dist.get_group_rank(self.theirs, rank)] for rank in self.ours.ranks]

    def reduced(self, mine: torch.Tensor, op: str) -> torch.Tensor:
        return reduce(FOLD[op], self.gathered(mine))


def operations(dtype: torch.dtype) -> list[str]:
    if dtype.is_complex:
        return ["sum"]
    bits = [] if dtype.is_floating_point else ["band", "bor", "bxor"]
    return ["sum", "product", "min", "max", *bits]


def all_reduce(case: Case) -> Iterator[Pair]:
    for op in operations(case.dtype):
        mine = case.given(case.count)
        wanted = case.reduced(mine, op)
        case.ours.all_reduce(mine, op).wait()
        yield f"all_reduce {op}", mine, wanted
    if case.dtype in (torch.float32, torch.float64, torch.int32, torch.int64) and case.count:
        mine = case.given(case.count)
        wanted = mine.clone()
        dist.all_reduce(wanted, group=case.theirs)
        case.ours.all_reduce(mine, dist.ReduceOp.SUM).wait()
        yield "all_reduce as of Gloo", mine, wanted


def reduce_to_each(case: Case) -> Iterator[Pair]:
    for root in range(case.size):
        mine = case.given(case.count)
        wanted, untouched = case.reduced(mine, "sum"), mine.clone()
        case.ours.reduce(mine, root).wait()
        yield f"reduce to {root}", mine, wanted if case.rank == root else untouched


def broadcast(case: Case) -> Iterator[Pair]:
    for root in range(case.size):
        mine = case.given(case.count)
        wanted = case.gathered(mine)[root]
        case.ours.broadcast(mine, root).wait()
        yield f"broadcast from {root}", mine, wanted


def all_gather(case: Case) -> Iterator[Pair]:
    mine, output = case.given(case.count), case.new(case.size * case.count)
    wanted = torch.cat(case.gathered(mine))
    case.ours.all_gather(output, mine).wait()
    yield "all_gather", output, wanted


def gather(case: Case) -> Iterator[Pair]:
    for root in range(case.size):
        mine, output = case.given(case.count), None
        wanted = torch.cat(case.gathered(mine))
        if case.rank == root:
            output = case.new(case.size * case.count)
        case.ours.gather(output, mine, root).wait()
        if output is not None:
            yield f"gather at {root}", output, wanted


def scatter(case: Case) -> Iterator[Pair]:
    for root in range(case.size):
        whole, output = case.given(case.size * case.count), case.new(case.count)
        wanted = case.gathered(whole)[root].view(case.size, -1)[case.rank]
        case.ours.scatter(output, whole if case.rank == root else None, root).wait()
        yield f"scatter from {root}", output, wanted


def reduce_scatter(case: Case) -> Iterator[Pair]:
    for op in operations(case.dtype):
        whole, output = case.given(case.size * case.count), case.new(case.count)
        wanted = case.reduced(whole, op).view(case.size, -1)[case.rank]
        case.ours.reduce_scatter(output, whole, op).wait()
        yield f"reduce_scatter {op}", output, wanted


def all_to_all(case: Case) -> Iterator[Pair]:
    whole, output = case.given(case.size * case.count), case.new(case.size * case.count)
    columns = [theirs.view(case.size, -1)[case.rank] for theirs in case.gathered(whole)]
    case.ours.all_to_all(output, whole).wait()
    yield "all_to_all", output, torch.cat(columns)


def uneven(case: Case) -> Iterator[Pair]:
    """Parts of different sizes, some of them empty."""
    world, rank, unit = case.size, case.rank, case.count
    sizes = [unit * ((2 * r + 1) % 3) for r in range(world)]
    largest = case.given(max(sizes))
    parts = [part[:size] for part, size in zip(case.gathered(largest), sizes, strict=True)]
    mine = case.new(sizes[rank]).copy_(largest[: sizes[rank]])
    output = case.new(sum(sizes))
    case.ours.all_gather(output, mine, sizes).wait()
    yield "all_gather, uneven", output, torch.cat(parts)

    whole, output = case.given(sum(sizes)), case.new(sizes[rank])
    wanted = torch.split(case.reduced(whole, "sum"), sizes)[rank]
    case.ours.reduce_scatter(output, whole, sizes=sizes).wait()
    yield "reduce_scatter, uneven", output, wanted

    table = [[unit * ((i + 2 * j) % 3) for j in range(world)] for i in range(world)]
    totals, coming = [sum(row) for row in table], [row[rank] for row in table]
    largest = case.given(max(totals))
    whole = case.new(totals[rank]).copy_(largest[: totals[rank]])
    output = case.new(sum(coming))
    columns = [
        torch.split(theirs[:total], row)[rank]
        for theirs, total, row in zip(case.gathered(largest), totals, table, strict=True)
    ]
    case.ours.all_to_all(output, whole, coming, table[rank]).wait()
    yield "all_to_all, uneven", output, torch.cat(columns)


def one_memory(case: Case) -> Iterator[Pair]:
    """Input and output share bytes, though not at the same place."""
    world, rank, count = case.size, case.rank, case.count
    whole = case.given(world * count)
    columns = [theirs.view(world, -1)[rank] for theirs in case.gathered(whole)]
    case.ours.all_to_all(whole, whole).wait()
    yield "all_to_all within one tensor", whole, torch.cat(columns)

    whole = case.given(world * count)
    wanted = torch.cat([theirs[-count:] for theirs in case.gathered(whole)] if count else [whole])
    case.ours.all_gather(whole, whole[(world - 1) * count :]).wait()
    yield "all_gather of a part of its output", whole, wanted
    yield from _own_parts(case)


def _own_parts(case: Case) -> Iterator[Pair]:
    """The smaller tensor is this rank's part of the larger one, in the arena or not."""
    world, rank, count = case.size, case.rank, case.count
    mine = slice(rank * count, (rank + 1) * count)
    for inside in (False, True):
        whole = case.given(world * count)
        columns = [theirs.view(world, -1)[rank] for theirs in case.gathered(whole)]
        kept = case.ours.session.empty(world * count, case.dtype) if inside else whole
        kept.copy_(whole)
        case.ours.reduce_scatter(kept[mine], kept).wait()
        yield "reduce_scatter into a part of its input", kept[mine], reduce(FOLD["sum"], columns)
        wanted = torch.cat(case.gathered(kept[mine].clone()))
        case.ours.all_gather(kept, kept[mine]).wait()
        yield "all_gather of its own part of the output", kept, wanted


def kept_parts(case: Case) -> Iterator[Pair]:
    """An all-gather from this rank's part of its output does not copy that part back, unless the
    output has other memory at its end."""
    mine = slice(case.rank * 64, (case.rank + 1) * 64)  # a multiple of a cache line
    whole = case.given(case.size * 64)
    wanted = torch.cat(case.gathered(whole[mine].clone()))
    work = case.ours.all_gather(whole, whole[mine])
    whole[mine] = wanted[mine] = 1  # shows what is copied; a training leaves it alone
    work.wait()
    yield "all_gather of a part that stays", whole, wanted
    whole = case.given(case.size * 64)
    wanted = torch.cat(case.gathered(whole[mine].clone()))
    work = case.ours.all_gather(whole, whole[mine])
    whole.data = torch.zeros_like(whole)
    work.wait()
    yield "all_gather into other memory", whole, wanted


def in_parts(case: Case) -> Iterator[Pair]:
    """Tuples of tensors, one of them empty."""
    world, count = case.size, case.count
    mine, apart = case.given(count), _parts(case.new(count))
    wanted = case.gathered(mine)
    case.ours.all_reduce(_parts(mine)).wait()
    yield "all_reduce of parts", mine, reduce(FOLD["sum"], wanted)
    mine = case.given(count)
    case.ours.broadcast(_parts(mine), world - 1).wait()
    yield "broadcast of parts", mine, wanted[world - 1]

    mine, output = case.given(count), case.new(world * count)
    case.ours.all_gather(_parts(output), _parts(mine)).wait()
    yield "all_gather of parts", output, torch.cat(wanted)

    whole, output = case.given(world * count), case.new(world * count)
    columns = [theirs.view(world, -1)[case.rank] for theirs in case.gathered(whole)]
    case.ours.all_to_all(_parts(output), _parts(whole)).wait()
    yield "all_to_all of parts", output, torch.cat(columns)
    case.ours.reduce_scatter(apart, _parts(whole)).wait()
    yield "reduce_scatter of parts", torch.cat(apart), reduce(FOLD["sum"], columns)
    yield "an input of parts", whole, case.given(world * count)


def _parts(whole: torch.Tensor) -> tuple[torch.Tensor, ...]:
    cut = len(whole) // 3
    return whole[:cut], whole[cut:cut], whole[cut:]


EVERY = [
    all_reduce, reduce_to_each, broadcast, all_gather, gather, scatter, reduce_scatter, all_to_all,
    uneven, one_memory, in_parts,
]  # fmt: skip


def wrong(case: Case, methods: Sequence[Callable[[Case], Iterator[Pair]]] = EVERY) -> list[str]:
    """Every difference between our results and Gloo's."""
    where = f"{case.count} {case.dtype}, ranks {case.ours.ranks}, rank {case.ours.session.rank}"
    return [
        f"{what} of {where}: {ours[:8].tolist()}, not {wanted[:8].tolist()}"
        for method in methods
        for what, ours, wanted in method(case)
        if not torch.equal(ours, wanted)
    ]


def every_type(rank: int, store: str, world: int, arena: bool) -> list[str]:
    """All methods and small sizes of all types; a large size of a few."""
    return _methods(KINDS, session_of(rank, store, world), arena=arena)


def few_types(rank: int, store: str, world: int, arena: bool, engines: int = 1) -> list[str]:
    """The same of a few types."""
    return _methods(FEW, session_of(rank, store, world, engines), arena=arena)


def _methods(
    kinds: list[torch.dtype], opened: AbstractContextManager[Session], *, arena: bool
) -> list[str]:
    found = []
    with opened as session:
        for dtype in kinds:
            for count in (0, 1, 7, 1024):  # of the last, each part is aligned
                found += wrong(Case(session.world, dist.group.WORLD, dtype, count, arena))
        for dtype in FEW:
            count = LARGE // dtype.itemsize
            found += wrong(Case(session.world, dist.group.WORLD, dtype, count, arena))
    return found


def own_part_of_an_all_gather(rank: int, store: str) -> list[str]:
    """See `kept_parts`."""
    with session_of(rank, store, 2) as session:
        return wrong(Case(session.world, dist.group.WORLD, torch.float32, 64), [kept_parts])


def copies_of_a_broadcast(rank: int, store: str) -> list[str]:
    """The root's tensor goes to the arena, and the result from there to the other rank's."""
    found, copied = [], list[int]()

    def copy(target: int, source: int, size: int) -> None:
        copied.append(size)
        copy_bytes(target, source, size)

    with session_of(rank, store, 2) as session:
        tensor = torch.full((LARGE,), float(rank))
        with (
            mock.patch("dlcp_client.operations.places.copy_bytes", copy),
            mock.patch("dlcp_client.operations.results.copy_bytes", copy),
        ):
            session.world.broadcast(tensor, 1).wait()
        if copied != [tensor.nbytes]:
            found.append(f"rank {rank} copied {copied}")
        if not torch.equal(tensor, torch.ones(LARGE)):
            found.append(f"rank {rank} has {tensor[:4].tolist()}")
    return found


def subgroups(rank: int, store: str, engines: int = 1) -> list[str]:
    """Groups of two of three ranks, and of all in other orders; a rank alone."""
    found = []
    with session_of(rank, store, 3, engines) as session:
        for ranks in ([0, 1, 2], [2, 1, 0], [1, 2, 0], [2, 0], [1, 2], [1]):
            theirs = dist.new_group(ranks)
            if rank not in ranks:
                continue
            ours = session.group(ranks, "some")
            for dtype, count in ((torch.float32, 7), (torch.int16, 40_001)):
                found += wrong(Case(ours, theirs, dtype, count))
            ours.close()
            ours.close()
    return found


def in_flight(rank: int, store: str, world: int, engines: int = 1) -> list[str]:
    """Groups of the same ranks, a thread for each, operations of all of them in flight at once."""
    found: list[str] = []
    with session_of(rank, store, world, engines) as session:
        groups = [session.group(range(world), f"thread {n}") for n in range(4)]
        threads = [
            threading.Thread(target=_many, args=(ours, number, found))
            for number, ours in enumerate(groups)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    return found


def _many(ours: Group, number: int, found: list[str]) -> None:
    """Submit them all, then look at all."""
    world, works = ours.size, []
    for step in range(20):
        count = (1, 999, 50_000)[step % 3]
        value = float(100 * number + step)
        total = torch.full((count,), value + ours.rank)
        works.append((ours.all_reduce(total), total, value * world + sum(range(world))))
        root = step % world
        copied = torch.full((count,), value + ours.rank)
        works.append((ours.broadcast(copied, root), copied, value + root))
        following = (ours.rank + 1) % world
        ours.send(torch.full((count,), value), following, tag=step)
    for work, tensor, wanted in reversed(works):
        work.wait()
        if not bool((tensor == wanted).all()):
            found.append(f"{work.label} of thread {number}: {tensor[:4].tolist()}, not {wanted}")
    for step in reversed(range(20)):  # the messages, last first, by their tags
        message = torch.zeros((1, 999, 50_000)[step % 3])
        ours.receive(message, (ours.rank - 1) % world, tag=step).wait()
        if not bool((message == 100 * number + step).all()):
            found.append(f"message {step} of thread {number}: {message[:4].tolist()}")


def send_first(rank: int, store: str, world: int, engines: int = 1) -> list[str]:
    """Every rank sends to every other and waits for that, before any receives."""
    found = []
    with session_of(rank, store, world, engines) as session:
        ours = session.world
        others = [peer for peer in range(world) if peer != rank]
        for dtype in KINDS:
            for count in (0, 1, 7, LARGE // dtype.itemsize):
                sent = {to: _message(rank, to, count, dtype) for to in others}
                for to in others:
                    ours.send(sent[to], to).wait()
                    sent[to].zero_()  # its bytes are copied
                dist.barrier()
                for source in others:
                    got = session.empty(count, dtype)
                    work = ours.receive(got, source)
                    work.wait()
                    if work.source != source or not torch.equal(
                        got, _message(source, rank, count, dtype)
                    ):
                        found.append(f"{count} {dtype} from {work.source}: {got[:8].tolist()}")
    return found


def _message(source: int, to: int, count: int, dtype: torch.dtype) -> torch.Tensor:
    return torch.arange(count).add(3 * source + to).remainder(7).to(dtype)


def any_source(rank: int, store: str, world: int, engines: int = 1) -> list[str]:
    """Rank 0 takes what comes, of one tag; who sent it is in `Work.source`."""
    found = []
    with session_of(rank, store, world, engines) as session:
        ours = session.world
        if rank:
            for number in range(10):
                ours.send(torch.tensor([float(rank), float(number)]), 0, tag=number % 2).wait()
        else:
            works = []
            for number in range(10 * (world - 1)):
                got = torch.zeros(2)
                works.append((ours.receive(got, tag=number % 2), got))
            next_of = {(peer, tag): tag for peer in range(1, world) for tag in (0, 1)}
            for number, (work, got) in enumerate(works):
                work.wait()
                source, tag = work.source, number % 2
                wanted = [float(source), float(next_of[source, tag])]
                next_of[source, tag] += 2
                if got.tolist() != wanted:
                    found.append(f"{got.tolist()}, not {wanted}")
            if set(next_of.values()) != {10, 11}:
                found.append(f"messages missing: {next_of}")
    return found


def barriers(rank: int, store: str, world: int) -> list[str]:
    """No rank passes before all came: each counts itself before, and looks at the count after."""
    found = []
    with session_of(rank, store, world) as session:
        shared = dist.distributed_c10d._get_default_store()  # noqa: SLF001
        for turn in range(20):
            shared.add(f"turn {turn}", 1)
            session.world.barrier().wait()
            if (came := shared.add(f"turn {turn}", 0)) != world:
                found.append(f"turn {turn}: rank {rank} passed when {came} of {world} had come")
    return found


def schedules(rank: int, store: str, world: int, names: list[str]) -> list[str]:
    """All-reduce by every schedule."""
    found = []
    with session_of(rank, store, world) as session:
        for name in names:
            for count in (1, 7, 1000, LARGE // 4):
                case = Case(session.world, dist.group.WORLD, torch.float32, count)
                mine = case.given(count)
                wanted = case.reduced(mine, "sum")
                session.all_reduce(mine, schedule=name).wait()
                if not torch.equal(mine, wanted):
                    found.append(f"{name} of {count}: {mine[:8].tolist()}, not {wanted[:8]}")
    return found
