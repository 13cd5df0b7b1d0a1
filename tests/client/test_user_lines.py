"""The user's line of calls and errors: neither torch's nor the client's, but the optimizers'."""

from pathlib import Path

import pytest
import torch
from torch import nn

import dlcp_client
from dlcp_client.fused.language import explain, optimizers
from dlcp_client.user_lines import place_of, user_line

NAME = Path(__file__).name


def line_in(file: str) -> str | None:
    """What a function of `file` gets that asks for the user's line."""
    found: dict[str, str | None] = {}
    exec(compile("found = user_line()", file, "exec"), {"user_line": user_line}, found)  # noqa: S102  # a file of any name
    return found["found"]


@pytest.mark.parametrize("package", [torch, dlcp_client])
def test_lines_of_torch_and_of_the_client_are_not_a_user_s(package: object) -> None:
    folder = Path(str(package.__file__)).parent  # type: ignore[attr-defined]  # a module
    called = line_in(str(folder / "nn" / "of_a_folder.py"))
    assert called is not None and called.startswith(f"{NAME}:")
    beside = line_in(f"{folder}vision/models.py")
    assert beside is not None and beside.startswith("models.py:1:")


def test_an_error_has_the_last_user_s_line_that_it_passed() -> None:
    with pytest.raises(RuntimeError) as raised:
        nn.Linear(2, 2)(torch.zeros(3))
    assert place_of(raised.value).startswith(f" at {NAME}:")
    assert place_of(ValueError("never raised")) == ""


def test_the_client_s_optimizers_are_read_as_a_user_s_programs() -> None:
    text = explain(optimizers.adam((8, 8)), 2)
    assert "optimizers.py:" in text and NAME not in text
