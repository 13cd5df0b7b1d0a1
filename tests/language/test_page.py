"""The programs of docs/fused-language.md: one prints what the page shows, the other trains."""

import linecache
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._C._distributed_c10d import HashStore

from dlcp_client import connect
from tests.client.real import TIMEOUT
from tests.pages import ROOT, blocks


@pytest.mark.processes
def test_the_page_prints_its_schedule_and_trains(tmp_path: Path) -> None:
    page = blocks(ROOT / "docs" / "fused-language.md")
    first, second, tuned = [one.text for one in page if one.language == "python"]
    shown = next(one.text for one in page if one.language == "text")
    linecache.cache["model.py"] = len(first), None, first.splitlines(True), "model.py"
    printed, names = StringIO(), dict[str, Any](__name__="page")
    with redirect_stdout(printed):
        exec(compile(first, "model.py", "exec"), names)  # noqa: S102  # our page
    assert printed.getvalue().strip() == shown.strip()
    exec(compile(second, "model.py", "exec"), names)  # noqa: S102  # our page
    exec(compile(tuned, "model.py", "exec"), names)  # noqa: S102  # our page
    lower, tune = names["fl"].lower, names["fl"].tune
    names["fl"].lower = lambda *args: lower(*args, kernel="eager")  # without a compiler
    names["fl"].tune = lambda *args: tune(*args, kernel="eager", folder=tmp_path)
    try:
        with connect(HashStore(), 0, 1, timeout=TIMEOUT, arena_bytes=32 << 20) as session:
            w = torch.ones(1_000_000)
            m = names["train"](session, [torch.ones(1_000_000)] * 2, w)
            again = names["train_tuned"](
                session, [torch.ones(1_000_000)] * 2, torch.ones(1_000_000)
            )
    finally:
        names["fl"].lower, names["fl"].tune = lower, tune
    assert torch.equal(m, again)
    assert torch.allclose(m, torch.full_like(m, 1.9))
    assert torch.allclose(w, torch.full_like(w, 1 - 0.1 * (1 + 1.9)))
