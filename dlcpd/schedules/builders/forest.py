"""Collectives over a forest: each tree carries its share of the tensor, chunk by chunk.

A row is one chunk of every tree. The contribution of a leaf is lossy where the collective may
lose; a partial sum never is. In a tree of one hop values are added in the order of ranks, in a
deeper tree at every rank in the order of its neighbours' ranks.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from dlcpd.schedules.builders.gather import Sizes, in_a_row
from dlcpd.schedules.draft import PROGRAMS, Draft, Steps, cut, of_input, of_output
from dlcpd.schedules.forest import ROOT, BadForest, Forest, Tree, split, weights
from dlcpd.schedules.layout import ALIGNMENT
from dlcpd.schedules.model import NOT_REPLICATED, Program, Span


@dataclass(frozen=True, slots=True, eq=False)
class _Chunk:
    """A chunk of a tree's part, and where it lies on this rank."""

    tree: Tree
    own: Span  # in INPUT
    result: Span  # in OUTPUT
    piece: int = NOT_REPLICATED
    earlier: "_Chunk | None" = None  # its result comes before this chunk's contribution leaves


Rows = list[list[_Chunk]]


@PROGRAMS
def all_reduce(rank: int, size: int, forest: Forest) -> Program:
    """Every tree adds towards its root and passes the sum down, one chunk behind."""
    write = _ForestWriter(Draft(rank, forest.world), lossy=True)
    before: list[_Chunk] = []
    for row in [*_rows(_chunks(size, forest, replicated=True)), []]:
        write.up(row)
        write.down(before)
        before = row
    return write.draft.program(*_neighbours(rank, forest))


@PROGRAMS
def reduce_scatter(rank: int, sizes: Sizes, forest: Forest) -> Program:
    """INPUT is a part for every rank, OUTPUT the sum of this rank's. A part goes up the trees whose
    root is its rank. Raises: BadForest if a rank with bytes is the root of no tree."""
    write, chunks = _ForestWriter(Draft(rank, forest.world), lossy=True), list[list[_Chunk]]()
    for tree, spans, offset in _owned(sizes, forest):
        made = [(of_input(s.start, s.size), of_output(s.start - offset, s.size)) for s in spans]
        chunks.append([_Chunk(tree, own, result) for own, result in made])
    for row in _rows(chunks):
        write.up(row)
    return write.draft.program(*_neighbours(rank, forest))


@PROGRAMS
def all_gather(rank: int, sizes: Sizes, forest: Forest) -> Program:
    """INPUT is this rank's part, OUTPUT all parts. A part goes down the trees whose root is its
    rank. Raises: BadForest as `reduce_scatter`."""
    write, chunks, piece = _ForestWriter(Draft(rank, forest.world)), list[list[_Chunk]](), 0
    for tree, spans, offset in _owned(sizes, forest):
        chunks.append([])
        for span in spans:
            own, result = of_input(span.start - offset, span.size), of_output(span.start, span.size)
            chunks[-1].append(_Chunk(tree, own, result, piece))
            piece += 1
    for row in _rows(chunks):
        write.pass_on(row)
    return write.draft.program(*_neighbours(rank, forest))


@PROGRAMS
def broadcast(rank: int, size: int, root: int, forest: Forest) -> Program:
    """Every rank gets the data of the root, from which all trees must start. Raises: BadForest."""
    write = _ForestWriter(Draft(rank, forest.world))
    for row in _rows(_from_root(size, root, forest, replicated=True)):
        write.pass_on(row)
    return write.draft.program(*_neighbours(rank, forest))


@PROGRAMS
def reduce(rank: int, size: int, root: int, forest: Forest) -> Program:
    """The sum of all ranks, on the root alone, to which all trees must lead. Raises: BadForest."""
    write = _ForestWriter(Draft(rank, forest.world))
    for row in _rows(_from_root(size, root, forest, replicated=False)):
        write.up(row)
    return write.draft.program()


def _neighbours(rank: int, forest: Forest) -> set[int]:
    """Ranks beside this one in any tree, even if a tree carries nothing: all trees together connect
    all ranks, so ranks that disagree are found out. To meet all ranks would cost more than data
    where many share a slow uplink."""
    found: set[int] = set()
    for tree in forest.trees:
        found.update(tree.children[rank], {tree.parents[rank]} - {ROOT})
    return found


def _from_root(size: int, root: int, forest: Forest, *, replicated: bool) -> Rows:
    for number, tree in enumerate(forest.trees):
        if tree.root != root:
            raise BadForest(f"tree {number} has root {tree.root}, the operation {root}")
    return _chunks(size, forest, replicated=replicated)


def _chunks(size: int, forest: Forest, *, replicated: bool) -> Rows:
    """The chunks of every tree of a tensor. `replicated`: all ranks get equal results."""
    chunks: Rows = []
    piece = 0
    for tree, spans in _parts(forest.trees, 0, size, forest.chunk_bytes):
        chunks.append([])
        for at in spans:
            own, result = of_input(at.start, at.size), of_output(at.start, at.size)
            if replicated:
                limited = 0 < forest.ahead <= len(chunks[-1])
                earlier = chunks[-1][-forest.ahead] if limited else None
                chunks[-1].append(_Chunk(tree, own, result, piece, earlier))
            else:
                chunks[-1].append(_Chunk(tree, own, result))
            piece += 1
    return chunks


def _owned(sizes: Sizes, forest: Forest) -> Iterator[tuple[Tree, tuple[Span, ...], int]]:
    """Trees of every rank's part with their chunks, and the offset of the part."""
    if len(sizes) != forest.world:
        raise BadForest(f"{len(sizes)} sizes for a forest of {forest.world} ranks")
    for owner, part in enumerate(in_a_row(sizes)):
        trees = tuple(tree for tree in forest.trees if tree.root == owner)
        if part.size and not trees:
            raise BadForest(f"rank {owner} owns {part.size} B and is the root of no tree")
        for tree, spans in _parts(trees, part.start, part.size, forest.chunk_bytes):
            yield tree, spans, part.start


def _parts(
    trees: tuple[Tree, ...], start: int, size: int, chunk_bytes: int
) -> Iterator[tuple[Tree, tuple[Span, ...]]]:
    """The chunks of every tree: smaller where the share is, so that all have as many rows."""
    if not trees:
        return
    weight = weights(trees)
    parts = split(size, weight)
    for tree, one, (at, length) in zip(trees, weight, parts, strict=True):
        chunk = -(-chunk_bytes * one // max(weight) // ALIGNMENT) * ALIGNMENT
        yield tree, cut(of_input(start + at, length), chunk)


def _rows(chunks: Rows) -> Rows:
    """Chunk 0 of every tree, then chunk 1, and so on."""
    count = max(map(len, chunks), default=0)
    return [[c for of_tree in chunks for c in of_tree[row : row + 1]] for row in range(count)]


@dataclass(slots=True)
class _ForestWriter:
    """Writes the program of one rank, row by row.

    Both ranks of a pair write, per row, first what leaves give, then partial sums, then results,
    each in the order of the trees.
    """

    draft: Draft
    lossy: bool = False  # whether the contribution of a leaf may lose a part
    # by chunk: the Send to the parent, or the sum; then the receipt of the result
    _known: dict[_Chunk, Steps] = field(default_factory=dict)

    def up(self, row: list[_Chunk]) -> None:
        """Add the contributions to a row, and send each sum to the parent."""
        rank, world = self.draft.rank, self.draft.world
        leaves = [c for c in row if not c.tree.children[rank] and c.tree.parents[rank] != ROOT]
        for chunk in sorted(leaves, key=lambda c: (c.tree.parents[rank] - rank) % world):
            parent, after = chunk.tree.parents[rank], self._after(chunk)
            self._known[chunk] = self.draft.send(parent, chunk.own, after=after, lossy=self.lossy)
        inner = [c for c in row if c.tree.children[rank] or c.tree.parents[rank] == ROOT]
        parts = {
            c: {p: self.draft.scratch(c.own.size) for p in c.tree.children[rank]} for c in inner
        }
        arrived = {c: self._receive(c, parts[c], leaves=True) for c in inner}
        for chunk in inner:
            arrived[chunk] += self._receive(chunk, parts[chunk], leaves=False)
            self._known[chunk] = self._add(chunk, parts[chunk], arrived[chunk])

    def _after(self, chunk: _Chunk) -> Steps:
        """The steps that bring the result of an earlier chunk here."""
        return self._known[chunk.earlier] if chunk.earlier is not None else ()

    def _receive(self, chunk: _Chunk, parts: dict[int, Span], *, leaves: bool) -> Steps:
        """Receive from the children that are leaves, or from the others."""
        steps: Steps = ()
        for child in reversed(parts):  # the rank before sends to this one first
            if leaves is not bool(chunk.tree.children[child]):
                start, lossy = chunk.own.start, leaves and self.lossy
                steps += self.draft.receive(child, parts[child], lossy=lossy, origin=start)
        return steps

    def _add(self, chunk: _Chunk, parts: dict[int, Span], arrived: Steps) -> Steps:
        draft, parent = self.draft, chunk.tree.parents[self.draft.rank]
        ranks = sorted([*parts, draft.rank])
        operands = tuple(parts.get(rank, chunk.own) for rank in ranks)
        if parent == ROOT:
            return draft.reduce(chunk.result, operands, after=arrived, last=True, piece=chunk.piece)
        total = next(iter(parts.values()))
        added = draft.reduce(total, operands, after=arrived)
        return draft.send(parent, total, after=added, origin=chunk.own.start)

    def down(self, row: list[_Chunk]) -> None:
        """Pass the sums of a row down. A result acknowledges what this rank gave to it."""
        draft = self.draft
        for chunk in row:
            parent, known = chunk.tree.parents[draft.rank], self._known.get(chunk, ())
            if parent != ROOT:
                known = draft.receive(parent, chunk.result, implies=known, piece=chunk.piece)
                self._known[chunk] = known
            for child in chunk.tree.children[draft.rank]:
                draft.send(child, chunk.result, after=known)

    def pass_on(self, row: list[_Chunk]) -> None:
        """Pass the INPUT of each root down, and copy it to the root's OUTPUT."""
        draft = self.draft
        for chunk in row:
            if chunk.tree.parents[draft.rank] != ROOT:
                self.down([chunk])
                continue
            for child in chunk.tree.children[draft.rank]:
                draft.send(child, chunk.own)
            draft.copy(chunk.result, chunk.own, piece=chunk.piece)
