"""Every collective of `dlcpd.schedules`: its programs, its sizes, and what it must give."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from dlcpd.schedules.builders import (
    all_reduce,
    all_to_all,
    barrier,
    broadcast,
    gather,
    point_to_point,
    reduce,
    reduce_scatter,
)
from dlcpd.schedules.builders.exchange import exchange
from dlcpd.schedules.builders.hierarchical import Hosts, hierarchical
from dlcpd.schedules.builders.ring import ring
from dlcpd.schedules.builders.tree import tree
from dlcpd.schedules.model import Program
from tests.numerics.plain import plain

CHUNK = 256  # bytes
Parts = Sequence[np.ndarray]  # stored elements, by rank
Meaning = Callable[[Parts, str, str], list[bytes]]  # of parts, dtype and op


@dataclass(frozen=True)
class Case:
    """One collective on all ranks. Sizes are in bytes, by rank."""

    programs: list[Program]
    inputs: list[int]
    outputs: list[int]
    meaning: Meaning
    input_at: list[int] | None = None  # where INPUT lies in OUTPUT, in place


def hosts_of(world: int, each: int) -> Hosts:
    """Ranks dealt to hosts in order; the last host may have fewer."""
    return tuple(tuple(range(at, min(at + each, world))) for at in range(0, world, each))


def reduced(parts: Parts, dtype: str, op: str) -> bytes:
    return plain(parts, dtype, op, len(parts) if op == "avg" else 1)


def all_reduces(world: int, size: int, chunk: int = CHUNK) -> dict[str, Case]:
    """All that reduce `size` bytes, by name. `direct` and `one_shot` add in rank order."""
    ranks = range(world)
    programs = {
        "direct": [all_reduce.direct(r, world, size, chunk) for r in ranks],
        "one_shot": [all_reduce.one_shot(r, world, size) for r in ranks],
        "ring": [ring(r, world, size, chunk) for r in ranks],
        "ring in order": [ring(r, world, size, chunk, (*ranks[1::2], *ranks[::2])) for r in ranks],
        "tree": [tree(r, world, size, chunk) for r in ranks],
        "exchange": [exchange(r, world, size) for r in ranks],
    }
    for each in (1, 2, 3, 4):
        hosts = hosts_of(world, each)
        programs[f"hierarchical{each}"] = [hierarchical(r, hosts, size, chunk) for r in ranks]

    def meaning(parts: Parts, dtype: str, op: str) -> list[bytes]:
        return [reduced(parts, dtype, op)] * world

    sizes = [size] * world
    return {name: Case(made, sizes, sizes, meaning, [0] * world) for name, made in programs.items()}


def to_a_root(world: int, size: int, root: int) -> dict[str, Case]:
    ranks, on_root = range(world), [size * (r == root) for r in range(world)]

    def summed(parts: Parts, dtype: str, op: str) -> list[bytes]:
        return [reduced(parts, dtype, op) if r == root else b"" for r in ranks]

    def copied(parts: Parts, dtype: str, op: str) -> list[bytes]:
        return [parts[root].tobytes()] * world

    sizes, at = [size] * world, [0] * world
    out = {}
    for name in ("direct", "tree"):
        build, pass_on = getattr(reduce, name), getattr(broadcast, name)
        down = [pass_on(r, world, size, root, CHUNK) for r in ranks]
        up = [build(r, world, size, root, CHUNK) for r in ranks]
        out[f"reduce_{name}"] = Case(up, sizes, on_root, summed, at)
        out[f"broadcast_{name}"] = Case(down, on_root, sizes, copied, at)
    return out


def of_parts(sizes: tuple[int, ...], root: int) -> dict[str, Case]:
    """Gathers and scatters of parts of `sizes` bytes."""
    world, total = len(sizes), sum(sizes)
    ranks, offsets = range(world), [sum(sizes[:at]) for at in range(world)]
    on_root = [total * (r == root) for r in ranks]
    each, whole = list(sizes), [total] * world

    def share(raw: bytes, rank: int) -> bytes:
        return raw[offsets[rank] : offsets[rank] + sizes[rank]]

    def gathered(parts: Parts, dtype: str, op: str) -> list[bytes]:
        return [b"".join(part.tobytes() for part in parts)] * world

    def gathered_on_root(parts: Parts, dtype: str, op: str) -> list[bytes]:
        return [gathered(parts, dtype, op)[0] if r == root else b"" for r in ranks]

    def scattered(parts: Parts, dtype: str, op: str) -> list[bytes]:
        return [share(parts[root].tobytes(), r) for r in ranks]

    def summed(parts: Parts, dtype: str, op: str) -> list[bytes]:
        return [share(reduced(parts, dtype, op), r) for r in ranks]

    backwards = [-at for at in offsets]
    return {
        "all_gather": Case(
            [gather.all_gather(r, sizes) for r in ranks], each, whole, gathered, offsets
        ),
        "gather": Case(
            [gather.gather(r, sizes, root) for r in ranks],
            each,
            on_root,
            gathered_on_root,
            [at * (r == root) for r, at in enumerate(offsets)],
        ),
        "scatter": Case(
            [gather.scatter(r, sizes, root) for r in ranks],
            on_root,
            each,
            scattered,
            [at * (r == root) for r, at in enumerate(backwards)],
        ),
        "reduce_scatter": Case(
            [reduce_scatter.reduce_scatter(r, sizes, CHUNK) for r in ranks],
            whole,
            each,
            summed,
            backwards,
        ),
    }


def between_pairs(sizes: list[tuple[int, ...]]) -> dict[str, Case]:
    """`sizes[a][b]` bytes go from a to b."""
    world = len(sizes)
    receives = [tuple(row[rank] for row in sizes) for rank in range(world)]

    def exchanged(parts: Parts, dtype: str, op: str) -> list[bytes]:
        raw = [part.tobytes() for part in parts]
        at = [[sum(row[:to]) for to in range(world)] for row in sizes]
        return [
            b"".join(raw[a][at[a][b] : at[a][b] + sizes[a][b]] for a in range(world))
            for b in range(world)
        ]

    programs = [all_to_all.all_to_all(r, sizes[r], receives[r]) for r in range(world)]
    made = Case(programs, [sum(row) for row in sizes], [sum(row) for row in receives], exchanged)
    return {"all_to_all": made}


def without_a_reduction(world: int, size: int) -> dict[str, Case]:
    def nothing(parts: Parts, dtype: str, op: str) -> list[bytes]:
        return [b""] * world

    def moved(parts: Parts, dtype: str, op: str) -> list[bytes]:
        return [b"", parts[0].tobytes()]

    zeros = [0] * world
    pair = [point_to_point.send(0, 1, size), point_to_point.receive(1, 0, size)]
    return {
        "barrier": Case([barrier.barrier(r, world) for r in range(world)], zeros, zeros, nothing),
        "point_to_point": Case(pair, [size, 0], [0, size], moved),
    }


def every(world: int, size: int, seed: int, item: int) -> dict[str, Case]:
    """All collectives, of about `size` bytes in elements of `item` bytes."""
    rng, root = np.random.default_rng(seed), seed % world
    pairs = rng.integers(0, size // item + 1, (world, world)) * item
    pairs[rng.random((world, world)) < 0.3] = 0
    rows = [tuple(int(n) for n in row) for row in pairs]
    uneven = tuple(int(n) for n in pairs[0])
    return {
        **all_reduces(world, size),
        **to_a_root(world, size, root),
        **of_parts(uneven, root),
        **between_pairs(rows),
        **without_a_reduction(world, size),
    }
