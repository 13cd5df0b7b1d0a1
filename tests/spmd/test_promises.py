"""Which test shows which promise of `spmd`: every one that is named here exists."""

import re
from collections import defaultdict
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Final

import pytest

from tests.named import has_function
from tests.spmd.trainings import CASES, case

HERE: Final = Path(__file__).parent
MOST_ANNOTATIONS: Final = 7  # of a type of layers

PROMISES: Final[dict[str, str]] = {
    "nine models, 2 to 4 ranks, two backends, SGD and AdamW, 1e-9": """
        test_trainings.py::test_a_model_trains_as_on_one_device""",
    "a plan has a rule for every tensor, or names the operation": """
        test_refusals.py::test_a_model_that_cannot_be_divided_is_refused""",
    "tensor parallel: 4 sums per layer": """
        test_models.py::test_tensor_parallel_has_4_sums_per_layer""",
    "sequence parallel: scatters and gathers instead": """
        test_models.py::test_sequence_parallel_has_scatters_and_gathers_instead_of_sums""",
    "sharded parameters: a gather per use, a scatter per gradient": """
        test_models.py::test_sharded_parameters_have_a_gather_per_use_and_a_scatter_per_gradient
        test_coalescing.py::test_sharded_parameters_share_gathers_and_scatters_of_a_pass""",
    "experts: two all-to-alls forward, two backward": """
        test_more_models.py::test_experts_have_all_to_alls""",
    "halos: equal, and their bytes only": """
        test_halo.py::test_width_divided_by_3_needs_halos_only
        test_wire.py::test_operations_send_their_halos_only
        test_halo_dtensor.py::test_the_table_shows_halos_and_dtensor""",
    "1,000 random chains": """
        test_chains.py::test_1000_random_chains_equal_one_device
        test_chains.py::test_a_random_chain_equals_one_device""",
    "every rule on torch's own samples": """
        test_operations.py::test_a_divided_call_equals_the_whole_one""",
    "a dimension that moves sends (p-1)/p^2 of the tensor per rank": """
        test_models.py::test_moving_a_division_sends_what_changes_its_rank""",
    "one program on all ranks, planned in a time without their number": """
        test_models.py::test_a_plan_does_not_depend_on_the_number_of_ranks
        test_repeated_layers.py::test_256_times_the_ranks_need_the_same_decisions""",
    "repeated layers are planned once": """
        test_repeated_layers.py::test_24_layers_need_at_most_twice_the_decisions_of_2
        test_repeated_layers.py::test_24_layers_need_at_most_twice_the_python_of_2""",
    "repeated layers are captured once": """
        test_reuse.py::test_layers_that_are_alike_are_captured_once
        test_reuse.py::test_layers_that_differ_are_not""",
    "gradients in at most 4 operations": """
        test_coalescing.py::test_gradients_of_data_parallel_share_4_operations""",
    "bytes of explain are those on the wire, each collective has its line": """
        test_wire.py::test_predicted_bytes_are_those_on_the_wire
        test_explain.py::test_explain_says_who_decided_and_which_line_needs_what""",
    "manual regions": """
        test_manual.py::test_a_region_equals_one_device""",
    # Bad input.
    "an annotation that names nothing, a wrong or repeated axis": """
        test_annotations.py::test_a_mistake_is_named_and_keeps_nothing""",
    "a dimension smaller than its axis": """
        test_annotations.py::test_a_dimension_that_does_not_fit_is_named""",
    "a large tensor that becomes whole": """
        test_whole.py::test_a_large_tensor_that_becomes_whole_is_refused_with_its_line""",
    "shapes and branches that depend on values": """
        test_refusals.py::test_a_model_that_cannot_be_divided_is_refused""",
    "inputs of another shape, ranks whose programs differ, a mesh of another size, a checkpoint "
    "of another model": """
        ranks.py::mistakes
        test_ranks.py::test_groups_train_as_one_device""",
    "an unsupported torch": """
        test_refusals.py::test_a_torch_without_a_private_name_is_refused""",
    "a rank that dies in a halo exchange": """
        test_ranks.py::test_a_rank_that_dies_in_a_halo_exchange_is_named""",
    "mistakes in manual regions": """
        test_manual.py::test_a_mistake_is_named_by_its_line""",
}


@pytest.mark.parametrize("promise", PROMISES)
def test_each_promise_has_a_test(promise: str) -> None:
    for name in PROMISES[promise].split():
        file, _, function = name.partition("::")
        assert has_function(HERE / file, function)


@pytest.mark.parametrize("name", CASES)
def test_a_type_of_layers_has_few_annotations(name: str) -> None:
    one = case(name, 2)
    by_type: dict[str, set[str]] = defaultdict(set)
    for parameter, _ in one.model.named_parameters():
        # Layers of a list are of one type; the others are part of the model itself.
        kind = re.match(r"(\w+)\.\d+\.", parameter)
        by_type[kind[1] if kind else ""] |= {
            pattern for pattern in one.patterns if fnmatchcase(parameter, pattern)
        }
    assert max(map(len, by_type.values())) <= MOST_ANNOTATIONS, by_type
