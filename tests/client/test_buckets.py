"""A bucket's gradients, cut into pieces at parameter boundaries, and the terms they get."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from dlcp_client.hooks.buckets import PIECE, SMALL, PlacedGradient, as_kept, cut
from dlcp_client.hooks.rules import EXACT_BELOW, GradientRequest, Rules
from dlcpd.contract.policy import LossPolicy, bounded

K = 1 << 10


def placed(sizes: list[int], classes: str) -> tuple[list[PlacedGradient], dict[int, str]]:
    """Gradients of these bytes, one behind the other, and a class for each."""
    out: list[PlacedGradient] = []
    for size in sizes:
        start = out[-1].stop if out else 0
        parameter = nn.Parameter(torch.empty(size // 4))
        out.append(PlacedGradient(parameter, parameter.detach(), start, start + size))
    return out, {id(one.parameter): name for one, name in zip(out, classes, strict=True)}


def lengths(sizes: list[int], classes: str) -> list[int]:
    bucket, names = placed(sizes, classes)
    return [len(run) for run in cut(bucket, lambda p: names[id(p)])]


@pytest.mark.parametrize(
    ("sizes", "classes", "want"),
    [
        ([400 * K] * 6, "ffffff", [3, 3]),  # joined to 1 MiB
        ([4096 * K, 4096 * K], "ff", [1, 1]),  # large ones alone
        ([4 * K, 4096 * K, 4 * K, 4096 * K], "ffff", [2, 2]),  # a bias goes along
        ([4096 * K, 4 * K], "ff", [2]),  # backwards, if nothing comes after it
        ([400 * K, 400 * K], "fb", [1, 1]),  # classes do not mix
        ([400 * K, 4 * K, 400 * K], "fbf", [3]),  # unless they are small
        ([4 * K, 400 * K, 400 * K], "fbb", [3]),
        ([4 * K, 4 * K], "fb", [2]),
        ([4 * K], "f", [1]),
    ],
)
def test_pieces(sizes: list[int], classes: str, want: list[int]) -> None:
    assert lengths(sizes, classes) == want


@given(st.lists(st.tuples(st.sampled_from([4, K, SMALL, 300 * K, PIECE]), st.sampled_from("fmb"))))
def test_every_gradient_is_in_one_piece_in_order(rows: list[tuple[int, str]]) -> None:
    bucket, names = placed([size for size, _ in rows], "".join(name for _, name in rows))
    pieces = cut(bucket, lambda p: names[id(p)])
    assert [one for run in pieces for one in run] == bucket
    for run in pieces:
        assert len({names[id(one.parameter)] for one in run if one.size >= SMALL}) <= 1
        assert sum(one.size for one in run[:-1]) < PIECE + 2 * SMALL or len(run) == 2


def test_a_gradient_has_the_layout_of_its_parameter() -> None:
    flat = torch.arange(24.0)
    dense = torch.empty(2, 3, 2, 2).to(memory_format=torch.channels_last)
    sparse = torch.empty(2, 12)[:, ::2]
    assert as_kept(dense, flat.view(2, 3, 2, 2)).stride() == dense.stride()
    assert as_kept(dense, flat.view(2, 3, 2, 2))[0, 1, 0, 0] == 1.0
    assert as_kept(sparse, flat[:12].view(2, 6)).stride() == (6, 1)
    assert as_kept(flat, flat) is flat


class Two(nn.Module):
    """1 MiB each, and a bias."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Linear(512, 512)
        self.b = nn.Linear(512, 512, bias=False)


def terms_of(policy: LossPolicy, step: int, size: int = EXACT_BELOW) -> GradientRequest:
    model = Two()
    rules = Rules(model, policy, 3)
    rules.step = step
    weight, bias = model.a.parameters()
    run = [
        PlacedGradient(bias, bias.detach(), 100, 100 + 2 * K),
        PlacedGradient(weight, weight.detach(), 100 + 2 * K, 100 + 2 * K + PIECE),
    ]
    made = rules.request(run, 100, size)
    rules.close()
    return made


def test_terms_of_a_bounded_piece() -> None:
    request = terms_of(bounded(0.1), 4)
    assert request.policy.mode == "bounded"
    assert request.exempt == [(0, 2 * K)]
    assert request.layers == [(0, "middle"), (2 * K, "front")]
    assert request.name.startswith("ddp")


@pytest.mark.parametrize(("step", "size"), [(3, EXACT_BELOW), (4, EXACT_BELOW - 4)])
def test_early_and_small_ones_are_exact(step: int, size: int) -> None:
    request = terms_of(bounded(0.1, per_class={"front": 0.05}), step, size)
    assert (request.policy.mode, request.name, request.exempt) == ("exact", "", [])
    assert len(request.layers) == 2


def test_a_class_that_the_policy_chose_is_everyones() -> None:
    request = terms_of(bounded(0.1, traffic_class="back"), 4)
    assert {name for _, name in request.layers} == {"back"}
