"""The ledgers of a real run, made once."""

from pathlib import Path

import pytest

from tests.ledger import jobs

ROTATING = 20 << 20  # bytes: inputs of a step take 3 MB of an engine, so a generation holds less


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The ledgers of a run; that of rank 1 has several generations."""
    folder = tmp_path_factory.mktemp("run")
    most = {1: ROTATING}
    configs = [jobs.config(folder, r, most=most.get(r, 1 << 30)) for r in range(jobs.WORLD)]
    waived = jobs.run(configs, jobs.train)
    assert sum(waived) > 20
    return folder
