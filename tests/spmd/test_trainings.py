"""Ten steps of real models on 2, 3 and 4 ranks, over Gloo and dlcp: as on one device, to 1e-9."""

from collections.abc import Mapping
from typing import Final

import pytest

from tests.c10d.worlds import on_each_rank
from tests.spmd import training_ranks
from tests.spmd.trainings import CASES

LIMIT: Final = 400.0  # seconds for all trainings of a world on a busy machine

pytestmark = [pytest.mark.heavy, pytest.mark.timeout(LIMIT)]


@pytest.fixture(scope="module", params=[2, 3, 4], ids=lambda size: f"{size} ranks")
def compared(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Mapping[str, str]:
    """What rank 0 of a world says of every training: a world costs more than most of them."""
    folder = str(tmp_path_factory.mktemp("stores"))
    found, *_ = on_each_rank(training_ranks.everything, request.param, folder, limit=LIMIT)
    return dict(found)


@pytest.mark.parametrize("method", training_ranks.OPTIMIZERS)
@pytest.mark.parametrize("model", CASES)
@pytest.mark.parametrize("backend", training_ranks.BACKENDS)
def test_a_model_trains_as_on_one_device(
    compared: Mapping[str, str], backend: str, model: str, method: str
) -> None:
    assert not compared[f"{backend} {model} {method}"]
