"""The program of docs/spmd.md prints what the page shows."""

import linecache
from contextlib import redirect_stdout
from io import StringIO

from tests.pages import ROOT, blocks


def test_the_first_program_of_the_page_prints_its_plan() -> None:
    page = ROOT / "docs" / "spmd.md"
    program = next(one.text for one in blocks(page) if one.language == "python")
    shown = next(one.text for one in blocks(page) if one.language == "text")
    linecache.cache["model.py"] = len(program), None, program.splitlines(True), "model.py"
    printed = StringIO()
    with redirect_stdout(printed):
        exec(compile(program, "model.py", "exec"), {"__name__": "page"})  # noqa: S102  # our page
    assert printed.getvalue().strip() == shown.strip()
