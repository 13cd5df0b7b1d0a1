"""Groups whose devices have different backends, one of them ours."""

from pathlib import Path

import pytest

from tests.c10d import forms, several
from tests.c10d.test_unmodified import assert_equal
from tests.c10d.worlds import on_each_rank, over

CPU, CUDA = "cpu:dlcp,cuda:gloo", "cpu:gloo,cuda:dlcp"


@pytest.mark.parametrize("backend", [CPU, CUDA])
def test_results_equal_gloos(backend: str, tmp_path: Path) -> None:
    theirs = over("gloo", forms.forms, 2, tmp_path)
    ours = over(backend, forms.forms, 2, tmp_path)
    for found, expected in zip(ours, theirs, strict=True):
        assert_equal(2, found, expected)


@pytest.mark.parametrize("backend", [CPU, CUDA])
def test_each_device_has_the_backend_that_was_asked_for(backend: str, tmp_path: Path) -> None:
    ours, theirs = ("cpu", "cuda") if backend == CPU else ("cuda", "cpu")
    for rank, said in enumerate(over(backend, several.answers, 2, tmp_path)):
        assert said["backends"] == {ours: "ProcessGroup", theirs: "ProcessGroupGloo"}
        assert said["config"] == backend
        assert "cannot be split" in said["split"]
        assert "no backend for device meta" in said["meta"]
        assert said["sum"] == 4
        assert said["ended"] == 2, "with the group of the other backends"
        assert "was destroyed" in said["closed"], rank


def test_a_device_without_a_backend_is_named(tmp_path: Path) -> None:
    for types, said in over("cuda:dlcp", several.only_cuda, 2, tmp_path):
        assert types == ["cuda"]
        assert "no backend for device cpu: it serves cuda" in said


@pytest.mark.parametrize("backend", [CPU, CUDA])
def test_a_group_that_cannot_be_made_leaves_none_behind(backend: str, tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    assert on_each_rank(several.unreachable, 2, backend, store) == [("no daemon", 0)] * 2


def test_a_session_ends_if_the_other_backend_fails(tmp_path: Path) -> None:
    store = str(tmp_path / "store")
    found = on_each_rank(several.other_backend_fails, 2, store)
    assert found == [("no network", 0, 2.0)] * 2
