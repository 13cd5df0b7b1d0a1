"""The parameters whose gradients are never waived, and their places in a DDP bucket."""

from collections.abc import Iterable
from hashlib import blake2b
from typing import Final

import torch
from torch import nn

from dlcp_client.operations.requests import Range

# A lost row of an embedding is a word that was not trained; norms and biases are few bytes and
# affect every activation. Both are cheap to protect.
CRITICAL_MODULES: Final = (
    nn.Embedding,
    nn.EmbeddingBag,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
    nn.modules.batchnorm._NormBase,  # noqa: SLF001  # all batch and instance norms
)


def exempt_parameters(model: nn.Module) -> set[int]:
    """id() of each norm, bias, scalar and embedding parameter."""
    found = {id(p) for p in model.parameters() if p.ndim <= 1}
    for module in model.modules():
        if isinstance(module, CRITICAL_MODULES):
            found.update(id(p) for p in module.parameters(recurse=False))
    return found


def gradient_ranges(buffer: torch.Tensor, gradients: Iterable[torch.Tensor]) -> list[Range]:
    """[start, stop) in bytes of each gradient, a view of `buffer`."""
    base = buffer.data_ptr()
    starts = [(g.data_ptr() - base, g.nbytes) for g in gradients if g.numel()]
    return [(start, start + size) for start, size in starts]


def bucket_name(prefix: str, names: Iterable[str], sizes: Iterable[int]) -> str:
    """A name that is equal for the same parameters in the same order, on every rank and step."""
    text = repr([(name, size) for name, size in zip(names, sizes, strict=True)])
    return f"{prefix}/{blake2b(text.encode(), digest_size=12).hexdigest()}"
