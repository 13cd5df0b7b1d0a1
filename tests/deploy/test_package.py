"""The .deb and the .rpm: what is in them, and what installation, upgrade and removal do."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.checks import Measured
from tests.deploy.conftest import ROOT
from tests.deploy.jobs import PYTHON, Job, main_pid, train
from tests.deploy.machine import Machine
from tests.wheel import BUILD, VERSION

pytestmark = pytest.mark.timeout(2 * BUILD)  # the package is built, and machines are shared


@pytest.mark.check(11, "the .deb brings the daemon without torch, and nothing of where it was made")
def test_contents(machine: Machine, package: Path, measured: Measured) -> None:
    assert machine.run("dlcpd --version").startswith(f"dlcpd {VERSION}\n")
    told = machine.run("dpkg-query --show --showformat '${Version}' dlcpd")
    assert told == f"{VERSION.replace('.dev', '~dev')}-1"
    assert machine.run("dlcpctl --help") and machine.run("switchcfg --help")
    machine.run(f"{PYTHON} -c 'import cryptography, prometheus_client, uvloop'")  # extras
    pages = "man1/dlcpctl.1.gz", "man1/switchcfg.1.gz", "man5/dlcpd.toml.5.gz", "man8/dlcpd.8.gz"
    for name in pages:
        assert ".TH " in machine.run(f"zcat /usr/share/man/{name}")
    completes = "source /usr/share/bash-completion/completions/dlcpctl; complete -p dlcpctl"
    assert "_shtab_dlcpctl" in machine.run(f'bash -c "{completes}"')
    assert "No module named 'torch'" in machine.tried(f"{PYTHON} -c 'import torch'").stdout
    assert machine.tried("grep -rl /tmp/ /opt/dlcpd/bin /opt/dlcpd/pyvenv.cfg").stdout == ""
    code = f"{PYTHON} -c 'import dlcpd; print(dlcpd.__loader__.get_code(\"dlcpd\").co_filename)'"
    assert machine.run(code).startswith("/opt/dlcpd/lib/")
    installed = machine.run("dpkg-query --show --showformat '${Installed-Size}' dlcpd")
    measured(f"{package.stat().st_size >> 20} MiB, installed {int(installed) >> 10} MiB")


@pytest.mark.check(12, "an upgrade leaves a running job alone, and restarts a daemon without one")
def test_upgrade(machine: Machine) -> None:
    machine.run("systemctl start dlcpd.service")
    pid = main_pid(machine)
    with Job(machine) as ranks:
        train(ranks)
        said = machine.run("dpkg --install /package/*.deb")
        assert "jobs are served by the version of before" in said
        assert main_pid(machine) == pid
        train(ranks)
    machine.until("dlcpctl status | grep -x '0 sessions'", "the job is gone")
    machine.run("dpkg --install /package/*.deb")
    assert main_pid(machine) not in (pid, "0")


@pytest.mark.skipif(shutil.which("lintian") is None, reason="lintian is missing")
def test_lintian_finds_nothing(package: Path) -> None:
    done = subprocess.run(
        ["lintian", "--allow-root", "--fail-on", "error,warning", str(package)],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert (done.returncode, done.stdout) == (0, "")


def test_the_parts_are_listed_with_their_versions(machine: Machine) -> None:
    listed = json.loads(machine.run("cat /opt/dlcpd/sbom.cdx.json"))
    parts = {each["name"].lower(): each["version"] for each in listed["components"]}
    names = "import importlib.metadata as m; print(*(d.name for d in m.distributions()))"
    assert set(parts) == set(machine.run(f"{PYTHON} -c '{names}'").lower().split())
    assert parts["dlcpd"] == machine.run("dlcpd --version").split()[1]


@pytest.mark.skipif(shutil.which("rpm") is None, reason="rpm is missing")
@pytest.mark.check(39, "the .rpm: installed, upgraded beside a job and without one, removed")
def test_rpm(machine: Machine) -> None:
    """By rpm's own scripts: the helpers of Debian are hidden."""
    helpers = "/usr/bin/deb-systemd-helper", "/usr/bin/deb-systemd-invoke"
    rpm = "rpm --nodeps --dbpath /run/rpm"  # this distribution's packages are dpkg's
    machine.run("dpkg --purge dlcpd")
    machine.run("; ".join(f"mount --bind /dev/null {each}" for each in helpers))
    try:
        machine.run(f"{rpm} --install /package/*.rpm")
        assert main_pid(machine) == "0"  # as rpm has it, an administrator starts services
        machine.run("systemctl enable --now dlcpd.service && dlcpctl status")
        pid = main_pid(machine)
        with Job(machine) as ranks:
            train(ranks)
            said = machine.run(f"{rpm} --upgrade --force /package/*.rpm")
            assert "jobs are served by the version of before" in said
            assert main_pid(machine) == pid
            train(ranks)
        machine.until("dlcpctl status | grep -x '0 sessions'", "the job is gone")
        machine.run(f"{rpm} --upgrade --force /package/*.rpm")
        assert main_pid(machine) not in (pid, "0")
        machine.run(f"echo '# mine' >>/etc/dlcpd/dlcpd.toml; {rpm} --erase dlcpd")
        machine.run("grep '# mine' /etc/dlcpd/dlcpd.toml.rpmsave && [ ! -e /opt/dlcpd ]")
        assert machine.run("find /etc/systemd/system -name 'dlcpd*'") == ""
    finally:
        machine.run("; ".join(f"umount {each}" for each in helpers))
        machine.run("rm -rf /etc/dlcpd; dpkg --install --force-confmiss /package/*.deb")


def install_by_hand(machine: Machine) -> None:
    """What docs/deploy.md says of the wheel, in an environment that is there, and its reverse."""
    page = (ROOT / "docs/deploy.md").read_text()
    [block] = [text for text in page.split("```") if text.startswith("sh\nsudo python3 -m venv")]
    _, _, *lines = block.splitlines()
    steps = [line.replace("sudo ", "") for line in lines if line != "sudo sysctl --system"]
    machine.run("dpkg-deb --extract /package/*.deb /run/package; mv /run/package/opt/dlcpd /opt")
    machine.run("\n".join(["cd / && set -e", *steps]))
    machine.run("dlcpctl status")
    machine.run(
        "systemctl disable --now dlcpd.socket dlcpd.service; rm -r /opt/dlcpd /run/package "
        "/etc/dlcpd /etc/systemd/system/dlcpd* /usr/bin/dlcpd /usr/bin/dlcpctl; "
        "systemctl daemon-reload"
    )


@pytest.mark.check(13, "removal stops all daemons and keeps the configuration; a purge does not")
def test_removal(machine: Machine, measured: Measured) -> None:
    machine.run(
        "cd /etc/dlcpd; echo '# mine' >>dlcpd.toml; cp dlcpd.toml c.toml; "
        "systemctl start dlcpd.service dlcpd@c.service"
    )
    try:
        machine.run("dpkg --remove dlcpd")
        assert machine.tried("pgrep -f [d]lcpd.io.engine").stdout == ""
        left = "ls /run/dlcpd; systemctl list-unit-files --no-legend 'dlcpd*'"
        assert machine.tried(left).stdout == ""
        machine.run("[ ! -e /opt/dlcpd ] && grep '# mine' /etc/dlcpd/dlcpd.toml")
        machine.run("dpkg --purge dlcpd; rm /etc/dlcpd/c.toml && [ ! -e /etc/dlcpd/dlcpd.toml ]")
        assert machine.run("find /etc/systemd/system -name 'dlcpd*'") == ""
        install_by_hand(machine)
        measured("then installed from the wheel, by the lines of docs/deploy.md")
    finally:
        machine.run("dpkg --install /package/*.deb")
    assert main_pid(machine) != "0"
