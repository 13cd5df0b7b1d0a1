"""Every collective of the backend on 2 and 3 ranks."""

from pathlib import Path

import pytest

from tests.c10d import collectives, unread
from tests.c10d.test_unmodified import BACKEND
from tests.c10d.worlds import in_turn, over


@pytest.fixture(scope="module", params=[2, 3])
def job(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[int, str]:
    """Ranks of a job that tries all collectives, and what failed in it."""
    folder = tmp_path_factory.mktemp("job")
    return request.param, in_turn(BACKEND, collectives.ALL, request.param, folder)


def test_all_collectives_of_a_job_are_what_the_operations_define(job: tuple[int, str]) -> None:
    _, failure = job
    assert not failure


@pytest.mark.parametrize("name", collectives.ALL)
def test_is_what_the_operation_defines(name: str, job: tuple[int, str], tmp_path: Path) -> None:
    """In a job of its own where that of all failed."""
    size, failure = job
    if failure:
        over(BACKEND, collectives.ALL[name], size, tmp_path)


@pytest.mark.parametrize("name", unread.ALL)
def test_works_without_a_waiter_and_lists_that_do_not_fit(name: str, tmp_path: Path) -> None:
    over(BACKEND, unread.ALL[name], 2, tmp_path)
