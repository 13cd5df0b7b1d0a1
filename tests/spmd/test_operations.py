"""Every rule on torch's own samples: a divided call equals the whole one, or is refused."""

from collections import Counter
from pathlib import Path
from random import Random
from typing import Final

import pytest

from dlcp_client.spmd.rules import TABLE
from dlcpd.contract.errors import BadConfig
from tests.spmd.operations import check, graph_of, recorded

REFUSED: Final = Path(__file__).with_name("refused_operations.txt")
WITHOUT_RULE: Final = Path(__file__).with_name("operations_without_rule.txt")
CALLS: Final = 14  # of an operation
SEEDS: Final = 3


def test_the_operations_that_torch_has_no_samples_of_have_rules() -> None:
    names = {str(target) for target in TABLE}
    assert names >= UNCHECKED
    assert {name for name in names if name.startswith("dlcp_spmd.")} <= UNCHECKED


@pytest.mark.heavy
@pytest.mark.timeout(900)
def test_a_divided_call_equals_the_whole_one() -> None:
    """The operations that are refused in every form, or have no rule for any, are those of two
    tables."""
    checked: Counter[str] = Counter()
    divided: Counter[str] = Counter()
    with_rule = set()
    refused, wrong = set(), {}
    for call in recorded():
        name = str(call.target)
        if checked[name] >= CALLS * SEEDS or "empty" in name or name in UNCOMPARED:
            continue
        try:
            one = graph_of(call)
            for seed in range(SEEDS):
                partition = check(one, Random(seed))
                checked[name] += 1
                divided[name] += any(map(any, partition.shardings.values()))
                if not any(rule.is_default for rule in partition.plan.rules.values()):
                    with_rule.add(name)
        except BadConfig:
            refused.add(name)
        except Exception as error:  # every wrong call is reported
            wrong[call.key] = repr(error)
    assert not wrong
    assert sorted(refused - checked.keys()) == REFUSED.read_text().splitlines()
    assert sorted(checked.keys() - with_rule) == WITHOUT_RULE.read_text().splitlines()
    assert sum(map(bool, divided.values())) >= 290  # the others make tensors from numbers
    unchecked = {str(target) for target in TABLE} - checked.keys()
    assert unchecked == UNCHECKED


# Torch has no tolerance for float8, and LAPACK rounds by where a matrix lies in memory. Operations
# that make "empty" tensors give any values.
UNCOMPARED: Final = {"aten._scaled_mm.default", "aten.linalg_lstsq.default"}
# Not in torch's samples: models of the other tests have them.
UNCHECKED: Final = {
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default",
    "aten._unsafe_index.Tensor",
    "aten._unsafe_index_put.default",
    "aten.copy.default",
    "aten.empty.memory_format",
    "aten.empty_like.default",
    "aten.fill.Tensor",
    "aten.lift_fresh_copy.default",
    "aten.new_empty.default",
    "aten.reshape.default",
    "dlcp_spmd.add_rows.default",
    "dlcp_spmd.avg_pool_backward.default",
    "dlcp_spmd.bits.default",
    "dlcp_spmd.literal.default",
    "dlcp_spmd.max_pool.default",
    "dlcp_spmd.max_pool_backward.default",
    "dlcp_spmd.repeat_rows.default",
}
