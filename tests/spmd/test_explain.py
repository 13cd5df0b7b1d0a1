"""`explain` names each division with its reason, and each collective with its line."""

from dlcp_client.spmd.annotations import annotate
from dlcp_client.spmd.explanation import explain
from dlcp_client.spmd.meshes import Mesh
from dlcp_client.spmd.planning import plan
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
