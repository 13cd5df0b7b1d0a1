"""`explain` names each division with its reason, and each collective with its line."""

import json
from html.parser import HTMLParser
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from dlcp_client.spmd.annotations import annotate
from dlcp_client.spmd.costs import Costs, Link
from dlcp_client.spmd.explanation import explain
from dlcp_client.spmd.marks import keep_whole
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.planning import plan
from dlcpd.contract.errors import BadConfig
from tests.spmd.models import perceptron


def test_explain_says_who_decided_and_which_line_needs_what() -> None:
    model, arguments = perceptron()
    mesh = Mesh({"model": 3})
    annotate(model, mesh, {"up.weight": ("model", None)})
    made = plan(model, mesh, example=arguments)
    text = explain(made)
    assert "mesh model=3" in text
    lines = {line.split("  ")[0]: line for line in text.splitlines()}
    assert "22 x 13" in lines["up.weight"] and "annotation 'up.weight'" in lines["up.weight"]
    # No annotation names the second matrix: its division comes from the first.
    assert "(-, model)" in lines["down.weight"]
    assert "annotation 'up.weight' through models.py:" in lines["down.weight"]
    assert "self.down(torch.tanh(self.up(x)))" in lines["down.weight"]
    assert lines["argument 0"].split() == ["argument", "0", "7", "x", "13", "(-,", "-)"]
    (one,) = made.collectives
    sent = 2 * 7 * 5 * 8 * 2 // 3  # an all-reduce of 7 x 5 doubles
    row = next(line for line in text.splitlines() if line.startswith("1 "))
    assert round(one.sent) == sent and row.split()[:4] == ["1", "all_reduce", "model", str(sent)]
    assert "add needs it" in row and row.endswith("self.down(torch.tanh(self.up(x))), target)")


def planned() -> Any:
    model, arguments = perceptron()
    mesh = Mesh({"model": 3})
    annotate(model, mesh, {"up.weight": ("model", None)})
    return plan(model, mesh, example=arguments)


def test_explain_as_json_has_numbers() -> None:
    made = planned()
    found = json.loads(explain(made, "json"))
    assert found["mesh"] == {"model": 3}
    (one,) = found["collectives"]
    assert one["times"] == 1 and one["bytes"] == round(made.collectives[0].sent)
    assert one["collective"] == "all_reduce" and "self.down(" in one["line"]
    assert [row["input"] for row in found["inputs"]][:2] == ["up.weight", "up.bias"]
    assert one["predicted (ms)"] == pytest.approx(
        made.costs.of(one["bytes"], "model") * 1e3, abs=0.001
    )


def test_memory_is_that_of_a_rank_with_padding() -> None:
    """22 rows of 13 doubles and 5 of 22, divided by 3: 8 rows each. The last bias is whole."""
    found = json.loads(explain(planned(), "json"))["memory"]
    size = 8 * (8 * 13 + 8 + 5 * 8 + 5)
    assert [row["bytes"] for row in found] == [size, 0, size]


def test_each_axis_has_its_own_costs() -> None:
    costs = Costs(axes={"model": Link(latency=0.5, bytes_per_s=1000)})
    assert costs.of(2000, "model") == 2.5 and costs.of(0, "model") == 0
    assert costs.of(1.25e9, "data") == 1 + 1e-4


class WholeProduct(nn.Module):
    """A product that every rank shall have whole."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(8, 512))

    def forward(self, x: Tensor) -> Tensor:
        return keep_whole(x @ self.weight).sum()


@pytest.mark.parametrize(("slow", "collective"), [("a", "all_gather"), ("b", "all_reduce")])
def test_bytes_of_a_slow_axis_are_dear(slow: str, collective: str) -> None:
    """The gradient of the weight: of half of the rows, added up, or of all of them, gathered."""
    costs = Costs(latency=0.0, work_per_s=1e6, axes={slow: Link(0.0, 1e3)})
    made = plan(
        WholeProduct(),
        Mesh({"a": 2, "b": 1}),
        example=(torch.ones(64, 8),),
        inputs=[("a", None)],
        costs=costs,
    )
    _, last = made.collectives
    assert last.kind == collective
    assert last.sent == (64 * 8 * 4 / 2 if slow == "a" else 8 * 512 * 4)


class Cells(HTMLParser):
    """The texts of all cells of the tables of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self.within: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.within.append(tag)
        if tag == "td":
            self.found.append("")

    def handle_endtag(self, tag: str) -> None:
        self.within.append("")

    def handle_data(self, data: str) -> None:
        if self.within[-1:] == ["td"]:
            self.found[-1] += data


def test_explain_as_a_page_has_the_cells_of_the_text() -> None:
    made = planned()
    made.plan.captured.lines[made.collectives[0].caller] = "model.py:1: x < y & <b>"
    page, text = Cells(), explain(made)
    page.feed(explain(made, "html"))
    assert "model.py:1: x < y & <b>" in page.found
    assert len(page.found) == 4 * 1 + 2 * 3 + 4 * 6 + 8 * 1
    assert all(cell in text for cell in page.found)


def test_explain_in_another_form_is_refused() -> None:
    with pytest.raises(BadConfig, match="explain has no form 'xml': use one of text, json, html"):
        explain(planned(), "xml")
