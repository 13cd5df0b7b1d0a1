"""Attention whose query heads share key heads, divided by heads and by batch."""

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from dlcp_client.spmd.annotations import annotate
from dlcp_client.spmd.costs import Costs
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.planning import plan
from tests.spmd.one_device import assert_equal, counts

SLOW = Costs(latency=0.0, bytes_per_s=1e7, work_per_s=1e6)  # of work that is worth dividing
FEATURES, POSITIONS, BATCH = 4, 6, 6  # of a head
ROWS = ("a", None, None)


class GroupedAttention(nn.Module):
    """`heads` of the query, of which each `heads // shared` have one of key and value."""

    def __init__(self, heads: int, shared: int, *, masked: bool = False) -> None:
        super().__init__()
        width = heads * FEATURES
        self.heads, self.shared, self.masked = heads, shared, masked
        self.q, self.o = nn.Linear(width, width), nn.Linear(width, width)
        self.k, self.v = (nn.Linear(width, shared * FEATURES) for _ in range(2))

    def _heads(self, x: Tensor, heads: int) -> Tensor:
        return x.view(*x.shape[:2], heads, FEATURES).transpose(1, 2)

    def forward(self, x: Tensor) -> Tensor:
        """x: [batch, positions, heads x features]. Returns a loss."""
        q = self._heads(self.q(x), self.heads)
        k, v = (self._heads(part(x), self.shared) for part in (self.k, self.v))
        mask = x[:, None, :, :1] + x[:, None, None, :, 0] if self.masked else None
        y = F.scaled_dot_product_attention(
            q, k, v, mask, is_causal=not self.masked, enable_gqa=True
        )
        loss: Tensor = self.o(y.transpose(1, 2).flatten(2)).square().mean()
        return loss


def divided(model: GroupedAttention, mesh: Mesh, patterns: Any, dims: Any) -> dict[str, int]:
    """The collectives."""
    torch.manual_seed(0)
    model = model.double()
    x = torch.randn(BATCH, POSITIONS, model.heads * FEATURES).double()
    annotate(model, mesh, patterns)
    made = plan(model, mesh, example=(x,), inputs=[dims], costs=SLOW)
    assert_equal(made, model, (x,))
    return counts(made)


BY_HEADS = {f"{name}.weight": ("a", None) for name in "qkv"} | {"o.weight": (None, "a")}


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("heads", "shared"), [(8, 4), (8, 2), (6, 2), (4, 4)])
def test_ranks_have_whole_groups_of_heads(heads: int, shared: int, *, masked: bool) -> None:
    found = divided(GroupedAttention(heads, shared, masked=masked), Mesh({"a": 2}), BY_HEADS, None)
    # As without groups: sums of the output and of gradients, nothing is gathered.
    assert set(found) == {"all_reduce"}, found


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(("heads", "shared"), [(8, 2), (8, 1)])
def test_fewer_shared_heads_than_ranks_are_right(heads: int, shared: int, *, masked: bool) -> None:
    model = GroupedAttention(heads, shared, masked=masked)
    divided(model, Mesh({"a": 4}), {name: BY_HEADS[name] for name in ("q.weight",)}, None)
    divided(model, Mesh({"a": 4}), BY_HEADS, None)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("ranks", [2, 3])
def test_the_batch_divides_groups_as_any_attention(ranks: int, *, masked: bool) -> None:
    found = divided(GroupedAttention(6, 2, masked=masked), Mesh({"a": ranks}), {}, ROWS)
    assert set(found) == {"all_reduce"}, found
