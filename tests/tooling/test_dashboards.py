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
RECORDING: Final = DEPLOY / "prometheus" / "recording.yml"
DASHBOARD: Final = json.loads((DEPLOY / "grafana" / "dlcpd.json").read_text())
# As they are written on the wire: a histogram's series, a counter's ending.
SERVED: Final = {
    family.name + ending: {*family.labels, "instance"} | ({"le"} if ending == "_bucket" else set())
    for family in FAMILIES
    for ending in {COUNTER: ("_total",), HISTOGRAM: ("_bucket", "_count", "_sum")}.get(
        family.kind, ("",)
    )
}
SERVED["dlcpd_up"] = {"job", "instance"}  # Prometheus' own `up`, under a name that is searched


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]


def expressions() -> Iterator[tuple[str, str]]:
    """(where, PromQL), with what Grafana puts in for its own variables."""
    for rule in rules():
        yield rule["alert"], rule["expr"].replace('up{job="dlcpd"}', 'dlcpd_up{job="dlcpd"}')
    for group in yaml.safe_load(RECORDING.read_text())["groups"]:
        for rule in group["rules"]:
            yield rule["record"], rule["expr"]
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
        metrics = re.findall(r"\b(?:dlcpd_\w+|up\b)", rule["expr"])
        metrics = ["dlcpd_up" if name == "up" else name for name in metrics]
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


def promtool(*words: str, folder: Path) -> None:
    done = subprocess.run(
        ["promtool", *words], capture_output=True, text=True, check=False, cwd=folder
    )
    assert done.returncode == 0, done.stdout + done.stderr


NEEDS_PROMTOOL = pytest.mark.skipif(
    shutil.which("promtool") is None, reason="promtool (prometheus) is missing"
)


def test_the_operators_rules_are_the_same() -> None:
    rule = yaml.safe_load((DEPLOY / "kubernetes" / "prometheusrule.yaml").read_text())
    files = (ALERTS, RECORDING)
    groups = [group for file in files for group in yaml.safe_load(file.read_text())["groups"]]
    assert rule["kind"] == "PrometheusRule" and rule["spec"]["groups"] == groups


@NEEDS_PROMTOOL
def test_promtool_takes_the_rules() -> None:
    promtool("check", "rules", str(ALERTS), str(RECORDING), folder=DEPLOY)


@NEEDS_PROMTOOL
def test_alerts_fire_for_first_events_and_not_before() -> None:
    promtool("test", "rules", "alerts_test.yml", folder=ALERTS.parent)


# A series, and its value when all is well and when it is not: for alerts on states.
STATES: Final = {
    "DlcpdEngineEnded": ('dlcpd_control_events_total{instance="a",event="engine_lost"}', 0, 1),
    "DlcpdRankEnded": ('dlcpd_control_events_total{instance="a",event="left_open"}', 0, 1),
    "DlcpdReplicasDiverge": (
        'dlcpd_alarm{instance="a",job_name="x",rank="0",alarm="divergence"}', 0, 1
    ),
    "DlcpdEngineSilent": ('dlcpd_engine_answers{instance="a"}', 1, 0),
    "DlcpdSessionBroken": ('dlcpd_sessions{instance="a",state="broken"}', 0, 2),
    "DlcpdBoundPressure": (
        'dlcpd_alarm{instance="a",job_name="x",rank="0",alarm="bound_pressure"}', 0, 1
    ),
    "DlcpdStall": ('dlcpd_alarm{instance="a",job_name="x",rank="0",alarm="stall"}', 0, 1),
    "DlcpdGrayFailure": (
        'dlcpd_alarm{instance="a",job_name="x",rank="0",alarm="gray_failure"}', 0, 1
    ),
    "DlcpdSilentPeers": (
        'dlcpd_alarm{instance="a",job_name="x",rank="0",alarm="silent_peer"}', 0, 1
    ),
    "DlcpdSettingsWait": ('dlcpd_settings_pending{instance="a"}', 0, 3),
    "DlcpdVersionsRefuse": (
        'dlcpd_control_events_total{instance="a",event="peer_other_version"}', 0, 1
    ),
    "DlcpdUnreachable": ('dlcpd_unreachable{instance="a"}', 0, 1),
    "DlcpdCordoned": ('dlcpd_cordoned{instance="a"}', 0, 1),
    "DlcpdMetricsIncomplete": ('dlcpd_report_truncated{instance="a"}', 0, 1),
}  # fmt: skip
WELL, ILL, DAY = 30, 90, 1440  # minutes


@NEEDS_PROMTOOL
def test_alerts_on_states_fire_and_do_not_fire(tmp_path: Path) -> None:
    cases = []
    for alert, (series, well, ill) in STATES.items():
        [rule] = [rule for rule in rules() if rule["alert"] == alert]
        ill_for = ILL + (DAY if rule.get("for") == "1d" else 0)
        late = WELL + (5 if "increase" in rule["expr"] else ill_for)
        found = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
        cases.append(
            {
                "name": alert,
                "interval": "1m",
                "input_series": [
                    {"series": series, "values": f"{well}x{WELL} {ill}x{ill_for}"},
                ],
                "promql_expr_test": [
                    {"expr": found, "eval_time": f"{WELL - 1}m", "exp_samples": []},
                    {
                        "expr": found,
                        "eval_time": f"{late}m",
                        "exp_samples": [{"labels": "{}", "value": 1}],
                    },
                ],
            }
        )
    file = tmp_path / "states.yml"
    file.write_text(
        yaml.safe_dump({"rule_files": [str(ALERTS)], "evaluation_interval": "1m", "tests": cases})
    )
    promtool("test", "rules", str(file), folder=tmp_path)


def test_every_alert_is_tested() -> None:
    text = (ALERTS.parent / "alerts_test.yml").read_text()
    untested = {
        rule["alert"]
        for rule in rules()
        if rule["alert"] not in STATES and f"alertname: {rule['alert']}" not in text
    }
    assert untested == set()
