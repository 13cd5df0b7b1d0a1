"""A running daemon's settings are compared with a file, whatever "auto" means to this process."""

import signal
import threading
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from msgspec import json

from dlcpd.ctl.main import main as dlcpctl
from dlcpd.daemon.config.effective import resolved
from dlcpd.daemon.config.file import parse
from dlcpd.daemon.config.tables import Config
from dlcpd.doctor.daemon import judge_settings
from dlcpd.doctor.rows import Verdict
from dlcpd.inspection.settings import not_in_force
from tests.daemon.kit import Daemon, configuration, until

RUNNING = json.decode(json.encode(asdict(resolved(Config()))))


def test_what_is_in_force_does_not_differ() -> None:
    assert not_in_force(RUNNING, Config()) == []


@pytest.mark.parametrize(
    ("text", "key"),
    [("[network]\nentropy = 5", "network.entropy"),
     ('[network]\npaths = [{ address = "127.0.0.9" }]', "network.paths"),
     ("[daemon]\nmax_memory_bytes = 123456789", "daemon.max_memory_bytes")],
)  # fmt: skip
def test_a_setting_that_differs_is_named(text: str, key: str) -> None:
    [found] = not_in_force(RUNNING, parse(text, "x"))
    assert found.key == key and found.running != found.file


def test_auto_of_another_process_is_no_difference_and_of_the_network_is_one() -> None:
    other = resolved(Config())
    memory = replace(other.daemon, max_memory_bytes=1 << 30, control_address="127.0.0.9")
    running = json.decode(json.encode(asdict(replace(other, daemon=memory))))
    assert [one.key for one in not_in_force(running, Config())] == ["daemon.control_address"]


def test_doctor_warns_of_settings_that_are_not_in_force() -> None:
    report = {"config": RUNNING, "pending": ["network.entropy"]}
    file = Path("/etc/x.toml")
    assert judge_settings(report, Config(), file).verdict is Verdict.PASS
    row = judge_settings(report, parse("[network]\nentropy = 5", "x"), file)
    assert row.verdict is Verdict.WARN and "network.entropy" in row.found
    assert "network.entropy" in judge_settings(report, Config(), None).found
    assert judge_settings(report | {"pending": []}, Config(), None).verdict is Verdict.PASS


def test_the_running_daemon_is_asked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = configuration(tmp_path)
    with Daemon(file) as daemon:
        at = ["--socket", str(daemon.socket)]
        file.write_text(file.read_text().replace("[network]", "[network]\nentropy = 5"))
        assert dlcpctl(["config", "diff", str(file), *at]) == 1
        assert "network.entropy = 5    # the daemon uses 1" in capsys.readouterr().out
        assert dlcpctl(["config", "show", "--running", *at]) == 0
        shown = parse(capsys.readouterr().out, "shown")
        assert shown.network.entropy == 1 and shown.daemon.host == "host-a"
        with daemon.client() as client:
            client.greet()
            assert client.status()["pending"] == []
            daemon.signal(signal.SIGHUP)
            daemon.wait_for("reload_incomplete")
            file.write_text(
                file.read_text()
                .replace("entropy = 5\n", "")
                .replace('log_level = "debug"', 'log_level = "info"')
            )
            threading.Timer(0.3, daemon.signal, [signal.SIGHUP]).start()
            assert dlcpctl(["config", "diff", str(file), "--wait", "60", *at]) == 0
            assert client.status()["pending"] == []
            file.write_text(file.read_text().replace("[network]", "[network]\nentropy = 5"))
            daemon.signal(signal.SIGHUP)
            until(lambda: client.status()["pending"], "the reload")
            assert client.status()["pending"] == ["network.entropy"]
        assert dlcpctl(["status", *at]) == 0
        assert "1 settings wait for a restart: network.entropy" in capsys.readouterr().out
        assert dlcpctl(["config", "show", "--running", str(file), *at]) == 2
