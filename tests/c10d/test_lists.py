"""Lists of several tensors, and calls that Gloo refuses: the same over dlcp and over Gloo."""

from pathlib import Path

import pytest

from tests.c10d import lists
from tests.c10d.test_unmodified import BACKEND
from tests.c10d.worlds import over


@pytest.mark.parametrize("backend", ["gloo", BACKEND])
@pytest.mark.parametrize("name", lists.ALL)
def test_holds_over_both(name: str, backend: str, tmp_path: Path) -> None:
    over(backend, lists.ALL[name], 3, tmp_path)
