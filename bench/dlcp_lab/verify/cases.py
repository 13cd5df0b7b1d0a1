"""The all-reduces that `dlcpctl verify` runs in exact mode: awkward sizes, and every type and
operation that the reference knows."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from dlcp_lab.ranks.reference import DTYPES, OPERATIONS

# Near one element, one cache line and one segment of float32 (352), and a large prime.
SMALL: Final = (1, 3, 63, 64, 351, 352, 353, 100_003)
LARGE: Final = 1_300_001  # elements; several MB, no multiple of a segment or chunk
CHUNKED: Final = (("float32", "sum", 4), ("bfloat16", "avg", 2), ("float64", "max", 8))
INTEGERS: Final = ("int32", "int64")


@dataclass(frozen=True, slots=True)
class Case:
    """One all-reduce."""

    number: int
    dtype: str
    op: str
    count: int  # elements

    def __str__(self) -> str:
        return f"{self.op} of {self.count} {self.dtype}"


def cases(world_size: int, chunk_bytes: int) -> list[Case]:
    """All cases, in the order in which every rank submits them."""
    every = [*_small(), *_around_chunks(world_size, chunk_bytes), ("float32", "sum", LARGE)]
    return [Case(number, *case) for number, case in enumerate(every)]


def _small() -> Iterator[tuple[str, str, int]]:
    for count in SMALL:
        for dtype in DTYPES:
            for op in OPERATIONS:
                if not (op == "avg" and dtype in INTEGERS):  # would round, and dlcpd refuses it
                    yield dtype, op, count


def _around_chunks(world_size: int, chunk_bytes: int) -> Iterator[tuple[str, str, int]]:
    """Tensors of one chunk, and with shards of one chunk: one element less, equal, one more."""
    for dtype, op, width in CHUNKED:
        for size in (chunk_bytes, world_size * chunk_bytes):
            if size > chunk_bytes and dtype != "float32":
                continue  # one type is enough: the others take seconds
            for more in (-1, 0, 1):
                yield dtype, op, size // width + more
