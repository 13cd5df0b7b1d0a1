"""The program of docs/spmd.md prints what the page shows."""

import linecache
from contextlib import redirect_stdout
from io import StringIO

import pytest
import torch

from dlcp_client import spmd
from dlcpd.contract.errors import BadConfig
from tests.pages import ROOT, blocks

PAGE = ROOT / "docs" / "spmd.md"


def test_the_first_program_of_the_page_prints_its_plan() -> None:
    program = next(one.text for one in blocks(PAGE) if one.language == "python")
    shown = next(one.text for one in blocks(PAGE) if one.language == "text")
    linecache.cache["model.py"] = len(program), None, program.splitlines(True), "model.py"
    printed = StringIO()
    with redirect_stdout(printed):
        exec(compile(program, "model.py", "exec"), {"__name__": "page"})  # noqa: S102  # our page
    assert printed.getvalue().strip() == shown.strip()


def test_the_page_s_rule_is_true_and_a_wrong_one_has_the_page_s_error() -> None:
    (program,) = [one.text for one in blocks(PAGE) if "add_rule" in one.text]
    shown = [one.text for one in blocks(PAGE) if one.language == "text"][-1]
    names = {"__name__": "page"}
    exec(compile(program, "rule.py", "exec"), names)  # noqa: S102  # our page
    decay = names["decay"]
    spmd.add_rule(decay, "b t c, c -> b t c")
    with pytest.raises(BadConfig) as wrong:
        spmd.check_rule(decay, torch.randn(4, 3, 8), torch.rand(8))
    assert str(wrong.value) == shown.strip()
