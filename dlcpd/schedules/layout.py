"""Splits a tensor into shards and chunks, by its size alone: equal on every rank."""

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

ALIGNMENT: Final = 64  # bytes; a cache line, and a multiple of every element size
SEGMENT: Final = 1408  # bytes of data in a full datagram, at the usual MTU


@dataclass(frozen=True, slots=True)
class Chunk:
    """Contiguous slice of a shard: the unit of deadline, bound and reduction."""

    index: int  # in the operation
    owner: int  # rank that reduces it
    start: int  # byte offset in the tensor
    size: int  # bytes


@dataclass(frozen=True, slots=True)
class Layout:
    """All chunks of an operation, in order of their offsets."""

    chunks: tuple[Chunk, ...]

    def owned_by(self, rank: int) -> list[Chunk]:
        """Chunks of the shard that `rank` reduces; may be none."""
        return [chunk for chunk in self.chunks if chunk.owner == rank]


@lru_cache(maxsize=16)  # a tensor of 16 GiB has 0.7 MB of chunks
def layout(size: int, world_size: int, chunk_size: int) -> Layout:
    """Split `size` bytes into one shard per rank and each shard into chunks.

    Shards are ALIGNMENT-aligned and equal except for the last ones, which are shorter or
    empty; chunks are `chunk_size` bytes except for the last of a shard.
    """
    shard = -(-size // world_size // ALIGNMENT) * ALIGNMENT
    chunks: list[Chunk] = []
    for owner in range(world_size):
        stop = min((owner + 1) * shard, size)
        for start in range(owner * shard, stop, chunk_size):
            chunks.append(Chunk(len(chunks), owner, start, min(chunk_size, stop - start)))
    return Layout(tuple(chunks))
