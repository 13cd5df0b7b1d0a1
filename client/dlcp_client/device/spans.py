"""Pairs the bytes of a device array with host memory, as flat byte tensors."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch


def spans(
    host: memoryview, array: torch.Tensor, cuts: Sequence[int]
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """(host, device) of each stretch between `cuts`: views of both. `array` is dense, not empty.

    Uses `.data` instead of `detach`, which shares the version counter: autograd would see the
    arrival of a result as a change of saved tensors.
    """
    flat = array.data.view(-1).view(torch.uint8)
    for start, stop in pairwise((0, *cuts, len(host))):
        yield torch.frombuffer(host[start:stop], dtype=torch.uint8), flat[start:stop]
