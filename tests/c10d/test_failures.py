"""Bad input, absent and dying ranks, and the end of groups."""

from pathlib import Path

import pytest

from tests.c10d import failures
from tests.c10d.test_unmodified import BACKEND
from tests.c10d.worlds import over


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", failures.ALL)
def test_fails_by_name(name: str, size: int, tmp_path: Path) -> None:
    over(BACKEND, failures.ALL[name], size, tmp_path)


@pytest.mark.parametrize("size", [2, 3])
def test_a_rank_that_dies_under_ddp_is_an_error_of_training(size: int, tmp_path: Path) -> None:
    said = over(BACKEND, failures.dying_under_ddp, size, tmp_path, dying=frozenset({1}))
    assert said[0]
