"""Random programs mean the same after random legal transformations, on several numbers of ranks."""

from collections import Counter

import pytest

from dlcp_client.fused import language as fl
from tests.language.random_programs import inputs, made, transformed

FEW, MANY = 40, 1000
pytestmark = pytest.mark.usefixtures("one_thread")


def agree(seeds: range) -> Counter[str]:
    """Check each program; how often each transformation was legal."""
    found: Counter[str] = Counter()
    for seed in seeds:
        norms = seed % 2 == 1
        original = made(seed, norms)
        changed, done = transformed(original, seed)
        for ranks in (2, 3, 4, 7):
            given = inputs(original, seed, ranks)
            try:
                fl.check(original, changed, given, ranks, rtol=1e-6 if norms else 0.0)
            except Exception as error:
                text = f"seed {seed}, {ranks} ranks, {done}:\n{original.text}\n{changed.text}"
                raise AssertionError(text) from error
        found.update(one.partition("(")[0] for one in done)
    return found


def test_transformed_programs_mean_the_same() -> None:
    found = agree(range(FEW))
    assert all(found[kind] > FEW // 10 for kind in ("split", "reorder", "as_slice", "fuse")), found


@pytest.mark.heavy
@pytest.mark.parametrize("first", range(FEW, MANY, 160))
def test_many_transformed_programs_mean_the_same(first: int) -> None:
    agree(range(first, min(first + 160, MANY)))
