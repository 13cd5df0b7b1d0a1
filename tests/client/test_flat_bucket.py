"""How a model is divided into buckets."""

from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch
from torch import nn

from dlcp_client import Session
from dlcp_client.fused.flat_bucket import division_of, flat_buckets

KIB, MIB = 1 << 10, 1 << 20


def session(hosts: int) -> Session:
    """Of `hosts` hosts; its arrays are plain tensors of no memory."""
    made: Any = SimpleNamespace(hosts=hosts)
    made.zeros = lambda count, dtype: torch.zeros(count, dtype=dtype, device="meta")
    return cast(Session, made)


@pytest.mark.parametrize(
    ("layers", "layer", "hosts", "buckets"),
    [
        (16, 256 * KIB, 1, [4 * MIB]),
        (16, 256 * KIB, 2, [MIB] * 4),
        (16, MIB, 1, [4 * MIB] * 4),
        (16, MIB, 4, [MIB] * 16),
        (48, MIB, 4, [3 * MIB] * 16),
        (128, MIB, 1, [16 * MIB] * 8),
        (1024, MIB, 4, [16 * MIB] * 64),
        (2, 40 * MIB, 2, [40 * MIB] * 2),
    ],
)
def test_a_model_on_several_hosts_has_more_buckets(
    layers: int, layer: int, hosts: int, buckets: list[int]
) -> None:
    parameters = [nn.Parameter(torch.empty(layer // 4, device="meta")) for _ in range(layers)]
    made = flat_buckets(session(hosts), [{"params": parameters}], parameters)
    assert [bucket.gradients.nbytes for bucket in made] == buckets
    assert made[0].slots[0].parameter is parameters[-1]
    assert made[-1].slots[-1].parameter is parameters[0]


@pytest.mark.parametrize(
    ("layer", "hosts", "exact", "buckets"),
    [
        (256 * KIB, 4, True, [512 * KIB] * 16),
        (MIB, 4, True, [MIB] * 32),
        (256 * KIB, 4, False, [MIB] * 8),
        (256 * KIB, 1, True, [4 * MIB] * 2),
    ],
)
def test_a_model_that_is_updated_within_backward_passes_has_more_unless_it_may_lose(
    layer: int, hosts: int, exact: bool, buckets: list[int]
) -> None:
    parameters = [nn.Parameter(torch.empty(layer // 4, device="meta")) for _ in range(32)]
    division = division_of(hosts, eager=True, exact=exact)
    groups: list[dict[str, Any]] = [{"params": parameters}]
    made = flat_buckets(session(hosts), groups, parameters, division=division)
    assert [bucket.gradients.nbytes for bucket in made] == buckets
