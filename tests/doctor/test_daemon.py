"""What is found of the daemon's own: version, configuration, data path, ports, a running one."""

import json
import socket
from pathlib import Path
from typing import Any

import pytest

from dlcpd import __version__
from dlcpd.contract.inquiries import Status
from dlcpd.contract.messages import Welcome
from dlcpd.ctl import main as command
from dlcpd.daemon.config.effective import resolved
from dlcpd.daemon.config.file import parse
from dlcpd.daemon.config.tables import Config
from dlcpd.doctor import daemon
from dlcpd.doctor.daemon import Running
from dlcpd.doctor.rows import Verdict
from tests.ctl.test_status import Answering

REPORT: dict[str, Any] = {
    "version": __version__,
    "engine": {},
    "sessions": [],
    "health": {"healthy": True, "ready": True, "text": ""},
}
SICK = {"healthy": False, "ready": False, "text": "silent for 31 s"}
DRAINING = {"healthy": True, "ready": False, "text": "draining"}


@pytest.mark.parametrize(
    ("found", "verdict", "says"),
    [
        (Running("/s"), Verdict.PASS, "start a private daemon"),
        (Running("/s", exists=True, problem="hung up"), Verdict.FAIL, "hung up"),
        (Running("/s", exists=True, refused=True, problem="no"), Verdict.FAIL, "no"),
        (Running("/s", REPORT), Verdict.PASS, "0 sessions"),
        (Running("/s", REPORT | {"version": "0.0.1"}), Verdict.WARN, "has version 0.0.1, and this"),
        (Running("/s", REPORT | {"engine": {"error": "silent"}}), Verdict.WARN, "slow: silent"),
        (Running("/s", REPORT | {"health": SICK}), Verdict.FAIL, "silent for 31 s"),
        (Running("/s", REPORT | {"health": DRAINING}), Verdict.WARN, "no new jobs: draining"),
    ],
    ids=str,
)
def test_a_running_daemon(found: Running, verdict: Verdict, says: str) -> None:
    row = daemon.judge_daemon(found)
    assert row.verdict is verdict and says in row.found


def test_a_daemon_is_asked(tmp_path: Path) -> None:
    welcome = Welcome(1, "alpha", "tcp://10.0.0.1:5000", "k" * 40)
    with Answering(tmp_path / "s", welcome, Status.of(REPORT)) as answering:
        assert daemon.look_at_daemon(answering.path).report == REPORT
    assert daemon.look_at_daemon(str(tmp_path / "absent")).exists is False
    assert daemon.look_at_daemon(answering.path).exists is True, "nobody listens there any more"


@pytest.mark.parametrize(("granted", "verdict"), [(100, Verdict.PASS), (99, Verdict.WARN)])
def test_buffers_of_a_running_daemon_are_its_own(granted: int, verdict: Verdict) -> None:
    features = {"receive_buffer": granted, "data_path": "numpy"}
    row = daemon.judge_granted({"features": features}, 100)
    assert row.verdict is verdict
    assert row.found.startswith(f"receive buffers of {granted} bytes; data path numpy")


@pytest.mark.parametrize(
    ("text", "verdict"),
    [
        ("", Verdict.PASS),
        ("[inject]\nloss = 0.01", Verdict.WARN),
        ('[daemon]\nallowed_users = ["nobody-has-this-name"]', Verdict.FAIL),
    ],
)
def test_a_configuration_may_not_mean_what_it_says(text: str, verdict: Verdict) -> None:
    assert daemon.judge_configuration(parse(text, "x"), None).verdict is verdict


@pytest.mark.parametrize(
    ("setting", "encryption", "says"),
    [("numpy", "none", "numpy, as the"), ("auto", "aes-256-gcm", "because data_encryption")],
)
def test_the_data_path(setting: str, encryption: str, says: str) -> None:
    row = daemon.judge_data_path(setting, encryption)
    assert row.verdict is Verdict.PASS and says in row.found


def test_without_a_compiled_part_there_is_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemon, "installed", lambda: None)
    monkeypatch.setenv("DLCPD_DATA_PATH", "numpy")
    assert daemon.judge_data_path("auto", "none").verdict is Verdict.WARN


def test_a_library_of_another_version_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLCPD_DATA_PATH", "/absent/library.so")
    assert daemon.judge_data_path("auto", "none").verdict is Verdict.FAIL


def configuration(udp: int, tcp: int) -> Config:
    return resolved(
        parse(
            f'[daemon]\ncontrol_address = "127.0.0.1"\ncontrol_port = {tcp}\n'
            f'[network]\npaths = [{{ address = "127.0.0.1", port = {udp} }}]',
            "x",
        )
    )


def test_a_port_that_another_process_has_fails() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as held:
        held.bind(("127.0.0.1", 0))
        config = configuration(held.getsockname()[1], 0)
        wanted = daemon.ports(config)
        taken = daemon.look_at_ports(wanted)
    assert taken == [wanted[1]]
    paths = config.network.paths
    assert daemon.judge_ports(wanted, taken, paths, running=False).verdict is Verdict.FAIL
    assert daemon.judge_ports(wanted, taken, paths, running=True).verdict is Verdict.PASS
    assert "TCP and UDP" in daemon.judge_ports(wanted, [], paths, running=False).found
    several = [("UDP", "10.0.0.1", port) for port in (7002, 7001, 7000)]
    said = daemon.judge_ports(several, [], paths, running=False).found
    assert said == "a firewall must allow UDP 10.0.0.1 ports 7000-7002"
    fixed = daemon.ports(configuration(7001, 7000))
    said = daemon.judge_ports(fixed, [], paths, running=False).found
    assert "TCP 127.0.0.1 port 7000, UDP 127.0.0.1 port 7001" in said


def test_the_command_looks_at_everything(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "dlcpd.toml"
    file.write_text('[network]\npaths = [{ address = "127.0.0.1" }]\n')
    line = ["doctor", "--config", str(file), "--socket", str(tmp_path / "absent"), "--json", "-"]
    assert command.main(line) == 0
    told = capsys.readouterr()
    rows = json.loads(told.out)
    assert len(rows) >= 15
    assert {row["verdict"] for row in rows} <= {"pass", "warn"}
    assert "0 fail" in told.err
    file.write_text('[network]\npaths = [{ address = "203.0.113.9" }]\n')
    assert command.main(line) == 1
    assert "no interface has 203.0.113.9" in capsys.readouterr().err
    file.write_text("[network]\npath = 1\n")
    assert command.main(line) == command.USAGE


def test_what_cannot_be_looked_at_is_a_row_and_no_end(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def denied() -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("dlcpd.doctor.interfaces.look_at_interfaces", denied)
    assert command.main(["doctor", "--socket", str(tmp_path / "absent")]) == 0
    said = capsys.readouterr().out
    assert "cannot be checked: [Errno 1] Operation not permitted" in said
    assert "clock" in said
