"""Norms of whole parameters, of which each rank has parts: what LAMB needs before its update."""

from collections.abc import Sequence

import torch

from dlcp_client.fused.lamb import trust
from dlcp_client.fused.shard_update import ShardUpdate
from dlcp_client.group import Group


class LayerNorms:
    """Makes all ranks agree on the length of each parameter's step."""

    def __init__(self, group: Group[torch.Tensor], shards: Sequence[ShardUpdate]) -> None:
        self._group, self._shards = group, shards

    def agree(self, parts: Sequence[Sequence[tuple[int, int]]]) -> None:
        """Replace the averages of this rank's parts, [start, stop) in bytes by bucket, by
        directions, and give every shard its ratios. Raises: the error that ended the operation."""
        counts = [len(shard.bucket.slots) for shard in self._shards]
        squared = torch.zeros(2, sum(counts), dtype=torch.float64)
        of_shard = torch.split(squared, counts, dim=1)
        for shard, found, mine in zip(self._shards, parts, of_shard, strict=True):
            for start, stop in found:
                shard.direct(start, stop, mine)
        self._group.all_reduce(squared, "sum").wait()
        for shard, ratios in zip(self._shards, torch.split(trust(*squared), counts), strict=True):
            shard.ratios = ratios
