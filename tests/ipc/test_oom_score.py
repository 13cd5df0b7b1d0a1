"""A private daemon takes back what its trainer has added to its own OOM score."""

from pathlib import Path

import pytest

from dlcpd.ipc.oom_score import undo_what_was_added

NONE, SYS_RESOURCE = "0000000000000000", "0000000001000000"


@pytest.mark.parametrize(
    ("before", "capabilities", "after"),
    [("500", NONE, "0"), ("0", NONE, "0"), ("-900", NONE, "-900"), ("500", SYS_RESOURCE, "500"),
     ("rubbish", NONE, "rubbish")],
)  # fmt: skip
def test_what_was_added_is_taken_back(
    tmp_path: Path, before: str, capabilities: str, after: str
) -> None:
    (tmp_path / "oom_score_adj").write_text(before)
    (tmp_path / "status").write_text(f"Name:\tx\nCapEff:\t{capabilities}\n")
    undo_what_was_added(tmp_path)
    assert (tmp_path / "oom_score_adj").read_text() == after


def test_nothing_to_read_is_no_error(tmp_path: Path) -> None:
    undo_what_was_added(tmp_path)
