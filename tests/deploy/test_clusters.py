"""The chart, the manifests that it makes, and one example for each operator of jobs."""

import hashlib
import runpy
from collections.abc import Iterator
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml

from dlcpd.daemon.config.file import parse
from tests.deploy.conftest import ROOT
from tests.deploy.test_kubernetes import CONFIG, DAEMON, FOLDER, RELEASES, mounted

helm = pytest.importorskip("helm_python", reason="helm-python-sdk is missing")
EXAMPLES: Final = ("jobset.yaml", "pytorchjob.yaml", "rayjob.yaml", "trainjob.yaml", "volcano.yaml")
NAMES: Final = {  # the label of pods with the job's name, by the kind of the job
    "ClusterTrainingRuntime": "jobset.sigs.k8s.io/jobset-name",
    "Job": "volcano.sh/job-name",
    "JobSet": "jobset.sigs.k8s.io/jobset-name",
    "PyTorchJob": "training.kubeflow.org/job-name",
    "RayJob": "ray.io/cluster",
}


def rendered(**values: object) -> dict[str, dict[str, Any]]:
    """Manifests of the chart by their kinds."""
    text = runpy.run_path(str(FOLDER / "render"))["rendered"](values)
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


def test_the_manifests_are_those_of_the_chart() -> None:
    assert rendered(createNamespace=True) == DAEMON
    said = helm.lint(str(FOLDER / "chart"), namespace="dlcpd")
    assert said["total_charts_linted"] == 1 and said["errors"] == []
    base = yaml.safe_load((FOLDER / "kustomization.yaml").read_text())
    assert [(FOLDER / each).name for each in base["resources"]] == ["dlcpd.yaml"]


VALUES: Final = {
    "image": {"repository": "registry.example/dlcpd", "tag": "1.2.3"},
    "ports": {"control": 8411, "data": 8412, "metrics": 8464},
    "socketGroup": 4711,
    "drainSeconds": 60,
    "seLinuxOptions": {"type": "spc_t"},
    "podMonitor": True,
}


@pytest.mark.parametrize("version", RELEASES)
def test_every_value_reaches_its_place(version: str) -> None:
    made = rendered(**VALUES)
    assert set(made) == {"ConfigMap", "DaemonSet", "PodMonitor"}
    assert kubernetes_validate.validate(made["DaemonSet"], version, strict=True) == version
    pod = made["DaemonSet"]["spec"]["template"]["spec"]
    [container], [init] = pod["containers"], pod["initContainers"]
    assert {container["image"], init["image"]} == {"registry.example/dlcpd:1.2.3"}
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == VALUES["ports"]
    config = parse(made["ConfigMap"]["data"]["dlcpd.toml"], "chart")
    assert config.daemon.control_port == ports["control"] and config.daemon.socket_group == 4711
    assert config.metrics.address[1] == ports["metrics"]
    assert pod["securityContext"]["supplementalGroups"] == [4711]
    assert pod["securityContext"]["seLinuxOptions"] == {"type": "spc_t"}
    stop = container["lifecycle"]["preStop"]["exec"]["command"]
    assert stop[stop.index("--wait") + 1] == "60" and pod["terminationGracePeriodSeconds"] == 80


@pytest.mark.parametrize(
    ("values", "named"),
    [
        ({"image": {"repo": "registry.example/dlcpd"}}, "repo"),
        ({"port": {"control": 1}}, "port"),
        ({"ports": {"contrl": 7411}}, "contrl"),
        ({"ports": {"control": "7411"}}, "control"),
        ({"drainSeconds": 0}, "drainSeconds"),  # dlcpctl would refuse it when the pod is deleted
        ({"nodes": []}, "nodes"),
    ],
)
def test_a_value_that_is_mistyped_is_refused_by_name(values: dict[str, Any], named: str) -> None:
    with pytest.raises(Exception, match=named):
        rendered(**values)


def test_another_configuration_makes_another_pod() -> None:
    def checksum(made: dict[str, dict[str, Any]]) -> str:
        found: str = made["DaemonSet"]["spec"]["template"]["metadata"]["annotations"][
            "checksum/config"
        ]
        return found

    text = "[daemon]\nsocket_group = {{ .Values.socketGroup }}\n"
    made = rendered(config=text)
    assert made["ConfigMap"]["data"]["dlcpd.toml"] == "[daemon]\nsocket_group = 7418\n"
    told = hashlib.sha256(made["ConfigMap"]["data"]["dlcpd.toml"].encode()).hexdigest()
    assert checksum(made) == told != checksum(DAEMON)
    assert checksum(rendered(config=text, socketGroup=1)) != told


def pods(node: Any) -> Iterator[dict[str, Any]]:
    """Every specification of a pod below a node of a manifest."""
    if isinstance(node, dict):
        if "containers" in node:
            yield node
        for each in node.values():
            yield from pods(each)
    elif isinstance(node, list):
        for each in node:
            yield from pods(each)


@pytest.mark.parametrize("version", RELEASES)
@pytest.mark.parametrize("file", EXAMPLES)
def test_pods_of_an_example_use_the_daemon_of_their_node(file: str, version: str) -> None:
    folder = str(CONFIG.daemon.socket).rpartition("/")[0]
    first, *_ = yaml.safe_load_all((FOLDER / file).read_text())
    label = NAMES[first["kind"]]
    ranks = [pod for pod in pods(first) if "hostPath" in str(pod)]
    assert ranks
    for pod in pods(first):
        whole = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}, "spec": pod}
        assert kubernetes_validate.validate(whole, version, strict=True) == version
    for pod in ranks:
        [container] = pod["containers"]
        assert pod["securityContext"]["supplementalGroups"] == [CONFIG.daemon.socket_group]
        assert mounted(pod, container, folder)["hostPath"]["path"] == folder
        told = {each["name"]: each.get("value", each.get("valueFrom")) for each in container["env"]}
        assert told["DLCPD_SOCKET"] == CONFIG.daemon.socket
        assert told["DLCPD_JOB"] == {"fieldRef": {"fieldPath": f"metadata.labels['{label}']"}}
        assert told["DLCPD_JOB_SECRET"] == {
            "secretKeyRef": {"name": "train-dlcpd", "key": "secret"}
        }


def test_the_page_names_every_example() -> None:
    page = (ROOT / "docs" / "deploy-kubernetes.md").read_text()
    assert [file for file in EXAMPLES if f"kubernetes/{file})" not in page] == []
