"""Which tensors are refused, and that copies keep every bit."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from msgspec.structs import replace

from dlcp_client.arena import blocks, tensors
from dlcp_client.arena.blocks import chained
from dlcp_client.arena.tensors import TENSORS, copy
from dlcpd.contract.errors import BadTensor
from dlcpd.contract.messages import DTYPES


class Subclass(torch.Tensor):
    """Stands for DTensor, FakeTensor and their kind."""


BAD: list[tuple[Any, str]] = [
    (np.zeros(3), "ndarray is not a torch.Tensor"),
    (torch.zeros(3).as_subclass(Subclass), "Subclass is a tensor subclass"),
    (torch.zeros(3, device="meta"), "on meta"),
    (torch.zeros(3, dtype=torch.float8_e5m2), "float8_e5m2"),
    (torch.zeros(3, dtype=torch.uint16), "uint16"),
    (torch.zeros(3).to_sparse(), "sparse_coo"),
    (torch.zeros(4, 4).t()[1:], "not contiguous"),
    (torch.zeros(8)[::2], "strides (2,)"),
]


@pytest.mark.parametrize(("tensor", "text"), BAD, ids=[text for _, text in BAD])
def test_a_bad_tensor_is_refused_and_described(tensor: Any, text: str) -> None:
    with pytest.raises(BadTensor) as caught:
        TENSORS.block(tensor)
    assert text in str(caught.value)


FEW = torch.zeros(3)


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        ((), "without tensors"),
        ((FEW, FEW.double()), "a tuple of float32 and float64"),
        ((FEW, FEW[::2]), "not contiguous"),
        ((FEW, [FEW]), "list is not a torch.Tensor"),
        ((FEW, FEW, FEW), "of 9 elements together are too large"),
    ],
)
def test_a_bad_tuple_is_refused(parts: Any, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(blocks, "MAX_ELEMENTS", 8)
    with pytest.raises(BadTensor, match=text):
        TENSORS.block(parts)


def test_a_tuple_of_devices_is_refused() -> None:
    device: Any = SimpleNamespace(name="cuda:0")
    part = replace(TENSORS.block(FEW), device=device)
    with pytest.raises(BadTensor, match="a tensor on cuda:0: concatenate"):
        chained([TENSORS.block(FEW), part])


def test_the_bytes_of_a_tuple() -> None:
    tensor, ours = torch.zeros(8), TENSORS.block
    tuple_of = ours((tensor[:2], tensor[4:6]))
    assert (tuple_of.count, tuple_of.nbytes, tuple_of.dtype) == (4, 16, "float32")
    assert tuple_of.overlaps(ours(tensor[5:6]))
    assert ours(tensor[:1]).overlaps(tuple_of)
    assert not tuple_of.overlaps(ours((tensor[2:4], tensor[6:])))


def test_a_negated_view_is_refused() -> None:
    """Its memory holds the values with the other sign."""
    lazy = torch.ones(1, dtype=torch.complex64).conj().imag
    assert lazy.is_neg()
    assert lazy.is_contiguous()
    with pytest.raises(BadTensor):
        TENSORS.block(lazy)


def test_a_conjugated_view_is_refused() -> None:
    """Its memory holds the imaginary parts with the other sign."""
    lazy = torch.ones(1, dtype=torch.complex64).conj()
    assert lazy.is_conj()
    assert lazy.is_contiguous()
    with pytest.raises(BadTensor, match=r"resolve_conj"):
        TENSORS.block(lazy)


def test_too_many_elements_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tensors, "MAX_ELEMENTS", 7)  # the real one is 4 GiB of float32
    TENSORS.block(torch.zeros(7))
    with pytest.raises(BadTensor, match="8 elements is too large: one operation takes at most 7"):
        TENSORS.block(torch.zeros(8))


def test_tensors_overlap_where_they_share_bytes() -> None:
    def overlap(one: torch.Tensor, other: torch.Tensor) -> bool:
        return TENSORS.block(one).overlaps(TENSORS.block(other))

    whole = torch.zeros(10)
    assert overlap(whole, whole)
    assert overlap(whole[3:], whole[:4])
    assert overlap(whole, whole[4:5])
    assert not overlap(whole[4:], whole[:4])
    assert not overlap(whole, whole[4:4])
    assert not overlap(whole[4:4], whole)
    assert not overlap(torch.empty(0), torch.empty(0))


@pytest.mark.parametrize("name", DTYPES)
def test_every_dtype_of_the_contract_is_taken_and_copied(name: str) -> None:
    source = torch.arange(24).to(getattr(torch, name)).reshape(2, 3, 4)
    assert TENSORS.block(source).dtype == name
    target = torch.zeros_like(source)
    copy(target, source)
    assert torch.equal(target, source)


def test_parameters_and_single_numbers_are_taken() -> None:
    parameter = torch.nn.Parameter(torch.tensor(3.0))
    TENSORS.block(parameter)
    target = torch.zeros(())
    copy(target, parameter)
    assert target == 3.0
