"""Every collective of the backend on 2 and 3 ranks."""

from pathlib import Path

import pytest

from tests.c10d import collectives, unread
from tests.c10d.test_unmodified import BACKEND
from tests.c10d.worlds import over


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("name", collectives.ALL)
def test_is_what_the_operation_defines(name: str, size: int, tmp_path: Path) -> None:
    over(BACKEND, collectives.ALL[name], size, tmp_path)


@pytest.mark.parametrize("name", unread.ALL)
def test_works_without_a_waiter_and_lists_that_do_not_fit(name: str, tmp_path: Path) -> None:
    over(BACKEND, unread.ALL[name], 2, tmp_path)
