"""An array of a device and memory of the host, as pairs of flat byte tensors."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import torch


def spans(
    host: memoryview, array: torch.Tensor, cuts: Sequence[int]
) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """(host, device) of each stretch between `cuts`: views of both. `array` is dense, not empty.

    Not `detach`: a view of that kind shares the version counter, and a result that arrives would
    look to autograd like a change of what it has saved.
    """
    flat = array.data.view(-1).view(torch.uint8)
    for start, stop in pairwise((0, *cuts, len(host))):
        yield torch.frombuffer(host[start:stop], dtype=torch.uint8), flat[start:stop]
