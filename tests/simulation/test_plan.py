"""`dlcpctl bench plan`: its rows, and arguments that it refuses."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from dlcp_lab.bench import plan_cases, plan_tables
from dlcp_lab.report.section import of_document
from dlcp_lab.simulation import cost_cells
from dlcp_lab.simulation.operation import different
from dlcpd.ctl import main as command
from dlcpd.planning import packing

FEW = "bench plan --tables schedules --quick --warmup 1 --cases"


def rows(path: Path, cases: str) -> list[dict[str, Any]]:
    assert command.main([*FEW.split(), cases, "--json", str(path)]) == 0
    found: dict[str, Any] = json.loads(path.read_text())
    assert found["command"] == "bench plan" and of_document(found).title == "dlcpctl bench plan"
    made: list[dict[str, Any]] = found["rows"]
    return made


def test_a_row_has_the_schedules_and_their_bound(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    slow, racks, equal = rows(tmp_path / "made.json", "25/100/100/100,2x4-scatter,equal")
    for row in (slow, racks, equal):
        assert row["bound"] < row["planned"] <= row["direct"] and not row["wrong"]
        assert row["share"] == row["bound"] / row["planned"]
    assert slow["ring"] > row["planned"] and racks["ring"] is None
    assert racks["uplink_ratio"] < 1.1 and slow["uplink_ratio"] is None
    assert [row["program"] for row in (slow, racks, equal)] == ["forest", "forest", "direct"]
    assert equal["planned"] == equal["direct"]
    shown = capsys.readouterr()
    assert "2 of 3: 2x4-scatter, 8 hosts" in shown.err
    lines = shown.out.splitlines()
    assert len([line for line in lines if line.startswith(("25/100", "2x4-", "equal "))]) == 3
    assert "  equal: direct: gain 1.00: all hosts are equal; each byte crosses" in shown.out
    assert any(line.startswith("bound: seconds that no schedule undercuts") for line in lines)


def test_only_the_cpu_time_depends_on_the_machine(tmp_path: Path) -> None:
    one, other = ([{**row, "cpu": 0.0} for row in rows(tmp_path / "a.json", "equal")] for _ in "ab")
    assert one == other


def test_seeds_change_when_ranks_begin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(
        plan_cases.CASES, "equal", replace(plan_cases.CASES["equal"], size=64 << 10)
    )
    line = "bench plan --tables schedules --cases equal --seeds 2 --warmup 0 --json"
    assert command.main([*line.split(), str(tmp_path / "made.json")]) == 0
    first, second = json.loads((tmp_path / "made.json").read_text())["rows"][0]["samples"]["direct"]
    assert first != second


def test_a_wrong_result_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("dlcp_lab.simulation.planned.different", lambda a, b: 1 + different(a, b))
    assert command.main([*FEW.split(), "equal"]) == 1
    assert "WRONG RESULT: 24 elements of equal 512K" in capsys.readouterr().out


def test_an_operation_that_does_not_end_is_a_row_without_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("dlcp_lab.simulation.planned.DEADLINE", 1e-3)
    [row] = rows(tmp_path / "made.json", "equal")
    assert row["share"] is None and "not_measured" in row
    assert "equal 512K: not measured: rank" in capsys.readouterr().out


def test_the_cases_are_those_of_the_table() -> None:
    hosts = {name: case.hosts for name, case in plan_cases.CASES.items()}
    assert hosts["4x16"] == 64 and hosts["25+7x100"] == 8 and len(hosts) == 12
    assert plan_cases.CASES["2x4"].network.groups == ((0, 2, 4, 6), (1, 3, 5, 7))


def test_a_figure_that_falls_short_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(plan_cases.CASES, "2x2", replace(plan_cases.CASES["2x2"], size=256 << 10))
    asked = plan_cases.PlanLeast(share=0.1, over_ring=1, over_direct=3, uplink=1.5)
    monkeypatch.setitem(plan_cases.LEAST, "2x2", asked)
    line = "bench plan --tables schedules --cases 2x2 --seeds 1 --warmup 0 --json"
    assert command.main([*line.split(), str(tmp_path / "made.json")]) == 1
    claims = json.loads((tmp_path / "made.json").read_text())["claims"]
    assert [claim["holds"] for claim in claims] == [True, True, False, True]
    said = capsys.readouterr().out
    assert "FALLS SHORT  2x2: direct / plan: " in said
    assert "2x2: ring / plan (1 was asked; the bound allows " in said and "; 0.1 of it): " in said


def test_the_cost_model_and_the_search_have_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = {"small, 5 x 600": cost_cells.CELLS["small, 5 x 600"]}
    few = plan_tables.SearchCase(lambda: plan_tables.racks(2, 2, 4, 2), packing.all_reduce, 10.0)
    monkeypatch.setattr(plan_tables, "CELLS", small)
    monkeypatch.setattr(plan_tables, "SEARCHES", {"2 racks": few})
    line = "bench plan --tables costs,searches --json"
    assert command.main([*line.split(), str(tmp_path / "made.json")]) == 0
    found = json.loads((tmp_path / "made.json").read_text())
    assert [row["chosen"] for row in found["costs"]].count(True) == 1
    assert {row["schedule"] for row in found["costs"]} >= {"direct", "one_shot"}
    assert all(row["ratio"] == row["predicted"] / row["simulated"] for row in found["costs"])
    [search] = found["searches"]
    assert search["hosts"] == 4 and search["share"] == pytest.approx(1)
    assert not found["rows"] and len(found["claims"]) == 4
    assert "4 of 4 claims hold." in of_document(found).sentences
    assert "cost model: cells whose chosen schedule" in capsys.readouterr().out


def test_the_cost_model_can_have_the_costs_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Whether they hold is not asked here: other processes have the CPU as well."""
    small = {"small, 5 x 600": cost_cells.CELLS["small, 5 x 600"]}
    monkeypatch.setattr(plan_tables, "CELLS", small)
    times = []
    for more in ("", " --measured"):
        line = f"bench plan --tables costs{more} --json"
        command.main([*line.split(), str(tmp_path / "made.json")])
        found = json.loads((tmp_path / "made.json").read_text())["costs"]
        times.append([row["simulated"] for row in found])
    assert all(here > there for there, here in zip(*times, strict=True))
    assert "it; measured here: a transfer " in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--tables none", "argument --tables: "),
        ("--cases 3x3", "argument --cases: "),
        ("--operations 0", "argument --operations: '0' is not a whole number 1..1000"),
        ("--warmup -1", "argument --warmup: "),
        ("--seeds 101", "argument --seeds: '101' is not a whole number 1..100"),
        ("--round-trip 2s", "--round-trip: 2 s is out of range: at most 1 s"),
        ("--buffer none", "argument --buffer: 'none' is not a size"),
    ],
)
def test_bad_arguments_are_refused_with_one_line(
    options: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code: object = command.main(["bench", "plan", *options.split()])
    except SystemExit as exc:
        code = exc.code
    assert code == 2
    assert said in capsys.readouterr().err
