"""A claim says on which side of its limit a figure must be, and a report ends accordingly."""

import json
from pathlib import Path

import pytest

from dlcp_lab.scenarios.claims import Claim, Findings
from dlcpd.cli.output import Output


@pytest.mark.parametrize(
    ("value", "at_most", "holds"),
    [(1.0, True, True), (1.01, True, False), (1.0, False, True), (0.99, False, False)],
)
def test_a_limit_has_two_sides(value: float, at_most: bool, holds: bool) -> None:
    claim = Claim("x", value, 1.0, at_most)
    assert claim.holds is holds
    assert claim.line().startswith("holds" if holds else "FALLS SHORT")


@pytest.mark.parametrize("excess", [1e-2, 1e-3, 1e-9, 0.0])
def test_a_line_never_contradicts_itself(excess: float) -> None:
    line = Claim("x", 1.3 + excess, 1.3).line()
    shown, limit = line.split("x: ")[1].split(" <= ")
    assert (float(shown) <= float(limit)) is line.startswith("holds")


@pytest.mark.parametrize(("figure", "code"), [(0.5, 0), (1.5, 1)])
def test_a_report_fails_when_a_claim_does(
    figure: float, code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = Findings()
    spread = found.times("row", [0.001, 0.002, 0.003], "more")
    assert spread.p50 == 0.002
    found.claim("figure", figure, 1.0)
    file = tmp_path / "out.json"
    assert found.report("name", "conditions", "column").tell(Output(str(file))) == code
    shown = capsys.readouterr().out
    assert "name: conditions" in shown
    assert "2.0" in shown
    document = json.loads(file.read_text())
    assert document["command"] == "bench name"
    assert document["claims"][0]["holds"] is (code == 0)
    assert document["data"]["row"] == [0.001, 0.002, 0.003]
