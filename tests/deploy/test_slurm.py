"""deploy/slurm: prolog and epilog beside a real daemon, and jobs of a real Slurm where it is."""

import re
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator
from typing import Final

import pytest

from tests.checks import Measured
from tests.deploy.conftest import ROOT
from tests.deploy.machine import Machine
from tests.wheel import BUILD

pytestmark = pytest.mark.timeout(2 * BUILD)  # the package is built, and machines are shared
SCRIPTS: Final = (
    "deploy/slurm/prolog", "deploy/slurm/epilog", "deploy/slurm/train.sbatch",
    "deploy/packages/build-packages", "deploy/packages/postinstall", "deploy/packages/postremove",
    "deploy/packages/preremove", "deploy/packages/trim", "deploy/release",
)  # fmt: skip
JOB: Final = "SLURM_JOB_ID=7 SLURM_JOB_UID=$(id -u trainer)"
SAID: Final = "journalctl --identifier dlcpd-slurm --output cat"


@pytest.mark.parametrize("script", SCRIPTS)
def test_shellcheck_finds_nothing(script: str) -> None:
    done = subprocess.run(
        [sysconfig.get_path("scripts") + "/shellcheck", str(ROOT / script)],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout


def test_the_epilog_looks_for_the_name_that_the_job_has() -> None:
    """TORCHELASTIC_RUN_ID, the rendezvous' id, is how a session's name begins."""
    name = "slurm-$SLURM_JOB_ID"
    assert f'--rdzv-id "{name}"' in (ROOT / "deploy/slurm/train.sbatch").read_text()
    assert f'grep "^{name}-"' in (ROOT / "deploy/slurm/epilog").read_text()


@pytest.fixture(autouse=True)
def serving(request: pytest.FixtureRequest) -> None:
    if "machine" in request.fixturenames or "cluster" in request.fixturenames:
        machine: Machine = request.getfixturevalue("machine")
        machine.run("systemctl reset-failed; systemctl start dlcpd.socket dlcpd.service")


def test_the_prolog_lets_jobs_begin_where_the_daemon_serves(machine: Machine) -> None:
    machine.run("env -i /deploy/slurm/prolog")
    machine.run("systemctl stop dlcpd.service; env -i /deploy/slurm/prolog")  # its socket starts it


def test_the_prolog_fails_where_no_daemon_serves(machine: Machine) -> None:
    machine.run("systemctl stop dlcpd.socket dlcpd.service")
    assert machine.tried("env -i /deploy/slurm/prolog").returncode == 1
    assert "dlcpd: dlcpctl: /run/dlcpd/dlcpd.sock: no daemon answers" in machine.run(SAID)


def test_all_users_of_a_cluster_may_use_it(machine: Machine) -> None:
    """By the drop-in of docs/deploy-slurm.md."""
    page = (ROOT / "docs/deploy-slurm.md").read_text()
    [drop_in] = re.findall(r"^```ini\n(.*?)^```", page, re.DOTALL | re.MULTILINE)
    folder = "/run/systemd/system/dlcpd.socket.d"
    again = "systemctl daemon-reload; systemctl stop dlcpd.service; systemctl restart dlcpd.socket"
    status = "setpriv --reuid=nobody --regid=nogroup --clear-groups dlcpctl status"
    assert machine.tried(status).returncode == 1
    machine.run(f"mkdir {folder}; printf '{drop_in}' >{folder}/all.conf; {again}")
    try:
        machine.run(status)
    finally:
        machine.run(f"rm -r {folder}; {again}")


def test_the_epilog_ends_what_the_job_left_and_nothing_else(machine: Machine) -> None:
    run = "setpriv --reuid=trainer --regid=trainer --clear-groups env"
    machine.run(
        f"{run} SLURM_JOB_ID=7 setsid sleep 1007 >/dev/null 2>&1 & "
        f"{run} SLURM_JOB_ID=77 setsid sleep 1077 >/dev/null 2>&1 &"
    )
    machine.until("pgrep -fx 'sleep 1007' && pgrep -fx 'sleep 1077'", "they run")
    try:
        machine.run(f"env -i {JOB} /deploy/slurm/epilog")
        assert machine.tried("pgrep -fx 'sleep 1007'").returncode == 1
        assert re.search(r"job 7: process \d+ is left \(sleep 1007 \): killed", machine.run(SAID))
    finally:
        machine.run("pkill -fx 'sleep 1077'")  # fails where the epilog has ended it
    machine.run("systemctl stop dlcpd.socket dlcpd.service")
    assert machine.tried(f"env -i {JOB} /deploy/slurm/epilog").returncode == 1


@pytest.fixture(scope="module")
def cluster(machine: Machine) -> Iterator[Machine]:
    """Slurm's daemons in the machine, which is the one node."""
    missing = [tool for tool in ("slurmctld", "slurmd", "munged") if shutil.which(tool) is None]
    if missing:
        pytest.skip(f"slurm: not installed: {', '.join(missing)} (Debian's slurm-wlm)")
    # Without an address beside loopback the resolver knows none at all.
    machine.run(
        "ip link add up0 type veth peer name up1 && ip link set up1 up && "
        "ip addr add 192.0.2.1/24 dev up0 && ip link set up0 up"
    )
    machine.run(
        "install -D -t /etc/slurm/dlcpd /deploy/slurm/prolog /deploy/slurm/epilog && "
        "sed s/HOST/$(hostname)/ /checks/slurm.conf >/etc/slurm/slurm.conf && "
        "mkdir -p /run/slurm/state /run/slurm/spool && systemctl start munge"
    )
    # Trainings use torch of this checkout, which may be where only root gets.
    machine.run("chmod o+x /root && install -d -o trainer /run/out")
    machine.run("for each in slurmctld slurmd; do $each >/dev/null 2>&1; done")
    machine.until("sinfo --noheader --format %T | grep -x idle", "the node is there")
    yield machine
    machine.run("pkill slurmd; pkill slurmctld; systemctl stop munge; ip link del up0")


def submitted(machine: Machine, *words: str, path: str = "") -> str:
    """Number of a job of trainer's, which has ended; "/run/out/NUMBER" is what it said."""
    said = machine.run(
        f"cd /run/out && runuser --user trainer -- env PATH={path}$PATH sbatch --parsable "
        f"--nodes=1 --output=/run/out/%j {' '.join(words)}"
    )
    machine.until(
        f'[ -z "$(squeue --noheader --states=PD,R,CG --job {said} | grep -v held)" ]',
        f"job {said} ends",
    )
    return said


@pytest.mark.check(21, "Slurm: a job trains over the host's daemon, and leaves nothing")
def test_a_job_trains(cluster: Machine, measured: Measured) -> None:
    job = submitted(
        cluster,
        "/deploy/slurm/train.sbatch",
        str(ROOT / "examples/train_ddp.py"),
        path=f"{ROOT}/.venv/bin:",
    )
    said = cluster.run(f"cat /run/out/{job}")
    assert "step  60  loss" in said, said
    assert f"of job 'slurm-{job}-" in cluster.run("journalctl --unit dlcpd --output cat")
    assert f"job {job}: nothing is left" in cluster.until(
        f"{SAID} | grep 'job {job}:'", "the epilog has run"
    )
    measured("examples/train_ddp.py, " + cluster.run("slurmd -V"))


def test_what_a_job_leaves_is_ended(cluster: Machine) -> None:
    job = submitted(cluster, "--wrap='setsid sleep 1099 >/dev/null 2>&1 &'")
    cluster.until(f"{SAID} | grep 'job {job}: nothing is left'", "the epilog has run")
    assert cluster.tried("pgrep -fx 'sleep 1099'").returncode == 1


@pytest.mark.check(
    22, "Slurm: without its daemon a node is drained, with a reason, and runs no job"
)
def test_a_node_without_a_daemon_is_drained(cluster: Machine, measured: Measured) -> None:
    cluster.run("systemctl stop dlcpd.socket dlcpd.service")
    job = submitted(cluster, "--wrap='echo ran'")
    try:
        assert cluster.tried(f"cat /run/out/{job}").returncode == 1
        reason = cluster.run("sinfo --noheader --list-reasons --format %E")
        assert reason.startswith("dlcpd: dlcpctl: /run/dlcpd/dlcpd.sock: no daemon answers")
        measured(f"Reason={reason.partition(';')[0]}")
    finally:
        cluster.run(
            f"scancel {job}; systemctl start dlcpd.socket dlcpd.service; "
            "scontrol update NodeName=$(hostname) State=RESUME"
        )
