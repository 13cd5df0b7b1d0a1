"""The service under the systemd of a machine that was booted for it."""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from dlcpd.daemon.journal import MESSAGE_IDS
from tests.checks import Measured
from tests.deploy.jobs import MAIN, PYTHON, SOCKET, Job, main_pid, train
from tests.deploy.machine import Machine
from tests.wheel import BUILD

pytestmark = pytest.mark.timeout(2 * BUILD)  # the package is built, and machines are shared


@pytest.fixture(autouse=True)
def serving(machine: Machine) -> None:
    machine.run("systemctl reset-failed; systemctl start dlcpd.socket dlcpd.service")


@pytest.mark.check(2, "systemd starts it, hears READY, and it runs without any privilege")
def test_start(machine: Machine, measured: Measured) -> None:
    machine.run("systemctl is-active dlcpd.socket dlcpd.service")
    assert "level=info event=ready" in machine.run("journalctl --unit dlcpd")
    status = machine.run(f"cat /proc/{MAIN}/status")
    user = machine.run("id -u dlcpd")
    assert f"Uid:\t{user}\t{user}\t{user}\t{user}" in status
    for line in ("CapPrm:\t0000000000000000", "CapBnd:\t0000000000000000", "NoNewPrivs:\t1"):
        assert line in status
    scores = machine.run("for pid in $(pgrep -u dlcpd); do cat /proc/$pid/oom_score_adj; done")
    lower = "systemd-run --quiet --wait --pipe --property OOMScoreAdjust=-900"  # where it may be
    allowed = machine.run(f"{lower} cat /proc/self/oom_score_adj").split()
    assert scores.split() == allowed * 2, "control's and, inherited, the engine's"
    measured(machine.run("systemd-analyze security --no-pager dlcpd | tail -1").strip("→ "))


@pytest.mark.check(3, "members of the group train through it, others may not connect")
def test_users(machine: Machine) -> None:
    with Job(machine) as ranks:
        train(ranks)
    refused = machine.tried("setpriv --reuid=nobody --regid=nogroup --clear-groups dlcpctl status")
    assert refused.returncode != 0 and "may not connect" in refused.stdout


@contextmanager
def instance(machine: Machine, name: str, more: str = "") -> Iterator[str]:
    """Another daemon, of the template unit, with `more` in its configuration; its socket."""
    unit = f"dlcpd@{name}"
    machine.run(
        f"(cat /etc/dlcpd/dlcpd.toml; echo '{more}') >/etc/dlcpd/{name}.toml; "
        f"systemctl start {unit}.service"
    )
    try:
        yield f"/run/dlcpd/{name}.sock"
    finally:
        machine.run(f"systemctl stop {unit}.service {unit}.socket")


def change(machine: Machine, unit: str, *lines: str) -> None:
    """Have a drop-in for a service, with these lines; without any, none."""
    file = f"/run/systemd/system/{unit}.d/test.conf"
    text = "\n".join(["[Service]", *lines])
    machine.run(f"mkdir -p $(dirname {file}) && echo '{text}' >{file} && systemctl daemon-reload")


ALLOWED = """
[network]
engine_cpus = ["0"]
[ledger]
directory = "/var/lib/dlcpd/b/ledger"
"""


@pytest.mark.check(4, "a second daemon, of the template unit: a job over UDP, CPUs, a ledger")
def test_template(machine: Machine) -> None:
    with instance(machine, "b", ALLOWED) as second, Job(machine, SOCKET, second) as ranks:
        train(ranks)
        status = machine.run(f"dlcpctl status --socket {second}")
        control = machine.run("systemctl show dlcpd@b --property MainPID --value")
        engine = f"/proc/$(pgrep --parent {control})/status"
        assert machine.run(f"grep Cpus_allowed_list {engine}").split()[1] == "0"
        assert machine.run("ls /var/lib/dlcpd/b/ledger")
    assert "1 sessions" in status and "data_path compiled" in status


@pytest.mark.check(5, "a restart loses no connect: who comes meanwhile is served afterwards")
def test_restart(machine: Machine, measured: Measured) -> None:
    clients = subprocess.Popen(
        machine.command(PYTHON, "-I", "/checks/connecting.py", SOCKET, user="trainer"),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    with clients:
        assert clients.stdout and clients.stdout.readline() == "greeted\n"
        machine.run("systemctl restart dlcpd")
        said = clients.stdout.read().strip()
    assert clients.returncode == 0, said
    measured(f"{said} connections, one after another, none refused")


@pytest.mark.check(6, "a daemon that was stopped is started by who connects")
def test_activation(machine: Machine) -> None:
    machine.run("systemctl stop dlcpd.service && ! systemctl is-active dlcpd.service")
    with Job(machine) as ranks:
        train(ranks)
    machine.run("systemctl is-active dlcpd.service")


@pytest.mark.check(7, "SIGTERM drains: an operation that runs ends with its result")
def test_drain(machine: Machine) -> None:
    # 1 MiB at 1 Mb/s take 8 s. The unit allows 1 for a stop, the daemon asks for drain_timeout.
    slow = instance(machine, "slow", "drain_timeout = 60.0\n[network]\nrate_limit_bps = 1e6")
    change(machine, "dlcpd@slow.service", "TimeoutStopSec=1")
    with slow as socket, Job(machine, SOCKET, socket) as ranks:
        for rank in ranks:
            rank.step()
        for daemon in (SOCKET, socket):
            machine.until(
                f"dlcpctl status --socket {daemon} --json - | grep '\"open\": 1'",
                "the operation is open",
            )
        machine.run("systemctl stop dlcpd@slow.service")
        assert [rank.says() for rank in ranks] == ["sum 3 3", "sum 3 3"]
        ranks[1].step()
        assert ranks[1].says().startswith("daemon_lost: ")
    assert machine.run("systemctl show dlcpd@slow --property Result --value") == "success"


@pytest.mark.check(8, "a crash in mid-training is a named error, and the next job works")
def test_crash(machine: Machine, measured: Measured) -> None:
    pid = main_pid(machine)
    with Job(machine) as ranks:
        train(ranks)
        ranks[0].step()
        machine.until("dlcpctl status --json - | grep -q '\"open\": 1'", "an operation is open")
        machine.run(f"kill -KILL {pid}")
        said = ranks[0].says()
    assert said.startswith("daemon_lost: "), said
    measured(said)
    with Job(machine) as ranks:
        train(ranks)
    assert main_pid(machine) not in (pid, "0")


@pytest.fixture(scope="module")
def watched(machine: Machine) -> Iterator[None]:
    """A watchdog that does not wait for 60 s."""
    change(machine, "dlcpd.service", "WatchdogSec=3")
    machine.run("systemctl restart dlcpd.service")
    yield
    change(machine, "dlcpd.service")
    machine.run("systemctl stop dlcpd.service")


@pytest.mark.check(9, "the watchdog replaces a daemon that hangs, and one whose engine does")
@pytest.mark.parametrize("stopped", [MAIN, f"$(pgrep --parent {MAIN})"], ids=["control", "engine"])
@pytest.mark.usefixtures("watched")
def test_watchdog(machine: Machine, stopped: str) -> None:
    pid = main_pid(machine)
    machine.run(f"kill -STOP {stopped}")
    machine.until(
        f"journalctl --unit dlcpd _PID=1 + _TRANSPORT=journal | "
        f"grep -F 'Killing process {pid} (dlcpd) with signal SIGABRT'",
        "it is killed",
    )
    machine.until(f"systemctl is-active dlcpd && [ {MAIN} != {pid} ]", "a new one serves")
    machine.run("dlcpctl status")


NEXT = "/opt/next"


@pytest.fixture
def next_version(machine: Machine) -> Iterator[None]:
    """What dlcpd@next.service starts speaks another protocol with peers."""
    machine.run(
        f"cp -a /opt/dlcpd {NEXT} && sed -i s:/opt/dlcpd:{NEXT}: {NEXT}/bin/dlcpd && "
        f"cd {NEXT}/lib/python3*/site-packages/dlcpd/daemon/peers && "
        f"sed -Ei '/^(PEER_VERSION|OLDEST_PEER)/s/= .*/= 99/' peer_messages.py && rm -r __pycache__"
    )
    start = f"ExecStart={NEXT}/bin/dlcpd --config /etc/dlcpd/next.toml"
    change(machine, "dlcpd@next.service", "ExecStart=", start)
    yield
    change(machine, "dlcpd@next.service")
    machine.run(f"rm -r {NEXT}")


@pytest.mark.check(14, "two versions on two hosts refuse each other by name")
@pytest.mark.usefixtures("next_version")
def test_two_versions(machine: Machine, measured: Measured) -> None:
    with instance(machine, "next") as socket:
        job = Job(machine, SOCKET, socket)
        said = [rank.says() for rank in job.ranks]
        job.end()
    measured(said[0])
    for text in said:
        assert text.startswith("ranks_disagree: ") and "install the same dlcpd on both" in text


@pytest.mark.check(10, "a reload admits others at once, and says what waits for a restart")
def test_reload(machine: Machine) -> None:
    file = "/etc/dlcpd/dlcpd.toml"
    pid = main_pid(machine)
    machine.run(
        f"cp {file} /run/before; printf 'log_level = \"debug\"\\nmax_sessions = 7\\n' >>{file}"
    )
    try:
        machine.run("systemctl reload dlcpd")
        said = machine.until("journalctl --unit dlcpd | grep -F reload_incomplete", "it reloads")
    finally:
        machine.run(f"mv /run/before {file}; chmod 644 {file}")
    assert "keys=daemon.max_sessions" in said
    assert "changed=daemon.log_level" in machine.run(
        "journalctl --unit dlcpd | grep event=reloaded"
    )
    warnings = machine.run("journalctl --unit dlcpd --priority warning")
    assert "reload_incomplete" in warnings and "event=reloaded" not in warnings
    assert main_pid(machine) == pid


@pytest.mark.check(27, "lines of the journal have fields: event, job, rank, peer, message id")
def test_journal_fields(machine: Machine, measured: Measured) -> None:
    with instance(machine, "j") as socket, Job(machine, SOCKET, socket) as ranks:
        train(ranks)
    text = machine.until(
        "journalctl --unit dlcpd -o json DLCPD_EVENT=joined | tail -1 | grep .", "it is there"
    )
    entry = json.loads(text)
    assert entry["SYSLOG_IDENTIFIER"] == "dlcpd" and entry["PRIORITY"] == "6"
    assert entry["_TRANSPORT"] == "journal" and entry["_SYSTEMD_UNIT"] == "dlcpd.service"
    assert entry["DLCPD_RANK"] == "0" and entry["DLCPD_JOB"]
    assert "event=joined" in entry["MESSAGE"]
    job, ready = entry["DLCPD_JOB"], MESSAGE_IDS["ready"]
    found = machine.run(f"journalctl -o cat DLCPD_JOB='{job}' | wc -l")
    assert int(found) >= 2
    starts = machine.run(f"journalctl --unit dlcpd -o cat MESSAGE_ID={ready} | grep -c .")
    measured(f"{starts} starts by MESSAGE_ID")


@pytest.mark.check(28, "root makes an identity that the service's user reads")
def test_identity(machine: Machine) -> None:
    try:
        said = machine.run("dlcpctl keys new --host alpha")
        assert "of user dlcpd" in said
        owned = machine.run("stat -c '%U %a' /etc/dlcpd/keys/identity.toml")
        assert owned == "dlcpd 600"
        assert 'host = "alpha"' in machine.run("dlcpctl keys show")
        machine.run("systemctl restart dlcpd")
        assert "identity=/etc/dlcpd/keys/identity.toml" in machine.run(
            f"journalctl --unit dlcpd -o cat MESSAGE_ID={MESSAGE_IDS['ready']} | tail -1"
        )
    finally:
        machine.run("rm -f /etc/dlcpd/keys/identity.toml; systemctl restart dlcpd")


FILE = "/etc/dlcpd/dlcpd.toml"


@contextmanager
def wrong(machine: Machine) -> Iterator[None]:
    """A configuration with an unknown key; the one of before follows."""
    machine.run(f"cp -p {FILE} /run/right; printf '\\n[daemon.nonsense]\\n' >>{FILE}")
    try:
        yield
    finally:
        machine.run(f"mv /run/right {FILE}")


@pytest.mark.check(35, "a daemon that fails again and again is started again, and keeps its socket")
def test_failures_in_a_row(machine: Machine, measured: Measured) -> None:
    for _ in range(6):  # systemd's default limit is 5 in 10 s
        pid = main_pid(machine)
        machine.run(f"kill -KILL {pid}")
        machine.until(f"[ {MAIN} != {pid} ] && [ {MAIN} != 0 ]", "another one starts")
    machine.run("systemctl is-active dlcpd.socket")
    machine.until("dlcpctl health", "it serves")
    measured(machine.run("systemctl show dlcpd --property NRestarts"))


@pytest.mark.check(36, "a wrong configuration and a look at it: a mended file is enough")
def test_wrong_configuration(machine: Machine) -> None:
    with wrong(machine):
        refused = machine.tried("systemctl restart dlcpd")
        assert refused.returncode != 0
        machine.tried("timeout 3 dlcpctl status")  # systemd starts the daemon for it
        machine.until("[ $(systemctl show dlcpd --property NRestarts --value) -ge 6 ]", "it tries")
        machine.run("systemctl is-active dlcpd.socket")
    machine.until("systemctl is-active dlcpd && dlcpctl health", "it serves again")


@pytest.mark.check(37, "a reload with a wrong configuration fails, says why, and changes nothing")
def test_wrong_reload(machine: Machine) -> None:
    pid = main_pid(machine)
    with wrong(machine):
        assert machine.tried("systemctl reload dlcpd").returncode != 0
        named = f"dlcpctl: {FILE}: unknown key nonsense in [daemon]"
        machine.until(f"journalctl --unit dlcpd -o cat | grep -F '{named}'", "the log has it")
    assert main_pid(machine) == pid
    machine.run("systemctl is-active dlcpd && dlcpctl health")


@pytest.mark.check(38, "a metrics port that something else has does not keep the daemon from jobs")
def test_taken_metrics_port(machine: Machine) -> None:
    holder = "import socket, time; s = socket.create_server(('127.0.0.1', 9464)); time.sleep(600)"
    machine.run(f'systemd-run --unit holder {PYTHON} -c "{holder}"')
    try:
        machine.until("ss -lnt | grep -q 127.0.0.1:9464", "the port is taken")
        with instance(machine, "m", '[metrics]\nlisten = "127.0.0.1:9464"') as socket:
            with Job(machine, socket, socket) as ranks:
                train(ranks)
            assert "METRICS: [metrics] listen" in machine.run(f"dlcpctl status --socket {socket}")
    finally:
        machine.run("systemctl stop holder")


@pytest.mark.check(42, "a session socket that is gone is said, and a restart makes it again")
def test_socket_gone(machine: Machine) -> None:
    with Job(machine) as ranks:
        machine.run(f"rm {SOCKET}")
        machine.until("journalctl --unit dlcpd | grep -F event=socket_gone", "it is said")
        train(ranks)
    machine.run("systemctl restart dlcpd.socket dlcpd.service && dlcpctl health --ready")
