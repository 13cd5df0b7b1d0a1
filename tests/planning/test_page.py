"""The figures, the output and the picture of docs/planner.md are what `dlcpctl plan` gives."""

import re
from pathlib import Path

import pytest

from dlcpd.ctl import main as command
from dlcpd.planning import plan
from dlcpd.planning.explain import reasons
from dlcpd.planning.graph import Graph
from dlcpd.planning.rates import in_words
from tests import pages
from tests.pages import ROOT
from tests.planning.networks import on_a_switch, racks

PAGE = ROOT / "docs" / "planner.md"
M = 10**6
NETWORKS = {
    "4 hosts of 100 Mb/s": on_a_switch([100 * M] * 4),
    "4 hosts, one of 25 Mb/s, the others 100 Mb/s": on_a_switch([25 * M, *[100 * M] * 3]),
    "8 hosts, one of 25 Mb/s, the others 100 Mb/s": on_a_switch([25 * M, *[100 * M] * 7]),
    "2 racks of 2 hosts of 100 Mb/s, uplinks 50 Mb/s": racks(2, 2, 100 * M, 50 * M),
    "2 racks of 4 hosts of 100 Mb/s, uplinks 100 Mb/s": racks(2, 4, 100 * M, 100 * M),
}
ROWS = dict(
    (name, (bound, gain))
    for name, bound, gain in re.findall(
        r"^\| (\d.*?) \| (\S+) \| ([\d.]+) \|$", PAGE.read_text(), re.MULTILINE
    )
)


def test_every_row_has_its_network() -> None:
    assert list(ROWS) == list(NETWORKS)


@pytest.mark.parametrize(("name", "graph"), NETWORKS.items(), ids=list(NETWORKS))
def test_bound_and_gain(name: str, graph: Graph) -> None:
    pytest.importorskip("scipy", reason="scipy, which solves linear programs, is not installed")
    made = plan.all_reduce(graph)
    assert made.bound is not None
    said = in_words(float(made.bound.rate)), f"{reasons(graph, made).gain:.2f}"
    assert ROWS[name] == said


def test_output_and_picture(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    drawn = tmp_path / "planner.svg"
    assert command.main(["plan", "docs/planner.toml", "--svg", str(drawn)]) == 0
    texts = [block.text for block in pages.blocks(PAGE)]
    assert (ROOT / "docs" / "planner.toml").read_text() in texts
    assert capsys.readouterr().out in texts
    stored = ROOT / "docs" / "images" / "planner.svg"
    assert stored.read_text() == drawn.read_text(), "make configuration-reference"
