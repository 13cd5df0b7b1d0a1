"""100 runs by seed, the server killed in each: nothing acknowledged is lost, nothing is twice."""

from pathlib import Path

import numpy as np
import pytest

from tests.server.crashes import Simulation


@pytest.mark.parametrize("staleness", [-1, 2])
def test_no_acknowledged_push_is_lost_and_none_counts_twice(tmp_path: Path, staleness: int) -> None:
    kills = 0
    for seed in range(50):
        run = Simulation(tmp_path / str(seed), seed, staleness)
        run.run()
        kills += run.kills
        weights = -run.parameters()
        for worker in run.workers:
            assert all(weights[worker.rank, n - 1] > 0 for n in worker.acknowledged), seed
            unsent = weights[worker.rank, worker.number :]
            assert not unsent.any(), seed
            assert worker.saw <= run.last_version
        # Every version has a mean of its pushes, so weights of one in all: a push that counted
        # twice, or a version that was applied twice or not at all, would show.
        assert weights.sum() == pytest.approx(run.last_version), seed
        shares = np.unique(weights[weights > 0])
        assert all(np.isclose(1 / share, round(1 / share)) for share in shares), seed
    assert kills > 200, "the server was hardly ever killed"
