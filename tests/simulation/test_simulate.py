"""`dlcpctl bench simulate`: its rows, its line about the limit, and arguments that it refuses."""

import json
from pathlib import Path
from typing import Any

import pytest

from dlcp_lab.bench import simulate
from dlcp_lab.report.section import of_document
from dlcp_lab.simulation.burst_network import BurstNetwork
from dlcp_lab.simulation.operation import SimOperation
from dlcpd.ctl import main as command

SMALL = "bench simulate --hosts 4 --sizes 4K,64K --operations 2 --incast 3"


def document(path: Path, line: str = SMALL) -> dict[str, Any]:
    assert command.main([*line.split(), "--json", str(path)]) == 0
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_a_row_per_operation_and_how_the_limit_is_computed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = document(tmp_path / "made.json")
    shown = capsys.readouterr()
    assert "number 4" in shown.err and "4 hosts, 64K: reduce" in shown.err
    lines = shown.out.splitlines()
    assert len([line for line in lines if line.startswith(("all_reduce ", "3 to 1 "))]) == 8
    assert any(line.startswith("limit: bytes of the slowest port / rate") for line in lines)

    rows = found["rows"]
    assert [(row["collective"], row["size"]) for row in rows] == [
        (name, size) for size in (4096, 65536) for name in ("all_reduce",) * 2 + ("reduce",) * 2
    ]
    assert all(row["limit"] < row["time"] <= row["ended"] and not row["wrong"] for row in rows)
    assert of_document(found).title == "dlcpctl bench simulate"


def test_only_the_cpu_time_depends_on_the_machine(tmp_path: Path) -> None:
    one, other = (
        [{**row, "cpu": 0.0} for row in document(tmp_path / "made.json")["rows"]] for _ in range(2)
    )
    assert one == other


def test_a_slower_wire_takes_longer(tmp_path: Path) -> None:
    slow = document(tmp_path / "made.json", f"{SMALL} --rate 1gbit")["rows"][4]
    fast = document(tmp_path / "made.json", SMALL)["rows"][4]
    assert slow["limit"] == pytest.approx(100 * fast["limit"])
    assert slow["time"] > 5 * fast["time"]


def test_a_port_of_few_bytes_drops(tmp_path: Path) -> None:
    line = "bench simulate --hosts 8 --sizes 256K --operations 1 --incast 7"
    whole, small = (
        sum(row["dropped"] for row in document(tmp_path / "made.json", f"{line} {more}")["rows"])
        for more in ("", "--buffer 64K")
    )
    assert small > whole == 0


def test_a_wrong_result_is_an_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong(_: BurstNetwork, size: int, __: int) -> SimOperation:
        return SimOperation("all_reduce", size, 4, 2.0, 2.0, 1.0, 0, 100, 100, 0.5, 7)

    monkeypatch.setattr(simulate, "all_reduce", wrong)
    assert command.main(["bench", "simulate", "--hosts", "4", "--operations", "1"]) == 1
    shown = capsys.readouterr().out
    assert "WRONG RESULT: 7 elements of all_reduce 4M" in shown
    assert "0.500" in shown and " 200 " in shown  # the share, and events per CPU second


def test_an_operation_that_does_not_end_is_a_row_without_figures(
    capsys: pytest.CaptureFixture[str],
) -> None:
    line = "bench simulate --hosts 2 --sizes 256K --operations 1 --rate 1kbit"
    assert command.main(line.split()) == 0
    assert "all_reduce 256K: not measured: rank" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ("--hosts 1", "argument --hosts: '1' is not a whole number 2..144"),
        ("--hosts 145", "argument --hosts: '145' is not a whole number 2..144"),
        ("--hosts 4 --incast 4", "--incast: 4 senders and a receiver are more than 4 hosts"),
        ("--sizes 4K,6", "--sizes: 6 bytes are not a whole number of float32"),
        ("--sizes lots", "argument --sizes: 'lots' is not a size"),
        ("--hosts 144 --sizes 1G", "--sizes: 144 hosts with 1G hold 144.0 GiB: at most 8"),
        ("--rate fast", "--rate: 'fast' is not a rate"),
        ("--rate 900gbit", "--rate: 900gbit is out of range: at most 400gbit"),
        ("--operations 0", "argument --operations: '0' is not a whole number 1..1000"),
        ("--round-trip 2s", "--round-trip: 2 s is out of range: at most 1 s"),
        ("--wake-up 5", "argument --wake-up: '5' is not a time; write 250us, 2.5ms or 1s"),
    ],
)
def test_arguments_that_it_refuses(
    options: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    try:
        code = command.main(["bench", "simulate", *options.split()])
    except SystemExit as exc:
        code = int(exc.code or 0)
    shown = capsys.readouterr()
    assert code == 2
    assert said in shown.err and not shown.out
    assert shown.err.count(said) == 1
