"""`dlcpctl bench sweep`: its conditions, its table, and the map that it writes."""

import csv
import json
import re
from argparse import Namespace
from pathlib import Path

import pytest

from dlcp_lab.bench import sweep
from dlcp_lab.bench.sweep_map import COLUMNS, colour, drawn
from dlcp_lab.report.section import of_document
from dlcp_lab.simulation.burst_network import NotCompleted
from dlcp_lab.simulation.cell import SimCondition, SimTimes
from dlcpd.cli.extensions import installed
from dlcpd.ctl import main as command
from dlcpd.ctl.arguments import parser

SMALL = (
    "bench sweep --hosts 2 --round-trips 0.1,10 --losses 2% --bursts 8 --sizes 64K "
    "--repeat 3 --warmup 1"
)


def parsed(line: str) -> Namespace:
    return parser({}, installed()).parse_args(line.split())


def test_a_sweep_of_two_conditions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = {kind: tmp_path / f"map.{kind}" for kind in ("csv", "svg", "json")}
    options = [text for kind, path in files.items() for text in (f"--{kind}", str(path))]
    assert command.main([*SMALL.split(), *options]) == 0
    shown = capsys.readouterr()
    assert "TCP is Gloo's ring" in shown.out and "2 of 2: 2 hosts, 64K" in shown.err
    assert len(shown.out.splitlines()) == 5

    rows = list(csv.DictReader(files["csv"].read_text().splitlines()))
    assert tuple(rows[0]) == COLUMNS and len(rows) == 2
    assert [row["round_trip_s"] for row in rows] == ["0.0001", "0.01"]
    assert float(rows[1]["exact_p50_s"]) > 0.02 > float(rows[0]["exact_p50_s"])
    assert all(row["bound"] == "0.04" for row in rows)

    document = json.loads(files["json"].read_text())
    assert document["command"] == "bench sweep" and len(document["rows"]) == 2
    assert len(document["rows"][0]["exact_samples"]) == 3
    assert of_document(document).title == "dlcpctl bench sweep"

    texts = re.findall(r"<text [^>]*>([^<]*)</text>", files["svg"].read_text())
    assert {"0.1 ms", "10 ms", "2 %", "2 hosts, 64K, bursts of 8"} <= set(texts)
    assert f"{float(rows[1]['ratio_p50']):.2f}" in texts


def test_an_operation_that_fails_is_a_row_without_figures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object, **__: object) -> SimTimes:
        raise NotCompleted("rank 1: peer_lost")

    monkeypatch.setattr(sweep, "all_reduces", fail)
    assert command.main(SMALL.split()) == 0
    assert "not measured: rank 1: peer_lost" in capsys.readouterr().out
    assert drawn([]).endswith("</svg>\n")


def test_a_wrong_result_is_counted(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    made = SimTimes([0.1, 0.2], 1, 10, 0, 0)
    monkeypatch.setattr(sweep, "all_reduces", lambda *_, **__: made)
    assert command.main(SMALL.split()) == 1
    assert "WRONG RESULT: 2 operations" in capsys.readouterr().out


def test_the_colour_says_which_mode_is_faster() -> None:
    grey, blue, orange = colour("exact", 1.0), colour("bounded", 2.0), colour("exact", 0.5)
    assert grey == "#e4e4e4" == colour("unclear", 3.0)
    assert int(blue[5:], 16) > int(blue[1:3], 16) and int(orange[1:3], 16) > int(orange[5:], 16)
    assert colour("bounded", 9.0) == blue


@pytest.mark.parametrize(
    ("exact", "bounded", "verdict"),
    [
        ([2.0, 2.1, 2.2], [1.0, 1.1, 1.2], "bounded"),
        ([1.0, 1.1, 1.2], [2.0, 2.1, 2.2], "exact"),
        ([1.0, 2.0, 3.0], [1.1, 2.2, 3.3], "unclear"),
        ([2.0, 2.0], [1.0, 1.0], "unclear"),
    ],
)
def test_a_mode_is_faster_only_beyond_chance(
    exact: list[float],
    bounded: list[float],
    verdict: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def made(_: object, max_loss: float, **__: object) -> SimTimes:
        return SimTimes(bounded if max_loss else exact, 0, 10, 0, 0)

    monkeypatch.setattr(sweep, "all_reduces", made)
    assert command.main(SMALL.split()) == 0
    assert all(verdict in line for line in capsys.readouterr().out.splitlines()[-2:])


@pytest.mark.parametrize(
    ("tcp", "bounded", "verdict"),
    [
        ([3.0, 3.1, 3.2], [1.0, 1.1, 1.2], "bounded"),
        ([3.0, 3.1, 3.2], [2.0, 2.1, 2.2], "dlcpd"),
        ([1.0, 1.1, 1.2], [2.0, 2.1, 2.2], "TCP"),
        ([2.0, 2.1, 2.3], [2.0, 2.1, 2.2], "unclear"),
    ],
)
def test_the_fastest_is_a_mode_or_tcp(
    tcp: list[float],
    bounded: list[float],
    verdict: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def ours(_: object, max_loss: float, **__: object) -> SimTimes:
        return SimTimes(bounded if max_loss else [2.0, 2.1, 2.2], 0, 10, 0, 0)

    def theirs(_: object, name: str, **__: object) -> SimTimes:
        return SimTimes(tcp if name == "bbr" else [9.0, 9.1, 9.2], 0, 10, 0, 0)

    monkeypatch.setattr(sweep, "all_reduces", ours)
    monkeypatch.setattr(sweep, "tcp_all_reduces", theirs)
    assert command.main(SMALL.split()) == 0
    assert all(line.split()[-2] == verdict for line in capsys.readouterr().out.splitlines()[-2:])


def test_conditions_are_all_combinations() -> None:
    made = list(sweep.conditions_of(parsed("bench sweep")))
    assert len(made) == len(set(made)) == 48
    assert made[0] == SimCondition(4, 1e9, 1e-4, 1e-4, 1, 1 << 20)
    assert {each.round_trip for each in made} == {1e-4, 1e-3, 1e-2, 0.1}
