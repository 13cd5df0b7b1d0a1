"""The image of deploy/oci/Containerfile, and the daemon in it as deploy/kubernetes runs it."""

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from dlcpd import __version__
from dlcpd.daemon.config.tables import KEYS
from tests.checks import Measured
from tests.deploy.image import IMAGE, RUN, Podman
from tests.deploy.test_kubernetes import CONTAINER, POD, REPLICAS, TEXT, TRAINER
from tests.wheel import BUILD

pytestmark = pytest.mark.timeout(2 * BUILD)  # the image is built, and machines are shared
SECRET: Final = "0123456789abcdef" * 4
TRAINERS_USER: Final = 1000


@pytest.mark.check(17, "OCI: the image has the daemon with its compiled part, no torch and no root")
def test_the_image(podman: Podman, measured: Measured) -> None:
    [made] = json.loads(podman.run("inspect", IMAGE))
    assert made["Config"]["User"] == "7417"
    assert made["Config"]["Entrypoint"] == ["dlcpd"]
    once = (*RUN, "--rm", "--network=none")
    assert podman.run(*once, IMAGE, "--version").startswith(f"dlcpd {__version__}+image\n")
    python = (*once, "--entrypoint=python", IMAGE, "-c")
    podman.run(*python, "import cryptography, prometheus_client, uvloop")
    assert "No module named 'torch'" in podman.tried(*python, "import torch").stdout
    labels = made["Config"]["Labels"]
    assert labels["org.opencontainers.image.licenses"] == "Apache-2.0"
    assert labels["org.opencontainers.image.version"] == f"{__version__}+image"
    listed = podman.run(*once, "--entrypoint=cat", IMAGE, "/opt/dlcpd/sbom.cdx.json")
    parts = {part["name"]: part["version"] for part in json.loads(listed)["components"]}
    assert parts["dlcpd"] == f"{__version__}+image" and {"numpy", "uvloop"} <= set(parts)
    measured(f"{made['Size'] >> 20} MiB with a base of Debian's Python")


@pytest.mark.check(18, "OCI: what the image does by itself serves, and its health check sees that")
def test_the_image_by_itself(podman: Podman) -> None:
    [made] = json.loads(podman.run("inspect", IMAGE))
    [kind, *check] = made["Healthcheck"]["Test"]
    assert kind == "CMD"
    podman.run(
        *RUN,
        "--name=alone",
        "--detach",
        "--network=none",
        "--read-only",
        "--cap-drop=all",
        "--security-opt=no-new-privileges",
        IMAGE,
    )
    try:
        serves(podman, "alone")
        assert podman.run("exec", "alone", *check).strip() == "ready"
        said = podman.run("exec", "alone", "dlcpctl", "status")
        assert "data_path compiled" in said and "0 sessions" in said
    finally:
        podman.run("stop", "--time=20", "alone")
    [ended] = json.loads(podman.run("inspect", "alone"))
    assert ended["State"]["ExitCode"] == 0  # it drains on SIGTERM, as process 1
    podman.run("rm", "alone")


def serves(podman: Podman, name: str) -> None:
    """Wait for the daemon of a container."""
    ready = "until dlcpctl status; do sleep 0.2; done"
    podman.run("exec", name, "timeout", "60", "sh", "-c", ready)


def options(pod: dict[str, Any], container: dict[str, Any], folders: dict[str, Path]) -> list[str]:
    """What a kubelet would tell its runtime, as options of podman. `folders` stand for volumes.

    Not as there: control groups, and the node's network, in which the pod of the daemon is.
    """
    security = pod["securityContext"] | container.get("securityContext", {})
    users = f"--user={security.get('runAsUser', TRAINERS_USER)}:{security.get('runAsGroup', 0)}"
    made = [users, "--network=none"]
    made += [f"--group-add={group}" for group in security["supplementalGroups"]]
    made += ["--read-only", "--read-only-tmpfs=false"] * security.get("readOnlyRootFilesystem", 0)
    if not security.get("allowPrivilegeEscalation", True):
        made.append("--security-opt=no-new-privileges")
    capabilities = security.get("capabilities", {})
    made += [f"--cap-drop={name}" for name in capabilities.get("drop", [])]
    made += [f"--cap-add={name}" for name in capabilities.get("add", [])]
    for mount in container["volumeMounts"]:
        if mount["name"] in folders:
            mode = "ro" if mount.get("readOnly") else "rw"
            made.append(f"--volume={folders[mount['name']]}:{mount['mountPath']}:{mode}")
    return made


@pytest.fixture(scope="module")
def node(podman: Podman, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of the session socket on a node whose pod of the DaemonSet runs."""
    folder = tmp_path_factory.mktemp("node")
    folder.chmod(0o755)
    for each in ("config", "run", "keys"):
        (folder / each).mkdir(mode=0o755)  # as the kubelet makes them
    (folder / "config" / "dlcpd.toml").write_text(TEXT)
    volumes = {each: folder / each for each in ("config", "run", "keys")}
    [init] = POD["initContainers"]
    [program, *words] = init["command"]
    podman.run(*RUN, "--rm", *options(POD, init, volumes), f"--entrypoint={program}", IMAGE, *words)
    podman.run(
        *RUN,
        "--name=daemon",
        "--detach",
        *options(POD, CONTAINER, volumes),
        IMAGE,
        *CONTAINER["args"],
    )
    try:
        serves(podman, "daemon")
        yield folder / "run"
    finally:
        log = podman.tried("logs", "daemon").stdout
        podman.run("rm", "--force", "--time=5", "daemon")
        assert "level=error" not in log, log


@pytest.mark.check(19, "Kubernetes: the daemon serves with what the DaemonSet lets it have")
def test_the_probe_sees_the_daemon(podman: Podman, node: Path) -> None:
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        assert probed(podman, probe)
    status = podman.run("exec", "daemon", "cat", "/proc/1/status")
    for line in ("CapPrm:\t0000000000000000", "NoNewPrivs:\t1", "Seccomp:\t2"):
        assert line in status
    podman.run("exec", "daemon", "dlcpctl", "doctor", "--config", "/config/dlcpd.toml")
    podman.run("exec", "daemon", "sh", "-c", "kill -HUP 1")
    assert probed(podman, "livenessProbe")
    assert "event=reloaded" in podman.tried("logs", "daemon").stdout


def probed(podman: Podman, probe: str) -> str:
    """The answer to a probe, which a kubelet sends to the pod's address; fails unless it is 200."""
    asked = CONTAINER[probe]["httpGet"]
    [port] = [p["containerPort"] for p in CONTAINER["ports"] if p["name"] == asked["port"]]
    ask = (
        f"import urllib.request as u; "
        f"print(u.urlopen('http://127.0.0.1:{port}{asked['path']}', timeout=10).read().decode())"
    )
    return podman.run("exec", "daemon", "python", "-I", "-c", ask)


class Pod:
    """Of a training: tests/deploy/trainer.py in a container of its own, with its own network."""

    def __init__(self, podman: Podman, rank: int, folder: Path, store: Path) -> None:
        spec = REPLICAS["Master"]["template"]["spec"]
        environment = {each["name"]: each.get("value", SECRET) for each in TRAINER["env"]}
        environment |= {"RANK": str(rank), "WORLD_SIZE": "2", "DLCPD_STORE": "/store"}
        checks = Path(__file__).parent
        self._process = subprocess.Popen(
            podman.command(
                *RUN,
                "--rm",
                "--interactive",
                *options(spec, TRAINER, {"dlcpd": folder}),
                f"--volume={store}:/store",
                f"--volume={checks}:/checks:ro",
                *(f"--env={name}={value}" for name, value in environment.items()),
                "--entrypoint=python",
                IMAGE,
                "-I",
                "/checks/trainer.py",
            ),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def takes_steps(self, steps: int) -> None:
        """And no more."""
        assert self._process.stdin
        self._process.stdin.write("\n" * steps)
        self._process.stdin.close()

    def says(self) -> str:
        """All, when it has ended."""
        with self._process:
            assert self._process.stdout
            return self._process.stdout.read()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A folder in which ranks meet; where the job has torch, its store does that."""
    for folder in (tmp_path.parent, tmp_path):
        folder.chmod(0o755)
    made = tmp_path / "store"
    made.mkdir(mode=0o700)
    os.chown(made, TRAINERS_USER, 0)
    return made


@pytest.mark.check(20, "Kubernetes: pods of a job train through the node's socket")
def test_pods_train(podman: Podman, node: Path, store: Path) -> None:
    pods = [Pod(podman, rank, node, store) for rank in range(2)]
    for pod in pods:
        pod.takes_steps(2)
    said = [pod.says() for pod in pods]
    assert said == ["joined\nsum 3 3\nsum 3 3\n"] * 2


def test_a_pod_without_the_group_may_not_connect(podman: Podman, node: Path) -> None:
    spec = REPLICAS["Master"]["template"]["spec"] | {"securityContext": {"supplementalGroups": []}}
    said = podman.tried(
        *RUN,
        "--rm",
        *options(spec, TRAINER, {"dlcpd": node}),
        "--entrypoint=dlcpctl",
        IMAGE,
        "status",
    )
    assert said.returncode == 1 and "may not connect" in said.stdout


def test_keys_are_made_and_authorised_by_exec(podman: Podman, node: Path) -> None:
    """What docs/deploy-kubernetes.md says of keys, with podman for kubectl."""
    podman.run("exec", "daemon", "dlcpctl", "keys", "new")
    public = podman.run("exec", "daemon", "dlcpctl", "keys", "show")
    done = subprocess.run(
        podman.command(
            "exec", "--interactive", "daemon", "dlcpctl", "keys", "authorise", "/dev/stdin"
        ),
        input=public,
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    kept = node.parent / KEYS.name
    assert (kept / "identity.toml").stat().st_mode & 0o777 == 0o600
    assert "this host" in podman.run("exec", "daemon", "dlcpctl", "keys", "list")
