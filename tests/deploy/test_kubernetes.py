"""deploy/kubernetes: what the API server, the operator and the daemon would say of it, and whether
its parts fit together. No cluster runs here.
"""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml
from kubeflow.training import models as kubeflow

from dlcpd.build import RELEASE
from dlcpd.ctl.main import main as dlcpctl
from dlcpd.daemon.config.effective import engine_configs, resolved
from dlcpd.daemon.config.file import parse
from dlcpd.daemon.config.tables import KEYS, Config, DaemonTable
from dlcpd.daemon.metrics.server import PROBES
from tests.checks import Measured
from tests.deploy.conftest import ROOT

FOLDER: Final = ROOT / "deploy" / "kubernetes"
RELEASES: Final = ("1.29", "1.37")  # of Kubernetes; the newest that there are schemas of


def objects(file: str) -> dict[str, dict[str, Any]]:
    """Of a manifest, by their kinds."""
    return {each["kind"]: each for each in yaml.safe_load_all((FOLDER / file).read_text())}


DAEMON: Final = objects("dlcpd.yaml")
POD: Final = DAEMON["DaemonSet"]["spec"]["template"]["spec"]
JOB: Final = objects("pytorchjob.yaml")["PyTorchJob"]
MONITOR: Final = objects("podmonitor.yaml")["PodMonitor"]
TEXT: Final = DAEMON["ConfigMap"]["data"]["dlcpd.toml"]
CONFIG: Final[Config] = parse(TEXT, "dlcpd.yaml")
REPLICAS: Final = JOB["spec"]["pytorchReplicaSpecs"]
[CONTAINER] = POD["containers"]
[TRAINER] = REPLICAS["Master"]["template"]["spec"]["containers"]


def pod_of_replica(replica: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}} | {
        "spec": replica["template"]["spec"]
    }


SIMPLE: Final = {"str": str, "int": int, "bool": bool}


def problems(value: Any, kind: str, where: str) -> list[str]:
    """What the types of Kubeflow's SDK, which are generated from its API, do not know. Pods are
    for the schemas of Kubernetes."""
    if kind.startswith(("dict(", "list[")):
        inner = kind[5:-1].rpartition(" ")[2]
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [text for key, each in items for text in problems(each, inner, f"{where}.{key}")]
    if kind.startswith("V1"):
        return []
    if kind in SIMPLE:
        return [] if isinstance(value, SIMPLE[kind]) else [f"{where}: {value!r} is no {kind}"]
    model = getattr(kubeflow, kind)
    names = {json: name for name, json in model.attribute_map.items()}
    return [
        text
        for key, each in value.items()
        for text in (
            problems(each, model.openapi_types[names[key]], f"{where}.{key}")
            if key in names
            else [f"{where}.{key}: unknown"]
        )
    ]


@pytest.mark.check(16, "Kubernetes: the API's schemas take the manifests")
@pytest.mark.parametrize("version", RELEASES)
def test_the_schemas_take_the_manifests(version: str, measured: Measured) -> None:
    for each in [*DAEMON.values(), pod_of_replica(REPLICAS["Worker"])]:
        assert kubernetes_validate.validate(each, version, strict=True) == version
    measured(version)


def test_the_operators_types_take_the_job() -> None:
    assert JOB["apiVersion"] == "kubeflow.org/v1"
    assert problems(JOB, "KubeflowOrgV1PyTorchJob", "job") == []
    # What the operator's webhook asks for, and no type says: these replicas and this container.
    assert set(REPLICAS) == {"Master", "Worker"} and REPLICAS["Master"]["replicas"] == 1
    assert TRAINER["name"] == "pytorch"


MISTAKES: Final = (
    ("updateStrategie", lambda daemon, job: daemon["spec"].update(updateStrategie={})),
    ("hostNetwork", lambda daemon, job: pod(daemon).update(hostNetwork="yes")),
    ("periodSeconds", lambda daemon, job: probe(daemon).update(periodSeconds="30s")),
    ("template", lambda daemon, job: daemon["spec"].pop("template")),
    ("exec", lambda daemon, job: probe(daemon).update(exec=["dlcpctl", "status"])),
    ("nprocPerNode", lambda daemon, job: job["spec"].update(nprocPerNode=2)),
    ("replica", lambda daemon, job: master(job).update(replica=1)),
    ("secretKeyRef", lambda daemon, job: trainer(job)["env"][1].update(valueFrom={"key": "x"})),
)


def pod(daemon: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = daemon["spec"]["template"]["spec"]
    return found


def probe(daemon: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = pod(daemon)["containers"][0]["livenessProbe"]
    return found


def master(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = job["spec"]["pytorchReplicaSpecs"]["Master"]
    return found


def trainer(job: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = master(job)["template"]["spec"]["containers"][0]
    return found


@pytest.mark.parametrize("mistake", [each[1] for each in MISTAKES], ids=[m[0] for m in MISTAKES])
def test_a_mistake_is_refused(mistake: Callable[[Any, Any], object]) -> None:
    daemon, job = copy.deepcopy(DAEMON["DaemonSet"]), copy.deepcopy(JOB)
    mistake(daemon, job)
    if problems(job, "KubeflowOrgV1PyTorchJob", "job"):
        return
    changed = daemon if daemon != DAEMON["DaemonSet"] else pod_of_replica(master(job))
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(changed, RELEASES[-1], strict=True)


def test_the_daemon_takes_its_configuration(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "dlcpd.toml"
    file.write_text(TEXT)
    assert dlcpctl(["config", "check", str(file)]) == 0
    assert "valid" in capsys.readouterr().out
    assert CONTAINER["args"] == ["--config", "/config/dlcpd.toml"]
    assert mounted(POD, CONTAINER, "/config") == {"configMap": {"name": "dlcpd"}}
    assert DAEMON["ConfigMap"]["metadata"]["name"] == "dlcpd"


def mounted(pod: dict[str, Any], container: dict[str, Any], where: str) -> dict[str, Any]:
    """The volume at a path of a container."""
    [name] = [each["name"] for each in container["volumeMounts"] if each["mountPath"] == where]
    [volume] = [each for each in pod["volumes"] if each["name"] == name]
    return {key: value for key, value in volume.items() if key != "name"}


def test_the_socket_is_one_and_the_same() -> None:
    socket = Path(CONFIG.daemon.socket)
    assert str(socket) == DaemonTable().socket
    trainers = REPLICAS["Worker"]["template"]["spec"]
    environment = {each["name"]: each.get("value") for each in TRAINER["env"]}
    assert environment["DLCPD_SOCKET"] == str(socket)
    folders = [
        mounted(POD, CONTAINER, str(socket.parent)),
        mounted(trainers, TRAINER, str(socket.parent)),
    ]
    assert {each["hostPath"]["path"] for each in folders} == {str(socket.parent)}


def test_probes_ask_the_metrics_port_for_what_it_answers() -> None:
    ports = {port["name"]: port["containerPort"] for port in CONTAINER["ports"]}
    paths = {}
    for name in ("startupProbe", "livenessProbe", "readinessProbe"):
        get = CONTAINER[name]["httpGet"]
        assert ports[get["port"]] == CONFIG.metrics.address[1]
        paths[name] = PROBES[get["path"]]
    assert paths == {
        "startupProbe": "healthy",
        "livenessProbe": "healthy",
        "readinessProbe": "ready",
    }


def test_pods_that_use_the_daemon_have_its_group_and_the_daemon_too() -> None:
    group = CONFIG.daemon.socket_group
    for replica in REPLICAS.values():
        security = replica["template"]["spec"]["securityContext"]
        assert security["supplementalGroups"] == [group]
    assert POD["securityContext"]["supplementalGroups"] == [group]


def test_folders_are_given_to_the_daemons_user() -> None:
    [init] = POD["initContainers"]
    security = POD["securityContext"]
    owner = f"{security['runAsUser']}:{security['runAsGroup']}"
    assert init["command"] == ["chown", owner, str(Path(DaemonTable().socket).parent), str(KEYS)]
    for folder in init["command"][2:]:
        assert mounted(POD, init, folder) == mounted(POD, CONTAINER, folder)


def test_ports_are_those_of_the_configuration() -> None:
    [engine] = engine_configs(resolved(CONFIG, embedded=False))
    ports = {
        each["name"]: (each["containerPort"], each.get("protocol", "TCP"))
        for each in CONTAINER["ports"]
    }
    assert ports == {
        "control": (CONFIG.daemon.control_port, "TCP"),
        "data": (engine.paths[0][1], "UDP"),
        "metrics": (CONFIG.metrics.address[1], "TCP"),
    }
    assert POD["hostNetwork"] and all(
        each["hostPort"] == each["containerPort"] for each in CONTAINER["ports"]
    )


def test_a_drain_may_end() -> None:
    assert POD["terminationGracePeriodSeconds"] > CONFIG.daemon.drain_timeout


def test_the_image_is_of_this_version() -> None:
    images = {each["image"] for each in (CONTAINER, *POD["initContainers"])}
    assert images == {f"dlcpd:{RELEASE}"}


def test_the_monitor_finds_the_daemons() -> None:
    labels = DAEMON["DaemonSet"]["spec"]["template"]["metadata"]["labels"]
    assert MONITOR["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert MONITOR["metadata"]["namespace"] == DAEMON["DaemonSet"]["metadata"]["namespace"]
    [endpoint] = MONITOR["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] == "metrics" and "honorLabels" not in endpoint
    assert {row["targetLabel"] for row in endpoint["relabelings"]} == {"job", "instance"}
