import json
from pathlib import Path

import pytest

from switchcfg.cli import records
from switchcfg.errors import BadPlan, NotKept
from switchcfg.plan.plan import Plan
from switchcfg.plan.state import Place, State

PLAN = Plan("sw", "linux", "lab", "f" * 64, (), (), ())


def state(value: str) -> State:
    return {Place("kind", "name", ""): value}


def test_the_last_one_is_found_until_it_is_undone(tmp_path: Path) -> None:
    records.keep(tmp_path, PLAN, state("first"))
    records.keep(tmp_path, PLAN, state("second"))
    last = records.last(tmp_path, "sw")
    assert (last.plan, last.before) == (PLAN, state("second"))
    records.undo(last)
    assert records.last(tmp_path, "sw").before == state("first")


def test_others_may_not_read_it(tmp_path: Path) -> None:
    file = records.keep(tmp_path, PLAN, {})
    assert file.stat().st_mode & 0o077 == 0
    assert file.parent.stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("damage", ["{}", "", "[]", '{"seal": 1, "plan": "", "snapshot": ""}'])
def test_what_is_no_record_is_one_error(tmp_path: Path, damage: str) -> None:
    records.keep(tmp_path, PLAN, {}).write_text(damage)
    with pytest.raises(BadPlan):
        records.last(tmp_path, "sw")


def test_an_edited_record_is_refused(tmp_path: Path) -> None:
    file = records.keep(tmp_path, PLAN, state("one"))
    body = json.loads(file.read_text())
    file.write_text(json.dumps({**body, "before": []}))
    with pytest.raises(BadPlan, match="was edited or damaged"):
        records.last(tmp_path, "sw")


def test_without_a_record_it_says_where_it_looked(tmp_path: Path) -> None:
    with pytest.raises(BadPlan, match="this host has applied no change"):
        records.last(tmp_path, "sw")


def test_the_folder_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere")
    assert records.default_folder() == Path("/somewhere/switchcfg")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert records.default_folder() == Path.home() / ".local/state/switchcfg"


def test_where_nothing_can_be_written_it_says_so_before_and_after(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(NotKept, match="choose the folder with --records"):
        records.prepare(tmp_path / "file", "sw")
    with pytest.raises(NotKept):
        records.keep(tmp_path / "file", PLAN, {})
    records.prepare(tmp_path, "sw")
    assert list((tmp_path / "sw").iterdir()) == []


def test_a_pending_one_is_none_until_it_is_confirmed(tmp_path: Path) -> None:
    records.keep(tmp_path, PLAN, state("reverted"), pending=True)
    records.keep(tmp_path, PLAN, state("kept"), pending=True)
    with pytest.raises(BadPlan):
        records.last(tmp_path, "sw")
    records.settle(tmp_path, "sw", confirmed=True)
    assert records.last(tmp_path, "sw").before == state("kept")
    assert len(list((tmp_path / "sw").iterdir())) == 1
