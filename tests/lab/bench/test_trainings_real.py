"""Both commands on emulated fabrics, with little work."""

import json
from pathlib import Path

import pytest

from dlcp_lab.bench.training_rows import TRANSPORTS
from dlcpd.ctl.main import main


@pytest.mark.netns
def test_bench_step(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "result.json"
    line = f"bench step --models vgg16 --quick --mode exact --json {file}"
    assert main(line.split()) == 0
    document = json.loads(file.read_text())
    assert [(row["network"], row["system"]) for row in document["rows"]] == [
        ("vgg16", system) for system in ("gloo", "hook", "cross-step")
    ]
    assert {check["verdict"] for check in document["checks"]} == {"held"}
    assert document["at_best"]["vgg16"] == pytest.approx(1.22, abs=0.01)
    assert "Gloo over TCP" in capsys.readouterr().out


@pytest.mark.netns
def test_bench_training(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "result.json"
    assert main(["bench", "training", "--quick", "--json", str(file)]) == 0
    document = json.loads(file.read_text())
    assert [row["transport"] for row in document["rows"]] == [*TRANSPORTS, *TRANSPORTS]
    assert document["broken"] == []
    assert "bit for bit" in capsys.readouterr().out
