"""deploy/ansible: checked by its own tools, and played on machines that systemd boots."""

import json
import os
import shutil
import subprocess
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Final

import pytest

from tests.checks import Measured
from tests.deploy.conftest import ROOT
from tests.deploy.machine import Machine
from tests.switches.ssh_switch import SshSwitch, inside
from tests.wheel import BUILD

pytestmark = pytest.mark.timeout(2 * BUILD)  # the package is built, and machines are shared
FOLDER: Final = ROOT / "deploy" / "ansible"
SCRIPTS: Final = sysconfig.get_path("scripts")
HOSTS: Final = ("node1", "node2")


def ansible(
    program: str, home: Path, *words: str, before: Sequence[str] = ()
) -> "subprocess.CompletedProcess[str]":
    """A program of Ansible, run in deploy/ansible. It keeps its files in `home`. `before`: words
    that run it somewhere."""
    environ = os.environ | {
        "ANSIBLE_CONNECTION_PLUGINS": str(Path(__file__).parent / "connection_plugins"),
        "ANSIBLE_HOME": str(home),
        "ANSIBLE_LOCALHOST_WARNING": "false",
        "ANSIBLE_PIPELINING": "true",
        "XDG_STATE_HOME": str(home),
        "PATH": f"{SCRIPTS}:{os.environ['PATH']}",
        "NO_COLOR": "1",
        "LC_ALL": "C.UTF-8",
    }
    return subprocess.run(
        [*before, f"{SCRIPTS}/{program}", *words],
        cwd=FOLDER,
        env=environ,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=300,
    )


@pytest.mark.check(23, "Ansible: ansible-lint and --syntax-check find nothing in role and playbook")
def test_the_tools_find_nothing(tmp_path: Path, measured: Measured) -> None:
    example = ("-i", "inventory.example.yml", "site.yml")
    checked = ansible("ansible-playbook", tmp_path, *example, "--syntax-check")
    assert checked.returncode == 0, checked.stdout
    linted = ansible("ansible-lint", tmp_path, "--offline", "--strict")
    assert linted.returncode == 0 and "Passed" in linted.stdout, linted.stdout
    measured(linted.stdout.strip().rpartition("Last ")[2])


@pytest.fixture(scope="module")
def machines(package: Path) -> Iterator[dict[str, Machine]]:
    """Two hosts where nothing is installed yet."""
    with ExitStack() as stack:
        made = {}
        for name in HOSTS:
            made[name] = Machine({})
            stack.callback(made[name].off)
        for machine in made.values():
            machine.booted()
            machine.run("rm -f /usr/sbin/policy-rc.d; useradd --no-create-home alice")
        yield made


class Player:
    """Plays the daemons' part of site.yml."""

    def __init__(self, machines: dict[str, Machine], package: Path, folder: Path) -> None:
        self._folder = folder
        hosts = {
            name: {"ansible_host": machine.first, "ansible_connection": "machine"}
            for name, machine in machines.items()
        }
        self._variables: dict[str, Any] = {
            "ansible_become": False,
            "ansible_python_interpreter": "/usr/bin/python3",
            "dlcpd_deb": str(package),
            "dlcpd_users": ["alice"],
        }
        (folder / "inventory.json").write_text(
            json.dumps({"dlcpd": {"hosts": hosts, "vars": self._variables}})
        )

    def plays(self, **variables: Any) -> "subprocess.CompletedProcess[str]":
        """With more variables."""
        return ansible(
            "ansible-playbook",
            self._folder / "home",
            "-i",
            str(self._folder / "inventory.json"),
            "site.yml",
            "--limit",
            "dlcpd",
            "-e",
            json.dumps(variables),
        )


@pytest.fixture(scope="module")
def player(
    machines: dict[str, Machine], package: Path, tmp_path_factory: pytest.TempPathFactory
) -> Player:
    return Player(machines, package, tmp_path_factory.mktemp("ansible"))


CONFIG: Final = {
    "daemon": {"socket_group": "dlcpd-users", "control_port": 7411},
    "network": {"paths": [{"address": "127.0.0.1", "port": 7412}], "alarm_loss": 0.01},
}


@pytest.mark.check(24, "Ansible: the role sets two hosts up, with each other's keys")
def test_the_role(machines: dict[str, Machine], player: Player) -> None:
    first = player.plays(dlcpd_config=CONFIG)
    assert first.returncode == 0 and " 0 fail" in first.stdout, first.stdout
    for name, machine in machines.items():
        machine.run("systemctl is-enabled dlcpd.service dlcpd.socket")
        assert "2 hosts authorised" in machine.run("dlcpctl status")
        assert "127.0.0.1:7412" in machine.run("dlcpctl status")
        known = machine.run("dlcpctl keys list")
        assert all(host in known for host in HOSTS) and "this host" in known, name
        assert "dlcpd-users" in machine.run("id alice")
        assert machine.run("stat -c '%U %a' /etc/dlcpd/keys/identity.toml") == "dlcpd 600"


@pytest.mark.check(25, "Ansible: another play changes a setting, reloads it, and does nothing else")
def test_a_changed_setting_is_reloaded(
    machines: dict[str, Machine], player: Player, measured: Measured
) -> None:
    pids = [machine.run("pgrep -o dlcpd") for machine in machines.values()]
    changed = CONFIG | {"daemon": CONFIG["daemon"] | {"log_level": "debug"}}
    done = player.plays(dlcpd_config=changed)
    assert done.returncode == 0, done.stdout
    assert done.stdout.count("changed=2 ") == len(HOSTS), done.stdout  # the file, the reload
    measured("changed=2 on each host")
    assert [machine.run("pgrep -o dlcpd") for machine in machines.values()] == pids
    for machine in machines.values():
        machine.until("journalctl --unit dlcpd | grep -F 'changed=daemon.log_level'", "a reload")


def test_a_wrong_setting_changes_nothing(machines: dict[str, Machine], player: Player) -> None:
    before = [machine.run("cat /etc/dlcpd/dlcpd.toml") for machine in machines.values()]
    done = player.plays(dlcpd_config={"network": {"entropie": 8}})
    assert done.returncode != 0 and "entropie" in done.stdout
    assert [machine.run("cat /etc/dlcpd/dlcpd.toml") for machine in machines.values()] == before


@pytest.fixture
def switch(tmp_path: Path) -> Iterator[SshSwitch]:
    """A Linux switch behind a real sshd."""
    with SshSwitch(tmp_path).running() as made:
        yield made


@pytest.mark.netns
@pytest.mark.skipif(not shutil.which("sshd"), reason="sshd is not installed")
@pytest.mark.check(26, "Ansible: the playbook shows a switch's plan, and applies it when confirmed")
def test_a_switch(switch: SshSwitch, tmp_path: Path) -> None:
    def play(*more: str) -> str:
        variables = {
            "switchcfg_intent": str(tmp_path / "intent.toml"),
            "switchcfg_plans": str(tmp_path / "plans"),
            "switchcfg_options": f"--ssh-config {tmp_path}/ssh_config",
        }
        done = ansible(
            "ansible-playbook",
            tmp_path / "home",
            "-i",
            "localhost,",
            "site.yml",
            "-e",
            json.dumps(variables),
            *more,
            before=inside(switch.operator),
        )
        assert done.returncode == 0, done.stdout
        return done.stdout

    untouched = switch.queues()
    assert "Plan: " in play() and switch.queues() == untouched
    assert "changed=1 " in play("-e", "switchcfg_confirm=true")
    applied = switch.queues()
    assert applied != untouched
    assert "changed=0 " in play("-e", "switchcfg_confirm=true") and switch.queues() == applied
