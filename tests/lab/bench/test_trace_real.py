"""`bench trace` on real daemons: both turns are timed, and the recording has events."""

import json
from pathlib import Path

import pytest

from dlcpd.ctl.main import main

pytestmark = pytest.mark.processes


def test_both_turns_are_timed(tmp_path: Path) -> None:
    file = tmp_path / "found.json"
    assert main(["bench", "trace", "--size", "64K", "--pairs", "2", "--json", str(file)]) == 0
    found = json.loads(file.read_text())
    assert [len(found["times"][name]) for name in ("off", "on", "off again")] == [2, 2, 2]
    assert found["events"] >= 5 * found["block"], "submitted, ready, sent, result, returned"
