"""`explain` names each division with its reason, and each collective with its line."""

import json
from html.parser import HTMLParser
from typing import Any

import pytest

from dlcp_client.spmd.annotations import annotate
from dlcp_client.spmd.explanation import explain
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
    assert len(page.found) == 4 * 1 + 4 * 6 + 7 * 1
    assert all(cell in text for cell in page.found)


def test_explain_in_another_form_is_refused() -> None:
    with pytest.raises(BadConfig, match="explain has no form 'xml': use one of text, json, html"):
        explain(planned(), "xml")
