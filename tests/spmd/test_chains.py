"""Random chains of operations, annotations, meshes and networks: all ranks equal one device."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spmd.chains import program


@settings(max_examples=60)
@given(st.integers(0, 2**32))
def test_a_random_chain_equals_one_device(seed: int) -> None:
    """A seed, not drawn parts: hypothesis draws small programs, in which little is divided."""
    program(seed).check()


@pytest.mark.heavy
@pytest.mark.timeout(600)
def test_1000_random_chains_equal_one_device() -> None:
    """Short ones: torch's capture takes most of the time, in proportion to their length."""
    for seed in range(1000):
        made = program(seed, length=5)
        try:
            made.check()
        except Exception as error:
            error.add_note(f"seed {seed}: {made.names}")
            raise
