"""Each kind of bad input to fused programs has a test, which this table names."""

from pathlib import Path
from typing import Final

import pytest

from tests.named import has_function

TESTS: Final = Path(__file__).parents[1]
REFUSALS: Final = "client/test_fused_refusals.py"
CASES: Final = {
    "an illegal transformation": (
        "language/test_transformations.py::test_what_would_change_the_meaning_is_refused"
    ),
    "a program with wrong layouts": "language/test_layouts.py::test_a_wrong_program_is_refused",
    "a program whose ranks differ": "language/test_lowering.py::test_mistakes_are_named",
    "a tuned program whose ranks differ": "language/test_tuned.py::test_mistakes_are_named",
    "an optimizer or an option that cannot be sharded": (
        f"{REFUSALS}::test_what_is_not_supported_is_named"
    ),
    "sparse gradients": f"{REFUSALS}::test_a_sparse_gradient_is_named",
    "a parameter of two registrations": (
        f"{REFUSALS}::test_a_parameter_that_two_models_share_is_registered_once"
    ),
    "a second backward pass without step": (
        f"{REFUSALS}::test_what_would_be_wrong_is_refused_and_loses_nothing"
    ),
    "eager=True with clipping or a scaler": (f"{REFUSALS}::test_updates_within_the_backward_pass"),
    "a checkpoint of another model": f"{REFUSALS}::test_the_state_of_another_model_is_refused",
    "a checkpoint of another world, which is taken": (
        "client/test_fused.py::test_a_checkpoint_goes_on_with_another_number_of_ranks"
    ),
    "a kernel that raises": (
        "client/test_fused_waiting.py::"
        "test_an_update_that_raises_on_one_rank_is_raised_by_the_next_use_on_the_other"
    ),
    "a client that never answers Due": (
        "io/test_computed.py::test_a_client_that_never_answers_is_named_and_other_operations_go_on"
    ),
    "Computed for a step that is not due": (
        "io/test_computed.py::test_an_answer_that_is_not_due_is_counted_and_changes_nothing"
    ),
    "a compiler that is missing or fails": (
        "language/test_kernels.py::test_a_missing_compiler_is_said_once"
    ),
    "a damaged tuning cache": (
        "language/test_tuning.py::test_a_damaged_result_is_named_and_ignored"
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_each_kind_has_its_test(case: str) -> None:
    file, _, name = CASES[case].partition("::")
    assert has_function(TESTS / file, name)
