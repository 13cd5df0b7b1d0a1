"""Which parameters are exempt, and where a bucket holds them."""

import torch
from torch import nn

from dlcp_client.hooks.exempt import bucket_name, exempt_parameters, gradient_ranges


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10, 4)
        self.bag = nn.EmbeddingBag(10, 4)
        self.linear = nn.Linear(4, 4)
        self.conv = nn.Conv2d(1, 1, 3)
        self.norms = nn.ModuleList(
            [nn.LayerNorm((4, 4)), nn.GroupNorm(1, 4), nn.RMSNorm((4, 4)), nn.BatchNorm2d(4)]
        )
        self.scale = nn.Parameter(torch.ones(()))


def test_norms_biases_scalars_and_embeddings_are_exempt() -> None:
    model = Model()
    found = exempt_parameters(model)
    lossy = {name for name, p in model.named_parameters() if id(p) not in found}
    assert lossy == {"linear.weight", "conv.weight"}


def test_a_tied_embedding_stays_exempt() -> None:
    model = Model()
    model.linear.weight = model.words.weight
    assert id(model.linear.weight) in exempt_parameters(model)


def test_ranges_are_where_the_gradients_lie() -> None:
    buffer = torch.zeros(100, dtype=torch.bfloat16)
    gradients = [buffer[60:100].view(4, 10), buffer[0:6], buffer[6:60]]
    assert gradient_ranges(buffer, gradients) == [(120, 200), (0, 12), (12, 120)]


def test_a_name_tells_buckets_apart_and_nothing_else() -> None:
    name = bucket_name("ddp0", ["a", "b"], [1, 2])
    assert name == bucket_name("ddp0", ["a", "b"], [1, 2])
    others = [
        bucket_name("ddp1", ["a", "b"], [1, 2]),
        bucket_name("ddp0", ["b", "a"], [1, 2]),
        bucket_name("ddp0", ["a", "b"], [2, 1]),
        bucket_name("ddp0", ["a"], [1]),
    ]
    assert len({name, *others}) == 5
    assert len(name) < 64
