"""Replayed networks: as large as the published ones, and the same distribution when made small."""

import pytest

from dlcp_lab.replay.architectures import NETWORKS
from dlcp_lab.replay.shapes import Layer, parameters, scaled


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("vgg16", 138_357_544),
        ("resnet50", 25_557_032),
        ("gpt2-small", 124_439_808),
        ("transformer", 63_045_632),
    ],
)
def test_totals_are_the_published_ones(name: str, count: int) -> None:
    assert parameters(NETWORKS[name]()) == count


@pytest.mark.parametrize(
    ("name", "billions"), [("vgg16", 15.47), ("resnet50", 4.09), ("transformer", 4.11)]
)
def test_arithmetic_is_the_published_one(name: str, billions: float) -> None:
    assert sum(layer.macs for layer in NETWORKS[name]()) / 1e9 == pytest.approx(billions, abs=0.01)


@pytest.mark.parametrize("name", NETWORKS)
def test_names_are_unique_and_ties_point_back(name: str) -> None:
    network = NETWORKS[name]()
    names = [layer.name for layer in network]
    assert len(set(names)) == len(names)
    for number, layer in enumerate(network):
        assert not layer.tied_to or layer.tied_to in names[:number]


@pytest.mark.parametrize("name", NETWORKS)
def test_scaling_keeps_the_distribution(name: str) -> None:
    whole = NETWORKS[name]()
    small = scaled(whole, 0.05)
    assert parameters(small) / parameters(whole) == pytest.approx(0.05, rel=1e-3)
    for before, after in zip(whole, small, strict=True):
        assert after.macs == before.macs
        assert after.parameters == pytest.approx(before.parameters * 0.05, abs=1)
        assert [len(shape) for shape in after.shapes] == [len(shape) for shape in before.shapes]


def test_a_scale_of_one_changes_nothing() -> None:
    network = NETWORKS["vgg16"]()
    assert scaled(network, 1.0) is network


def test_nothing_vanishes() -> None:
    assert scaled((Layer("bias", ((3,), (2, 2))),), 0.01)[0].shapes == ((1,), (1, 1))
