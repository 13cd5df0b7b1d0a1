"""What fused programs promise: the test of each promise, the command that measures each figure, and
the test of each kind of bad input. All that is named here exists."""

import shlex
from pathlib import Path
from typing import Final

import pytest

from dlcp_lab.bench.collectives import COLLECTIVES, HALVES
from dlcp_lab.bench.spmd_rank import CASES
from dlcpd.cli.extensions import installed
from dlcpd.ctl.arguments import parser
from tests.named import has_function

TESTS: Final = Path(__file__).parents[1]
REFUSALS: Final = "client/test_fused_refusals.py"
FUSED: Final = "client/test_fused.py"
# A promise: its tests, as FOLDER/MODULE.py::NAME
PROMISES: Final = {
    "a table of illegal transformations": (
        "language/test_transformations.py::test_what_would_change_the_meaning_is_refused",
    ),
    "1,000 random programs on 2, 3, 4 and 7 ranks equal the original": (
        "language/test_random_programs.py::test_transformed_programs_mean_the_same",
        "language/test_random_programs.py::test_many_transformed_programs_mean_the_same",
    ),
    "lowered schedules pass the proof": (
        "language/test_kernels.py::test_schedules_of_random_programs_give_the_oracles_results",
    ),
    "1,000 random schedules equal their interpreter on a network that loses and reorders": (
        "collectives/test_random_schedules.py::test_random_schedules",
        "schedules/test_random_schedules.py::test_they_are_of_every_kind",
    ),
    "each optimizer as DDP's, with accumulation, clipping, scaler, two groups; 1.05/N of state": (
        f"{FUSED}::test_every_optimizer_equals_the_frameworks",
    ),
    "save, load into another world": (
        f"{FUSED}::test_a_checkpoint_goes_on_with_another_number_of_ranks",
    ),
    "gathers as bfloat16 have half of the bytes": (
        "schedules/test_computed.py::test_encoded_results_take_half_of_their_bytes",
        f"{FUSED}::test_weights_may_travel_rounded_from_masters_that_are_not",
    ),
    "only gradients are lost": (f"{FUSED}::test_bounded_training_loses_gradients_only",),
    "layers that are divided equal one device": (
        "client/test_model_parallel.py::test_layers_equal_one_device",
    ),
    "graphs of torch.compile equal eager to 1e-5": (
        "client/test_model_parallel.py::test_graphs_of_dtensor_overlap_and_equal_eager",
    ),
    "stages send 1/TP of the bytes": (
        "client/test_model_parallel.py::test_stages_equal_one_device_and_send_parts",
    ),
    "a second start measures nothing, and a changed link is noticed": (
        "language/test_tuned.py::test_a_second_start_measures_nothing",
        "language/test_tuned.py::test_a_changed_link_is_noticed_and_measured_again",
        "client/test_fused_tuning.py::"
        "test_a_second_start_measures_nothing_and_notices_a_changed_link",
    ),
    "tuning changes no number": (
        "client/test_fused_tuning.py::test_steps_by_all_ways_give_the_same_weights",
        "schedules/test_computed.py::test_sums_that_clients_get_are_those_of_other_schedules",
        "language/test_tuning.py::test_candidates_of_random_programs_equal_them_to_the_bit",
    ),
    "kernels are generated for any program, and alike": (
        "language/test_kernels.py::test_compiled_pieces_equal_those_of_torch",
        "client/test_program_optimizer.py::test_ranks_update_their_parts_by_a_generated_kernel",
        "client/test_program_optimizer.py::test_a_program_is_the_optimizer_that_it_describes",
    ),
    "10,000 steps leave nothing": (f"{FUSED}::test_steps_leave_nothing_behind",),
    "a rank killed between Due and Computed is named by all others": (
        "client/test_computed.py::test_a_rank_killed_while_it_computes_is_named_by_all_others",
        "io/test_computed.py::test_the_end_of_a_client_between_due_and_computed_is_told_to_the_peers",
    ),
    "models on devices have their optimizer on the host": (
        "client/device/test_training.py::test_fused_updates_a_device_as_it_does_the_cpu",
    ),
    "the examples run": (
        f"{FUSED}::test_the_example_runs_under_torchrun",
        "language/test_example.py::test_the_example_explains_and_compares",
        "client/test_model_parallel.py::test_the_examples_learn",
    ),
}
# Figures of time: an emulated network on a free machine measures them, so no test does.
COMMANDS: Final = {
    "one host, 2 and 4 ranks, 16 to 256 MB": "dlcpctl bench fused --one-daemon --repeat 6",
    "a network": "dlcpctl bench fused --hosts 4 --switch 200mbit --sizes 16M --repeat 5 --blocks 1",
    "divided layers": (
        "dlcpctl bench fused --model-parallel --switch 50mbit --sizes 4M --repeat 6 --blocks 3"
    ),
    "compiled tensor parallelism": (
        "dlcpctl bench fused --model-parallel --compiled --switch 50mbit --sizes 4M"
    ),
    "schedules at two rates": "dlcpctl bench schedules --switch 50mbit",
    "a reduce-scatter and an all-gather, beside an all-reduce": (
        "dlcpctl bench collectives --collectives all_reduce,reduce_scatter+all_gather --sizes 64M"
    ),
    "a step of FSDP2": "dlcpctl bench spmd --cases sharded --backends dlcp",
}
# Ways of a figure that its bench compares, as it lists them
ROWS: Final = {
    "a reduce-scatter and an all-gather, beside an all-reduce": (
        {"all_reduce", HALVES},
        set(COLLECTIVES),
    ),
    "a step of FSDP2": ({"spmd", "fsdp2"}, set(CASES["sharded"])),
}
BAD_INPUT: Final = {
    "an illegal transformation": (
        "language/test_transformations.py::test_what_would_change_the_meaning_is_refused"
    ),
    "a program with wrong layouts": "language/test_layouts.py::test_a_wrong_program_is_refused",
    "a declaration, a shape or a constant that is none": (
        "language/test_layouts.py::test_a_wrong_shape_is_refused"
    ),
    "arguments of lower, before ranks communicate": (
        "language/test_lowering.py::test_a_mistake_is_named_before_ranks_communicate"
    ),
    "two updated inputs in the same memory": (
        "language/test_lowering.py::"
        "test_memory_that_cannot_be_updated_is_named_before_anything_travels"
    ),
    "arguments of divided layers": (
        "client/test_model_parallel.py::test_mistaken_arguments_of_each_layer"
    ),
    "arguments of register": f"{REFUSALS}::test_mistaken_arguments_are_named",
    "settings of an optimizer": (
        "client/test_program_optimizer.py::test_mistaken_settings_are_named"
    ),
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
    "the same, of a program that is an optimizer": (
        "client/test_program_optimizer.py::test_without_a_compiler_torch_computes_and_says_so_once"
    ),
    "a program that cannot be an optimizer": (
        "client/test_program_optimizer.py::test_what_an_optimizer_cannot_be_is_named"
    ),
    "a damaged tuning cache": (
        "language/test_tuning.py::test_a_damaged_result_is_named_and_ignored"
    ),
    "the same, of a training": (
        "client/test_fused_tuning.py::test_a_damaged_result_is_named_and_measured_anew"
    ),
    "tuning of what only one way can do": (
        "client/test_fused_tuning.py::test_what_only_one_way_can_do_is_refused"
    ),
}


@pytest.mark.parametrize(
    "test", [test for tests in PROMISES.values() for test in tests] + list(BAD_INPUT.values())
)
def test_each_promise_and_each_kind_of_bad_input_has_its_test(test: str) -> None:
    file, _, name = test.partition("::")
    assert has_function(TESTS / file, name)


@pytest.mark.parametrize("figure", COMMANDS)
def test_each_command_is_one_of_dlcpctl(figure: str) -> None:
    parser({}, installed()).parse_args(shlex.split(COMMANDS[figure])[1:])


@pytest.mark.parametrize("figure", ROWS)
def test_each_figure_is_of_rows_that_its_bench_has(figure: str) -> None:
    compared, rows = ROWS[figure]
    assert figure in COMMANDS and compared <= rows
