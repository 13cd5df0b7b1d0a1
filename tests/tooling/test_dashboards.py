"""deploy/prometheus and deploy/grafana: each expression is PromQL, and asks for what is served."""

import json
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import promql_parser
import pytest
import yaml

from dlcpd.daemon.metrics.families import FAMILIES, HISTOGRAM
from dlcpd.io.report_rows import COUNTER

DEPLOY: Final = Path(__file__).parents[2] / "deploy"
ALERTS: Final = DEPLOY / "prometheus" / "alerts.yml"
DASHBOARD: Final = json.loads((DEPLOY / "grafana" / "dlcpd.json").read_text())
# As they are written on the wire: a histogram's series, a counter's ending.
SERVED: Final = {
    family.name + ending: {*family.labels, "instance"} | ({"le"} if ending == "_bucket" else set())
    for family in FAMILIES
    for ending in {COUNTER: ("_total",), HISTOGRAM: ("_bucket", "_count", "_sum")}.get(
        family.kind, ("",)
    )
}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """(where, PromQL), with what Grafana puts in for its own variables."""
    for rule in rules():
        yield rule["alert"], rule["expr"]
    for panel in panels():
        for target in panel["targets"]:
            yield panel["title"], target["expr"].replace("$__rate_interval", "1m")


def selectors(node: Any) -> Iterator[Any]:
    """Every selector of metrics below a node of the parser's tree."""
    if isinstance(node, promql_parser.VectorSelector):
        yield node
    for name in ("expr", "lhs", "rhs", "vector_selector", "param"):
        if (child := getattr(node, name, None)) is not None:
            yield from selectors(child)
    for argument in getattr(node, "args", None) or []:
        yield from selectors(argument)


@pytest.mark.parametrize(("where", "text"), list(expressions()))
def test_an_expression_asks_for_metrics_and_labels_that_are_served(where: str, text: str) -> None:
    found = list(selectors(promql_parser.parse(text)))
    assert found, "an expression without a metric says nothing"
    assert len(found) == len(re.findall(r"\bdlcpd_", text)), "the tree is searched in full"
    for selector in found:
        assert selector.name in SERVED, where
        asked = {matcher.name for matcher in selector.matchers.matchers}
        assert asked <= SERVED[selector.name], where


@pytest.mark.parametrize(("where", "text"), list(expressions()))
def test_an_expression_groups_by_labels_that_are_served(where: str, text: str) -> None:
    for grouped in re.findall(r"by \(([^)]*)\)", text):
        known = set.intersection(*(SERVED[name] for name in re.findall(r"\bdlcpd_\w+", text)))
        assert set(re.findall(r"\w+", grouped)) <= known, where


def test_every_alarm_has_an_alert_and_a_panel() -> None:
    everything = "\n".join(text for _, text in expressions())
    for alarm in ("gray_failure", "bound_pressure", "divergence", "stall", "silent_peer"):
        assert f'alarm="{alarm}"' in everything


def test_alerts_name_labels_that_their_series_have() -> None:
    for rule in rules():
        metrics = re.findall(r"\bdlcpd_\w+", rule["expr"])
        known = set.intersection(*(SERVED[name] for name in metrics))
        for text in rule["annotations"].values():
            assert set(re.findall(r"\$labels\.(\w+)", text)) <= known, rule["alert"]
        assert rule["labels"]["severity"] in ("critical", "warning", "info")


def test_the_dashboard_is_whole() -> None:
    assert DASHBOARD["title"] == "dlcpd" and DASHBOARD["schemaVersion"] >= 30
    numbers = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(numbers)) == len(numbers)
    variables = {variable["name"] for variable in DASHBOARD["templating"]["list"]}
    text = json.dumps(DASHBOARD).replace("$__rate_interval", "").replace("$__all", "")
    assert set(re.findall(r"\$\{?(\w+)", text)) == variables
    for one in panels():
        assert one["targets"] and one["title"] and one["gridPos"]["w"] + one["gridPos"]["x"] <= 24
        for other in panels():
            assert one is other or apart(one["gridPos"], other["gridPos"]), one["title"]


def apart(one: dict[str, int], other: dict[str, int]) -> bool:
    beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
    return beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]


@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (prometheus) is missing")
def test_promtool_takes_the_alerts() -> None:
    done = subprocess.run(
        ["promtool", "check", "rules", str(ALERTS)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
