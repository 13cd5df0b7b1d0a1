"""deploy/kubernetes: what the API server, the operator and the daemon would say of it, and whether
its parts fit together. No cluster runs here.
"""

import copy
from pathlib import Path
from typing import Any, Final

import kubernetes_validate
import pytest
import yaml
from kubeflow.training import models as kubeflow

from dlcpd import __version__
from dlcpd.ctl.main import main as dlcpctl
from dlcpd.daemon.config import KEYS, Config, DaemonTable, parse
from dlcpd.daemon.effective import engine_configs, resolved
from tests.checks import Measured
from tests.deploy.conftest import ROOT

FOLDER: Final = ROOT / "deploy" / "kubernetes"
OLDEST: Final, NEWEST = "1.29", "1.35"  # releases of Kubernetes


def objects(file: str) -> dict[str, dict[str, Any]]:
    """Of a manifest, by their kinds."""
    return {each["kind"]: each for each in yaml.safe_load_all((FOLDER / file).read_text())}


DAEMON: Final = objects("dlcpd.yaml")
POD: Final = DAEMON["DaemonSet"]["spec"]["template"]["spec"]
JOB: Final = objects("pytorchjob.yaml")["PyTorchJob"]
MONITOR: Final = objects("podmonitor.yaml")["PodMonitor"]
TEXT: Final = DAEMON["ConfigMap"]["data"]["dlcpd.toml"]
[CONTAINER] = POD["containers"]
[TRAINER] = JOB["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"]


def pod_of_replica(replica: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x"}} | {
        "spec": replica["template"]["spec"]
    }


def problems(value: Any, kind: str, where: str) -> list[str]:
    """What the types of Kubeflow's SDK, which are generated from its API, do not know. Pods are
    for the schemas of Kubernetes."""
    if kind.startswith(("dict(", "list[")):
        inner = kind[5:-1].rpartition(" ")[2]
        items = value.items() if isinstance(value, dict) else enumerate(value)
        return [text for key, each in items for text in problems(each, inner, f"{where}.{key}")]
    model = getattr(kubeflow, kind, None)
    if model is None:
        simple = {"str": str, "int": int, "bool": bool, "object": object}
        right = kind not in simple or isinstance(value, simple[kind])
        return [] if right else [f"{where}: {value!r} is no {kind}"]
    names = {json: name for name, json in model.attribute_map.items()}
    return [
        text for key, each in value.items() for text in (
            problems(each, model.openapi_types[names[key]], f"{where}.{key}") if key in names
            else [f"{where}.{key}: unknown"]
        )
    ]  # fmt: skip
