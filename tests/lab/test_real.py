"""The commands on real hosts: daemons, ranks, torch and Gloo, small."""

import json
from pathlib import Path
from typing import Any

import pytest

from dlcp_lab.report.checks import OPEN
from dlcpd.ctl.main import main


def result(line: str, folder: Path) -> tuple[int, Any]:
    file = folder / "result.json"
    code = main([*line.split(), "--json", str(file)])
    return code, json.loads(file.read_text())


@pytest.mark.parametrize(
    "line",
    [
        "--dtype float32 --arena --loss 0.02",
        "--dtype bfloat16 --op avg --pin --back-to-back",
        "--dtype float32 --mode bounded --arena --result-only --loss 0.02",
    ],
)
def test_bench(line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = result(
        f"bench all-reduce --sizes 100,300K --repeat 3 --warmup 1 {line}", tmp_path
    )
    assert code == 0
    rows = document["rows"]
    assert [(row["size"], row["transport"]) for row in rows] == [
        (100, "dlcpd"),
        (100, "gloo"),
        (307200, "dlcpd"),
        (307200, "gloo"),
    ]
    assert {row["wrong"] for row in rows} == {0}
    assert {len(row["samples"]) for row in rows} == {3}
    assert all(row["ratio"]["p50"] > 0 for row in rows if row["transport"] == "dlcpd")
    shown = capsys.readouterr()
    assert "busbw(GB/s)" in shown.out
    assert shown.err.startswith("# 100 B")


def test_bench_without_a_rival(tmp_path: Path) -> None:
    code, document = result(
        "bench all-reduce --hosts 3 --sizes 64K --repeat 2 --against none --dtype int64 --op max",
        tmp_path,
    )
    assert code == 0
    [row] = document["rows"]
    assert (row["transport"], row["count"], row["ratio"]) == ("dlcpd", 8192, None)


def test_bench_with_an_account(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = result("bench all-reduce --sizes 64K --repeat 20 --account", tmp_path)
    assert code == 0
    found = {(cost["transport"], cost["process"]): cost for cost in document["account"]}
    engine = found["dlcpd", "engine"]
    assert engine["effort"]["READY"] >= 1
    assert engine["effort"]["data_out"] >= 1
    assert engine["python_calls"] > engine["effort"]["wakes"] > 0
    assert found["dlcpd", "trainer"]["python_calls"] > 0
    assert found["gloo", "trainer"]["waited"] > 0
    assert "per operation and host" in capsys.readouterr().out


def test_bench_of_every_collective(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = result(
        "bench collectives --hosts 3 --sizes 100,300K --repeat 2 --warmup 1 --loss 0.02", tmp_path
    )
    assert code == 0
    rows = document["rows"]
    assert len(rows) == 2 * (10 * 2 + 1)  # a barrier has no size
    assert {row["wrong"] for row in rows} == {0}
    assert all(row["ratio"]["p50"] > 0 for row in rows if row["transport"] == "dlcpd")
    assert all(row["cpu"] > 0 for row in rows)
    assert "3 hosts, one machine, INJECTED loss 2 %" in capsys.readouterr().out


def test_bench_of_the_fused_update(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = result("bench fused --one-daemon --sizes 1M --repeat 2 --blocks 1", tmp_path)
    assert code == 0
    rows = {row["way"]: row for row in document["rows"]}
    assert set(rows) == {"gloo", "zero", "hook", "cross-step", "fused", "eager"}
    assert rows["fused"]["state"] * 2 == rows["zero"]["state"] * 2 == rows["gloo"]["state"] > 0
    assert [check["verdict"] for check in document["checks"]] == ["held"]
    assert "all ranks on one daemon" in capsys.readouterr().out


def test_bench_of_schedules(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = result(
        "bench schedules --programs adam --sizes 64K --repeat 1 --blocks 1", tmp_path
    )
    assert code == 0
    rows = {row["candidate"]: row for row in document["rows"]}
    assert set(rows) == {"as written", "reduce-scatter, all-gather", "one operation, eager"}
    assert sum(row["chosen"] for row in rows.values()) == 1
    assert "the tuner chose" in capsys.readouterr().out


def test_bench_of_divided_programs(tmp_path: Path) -> None:
    options = "--cases data,space --backends gloo --layers 1 --repeat 1 --blocks 1"
    code, document = result(f"bench spmd {options}", tmp_path)
    assert code == 0
    rows = {(row["case"], row["way"]): row for row in document["rows"]}
    assert len(rows) == 5
    assert rows["space", "spmd"]["saved"] < 0.55 * rows["space", "alone"]["saved"]


def test_verify_bounded(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document = result("verify --hosts 2 --loss 0.05 --mode bounded --seed 3", tmp_path)
    assert (code, document["broken"]) == (0, [])
    assert {check["promise"] for check in document["checks"]} == {"P1", "P2", "P3", "P4", "P5"}
    assert document["injected_datagrams"] > 0
    assert "INJECTED loss 5 %" in capsys.readouterr().out


def test_verify_without_loss_judges_no_positions(tmp_path: Path) -> None:
    code, document = result("verify --hosts 2 --loss 0 --mode bounded", tmp_path)
    assert code == 0
    assert [c["promise"] for c in document["checks"] if c["verdict"] == OPEN] == ["P5"]


@pytest.mark.netns
def test_bench_on_an_emulated_switch(tmp_path: Path) -> None:
    code, document = result(
        "bench all-reduce --sizes 64K --repeat 2 --warmup 1 --switch 1gbit --switch-loss 0.01",
        tmp_path,
    )
    assert code == 0
    assert [row["wrong"] for row in document["rows"]] == [0, 0]
    assert document["switch_loss"] == pytest.approx(0.01)
    assert (
        document["machine"]["tcp_congestion_control"]
        in Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text()
    )


@pytest.mark.netns
def test_a_bad_switch_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "all-reduce", "--switch", "fast"]) == 2
    assert "--switch fast" in capsys.readouterr().err
