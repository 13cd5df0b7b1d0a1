"""The examples learn, and send what their pages say."""

import re

import pytest

from tests import examples


@pytest.mark.heavy
@pytest.mark.parametrize(
    ("name", "ranks", "sends"),
    [
        ("spmd_gpt.py", 2, "model  all_reduce"),
        ("spmd_spatial.py", 3, "space  halo_exchange"),
        ("spmd_moe.py", 2, "expert  all_to_all  4 "),
        ("spmd_pipeline.py", 4, "stage  halo_exchange"),
    ],
)
def test_an_example_learns(name: str, ranks: int, sends: str) -> None:
    printed = examples.output(name, ranks)
    assert sends in printed and "all_gather" not in printed
    losses = [float(one) for one in re.findall(r"loss ([\d.]+)", printed)]
    assert losses[-1] < 0.7 * losses[0], losses
