"""Cordon and drain: new jobs are refused by name, running ones go on, and restarts change
nothing."""

import errno
import os
import resource
import signal
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from msgspec.structs import replace

from dlcpd.contract.errors import NotPermitted
from dlcpd.contract.inquiries import CordonRequest, HealthRequest
from dlcpd.contract.messages import Joined
from dlcpd.ctl.main import main as dlcpctl
from dlcpd.daemon.condition import Condition
from dlcpd.daemon.cordon import Cordon
from dlcpd.daemon.state_file import state_file
from tests.daemon.kit import PATIENCE, Daemon, configuration, join_all, joins

ON = CordonRequest(on=True, kept=True, why="new\ncables")
OFF = CordonRequest(on=False, kept=True, why="")


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    with Daemon(configuration(tmp_path)) as made:
        yield made


def test_a_cordon_refuses_new_jobs_by_name_and_lets_running_ones_grow(daemon: Daemon) -> None:
    with daemon.client() as first, daemon.client() as second, daemon.client() as other:
        one, two = joins("running", [first.greet(), second.greet()])
        first.send(one)
        daemon.wait_for("joining")
        assert dlcpctl(["cordon", "--socket", str(daemon.socket), "--why", "new cables"]) == 0
        second.send(two)
        for client in (first, second):
            client.expect(Joined)
        [join] = joins("another", [other.greet()])
        other.send(join)
        text = other.refused("daemon_unavailable")
        assert "dlcpd on host-a takes no new jobs: cordoned (new cables)" in text
        assert not other.health().ready and other.health().healthy
        assert dlcpctl(["uncordon", "--socket", str(daemon.socket)]) == 0
        assert other.health().ready
        other.send(join)
        other.expect(Joined)


def test_a_cordon_is_kept_over_a_restart_and_one_for_once_is_not(tmp_path: Path) -> None:
    for words, kept in (["--why", "new cables"], True), (["--once"], False):
        with Daemon(configuration(tmp_path)) as daemon:
            assert dlcpctl(["cordon", "--socket", str(daemon.socket), *words]) == 0
            daemon.signal(signal.SIGTERM)
            assert daemon.wait() == 0
        with Daemon(configuration(tmp_path)) as daemon, daemon.client() as client:
            health = client.health()
            assert health.ready is not kept
            assert health.text == ("cordoned (new cables)" if kept else "")
            assert dlcpctl(["uncordon", "--socket", str(daemon.socket)]) == 0
    assert not [file for file in tmp_path.iterdir() if "cordoned" in file.name]


def test_a_drain_waits_for_the_running_jobs_and_ends_none(
    daemon: Daemon, capsys: pytest.CaptureFixture[str]
) -> None:
    socket = str(daemon.socket)
    with daemon.client() as one, daemon.client() as two:
        join_all([one, two], "train")
        assert dlcpctl(["drain", "--socket", socket, "--wait", "1"]) == 1
        said = capsys.readouterr().out
        assert "still running: train (2 ranks)" in said
        assert "2 sessions are left after 1 s; they go on" in said
        assert len(one.status()["sessions"]) == 2
        for client in (one, two):
            client.emit("SessionDelivered")

        def leave() -> None:
            one.close()
            two.close()

        leaving = threading.Timer(0.1, leave)
        leaving.start()
        assert dlcpctl(["drain", "--socket", socket]) == 0
        leaving.join(PATIENCE)
    assert "no session is left" in capsys.readouterr().out
    assert daemon.process.poll() is None


def test_operators_questions_come_after_hello_and_are_no_news(daemon: Daemon) -> None:
    with daemon.client() as client:
        for request in (HealthRequest(), ON):
            client.send(request)
            assert "comes after Hello" in client.refused("bad_message")
        assert client.health().ready
    assert dlcpctl(["health", "--ready", "--socket", str(daemon.socket)]) == 0
    assert daemon.wait_for("client_left")["level"] == "debug"


def test_health_is_an_exit_code(daemon: Daemon, capsys: pytest.CaptureFixture[str]) -> None:
    at = ["--socket", str(daemon.socket)]
    assert dlcpctl(["cordon", *at]) == 0
    assert dlcpctl(["health", *at]) == 0
    assert dlcpctl(["health", "--ready", *at]) == 1
    assert "healthy, not ready: cordoned" in capsys.readouterr().out
    assert dlcpctl(["health", "--socket", f"{daemon.socket}.absent"]) == 1


# --- the file --------------------------------------------------------------------------------


def test_the_file_holds_one_line_and_is_gone_afterwards(tmp_path: Path) -> None:
    condition, file = Condition(0.0), tmp_path / "cordoned"
    cordon = Cordon(condition, file)
    cordon.change(ON, os.getuid())
    assert file.read_text().count("\n") == 1
    again = Condition(0.0)
    Cordon(again, file)
    assert again.cordoned == condition.cordoned != ""
    cordon.change(OFF, 0)
    cordon.change(OFF, 0)
    assert not file.exists() and not condition.cordoned


def test_others_than_root_and_the_own_user_are_refused(tmp_path: Path) -> None:
    condition, file = Condition(0.0), tmp_path / "cordoned"
    with pytest.raises(NotPermitted, match="user id 12345 may not cordon"):
        Cordon(condition, file).change(ON, 12345)
    assert not condition.cordoned and not file.exists()


def test_a_private_daemon_refuses() -> None:
    with pytest.raises(NotPermitted, match="private daemon"):
        Cordon(Condition(0.0), None).change(ON, 0)


def test_what_cannot_be_kept_changes_nothing_and_once_needs_no_file(tmp_path: Path) -> None:
    condition = Condition(0.0)
    cordon = Cordon(condition, tmp_path / "absent" / "cordoned")
    with pytest.raises(NotPermitted, match=r"No such file or directory.*--once needs none"):
        cordon.change(ON, 0)
    assert not condition.cordoned
    cordon.change(replace(ON, kept=False), 0)
    assert condition.cordoned.startswith("cordoned (new")


def test_a_read_only_disk_keeps_no_cordon_that_it_does_not_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object, **__: object) -> None:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))  # also where there is no file

    condition, file = Condition(0.0), tmp_path / "cordoned"
    cordon = Cordon(condition, file)
    with monkeypatch.context() as read_only:
        read_only.setattr(Path, "unlink", refused)
        cordon.change(replace(ON, kept=False), 0)
        cordon.change(OFF, 0)
        assert not condition.cordoned
    cordon.change(ON, 0)
    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(NotPermitted, match=r"Read-only file system.*--once needs none"):
        cordon.change(OFF, 0)
    cordon.change(replace(OFF, kept=False), 0)
    assert (condition.cordoned, file.exists()) == ("", True)


def test_a_full_disk_leaves_the_file_as_it_was(tmp_path: Path) -> None:
    """Else an empty file would cordon the next daemon."""
    file, condition = tmp_path / "cordoned", Condition(0.0)
    cordon, limit = Cordon(condition, file), resource.getrlimit(resource.RLIMIT_FSIZE)
    for before in (None, "new\\ncables\n"):
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limit[1]))  # as EFBIG: Python ignores SIGXFSZ
        try:
            with pytest.raises(NotPermitted, match="File too large: a restart would undo this"):
                cordon.change(replace(ON, why="other"), 0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        assert (file.read_text() if file.exists() else None) == before
        assert [each.name for each in tmp_path.iterdir()] == (
            [] if before is None else ["cordoned"]
        )
        cordon.change(ON, 0)


@pytest.mark.parametrize("name", ["cordoned", "cordoned.new"])
def test_a_link_is_not_followed(name: str, tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("precious")
    (tmp_path / name).symlink_to(tmp_path / "mine")
    with suppress(NotPermitted):
        Cordon(Condition(0.0), tmp_path / "cordoned").change(ON, 0)
    assert (tmp_path / "mine").read_text() == "precious"


def test_a_file_that_cannot_be_read_is_a_cordon(tmp_path: Path) -> None:
    (tmp_path / "cordoned").mkdir()
    condition = Condition(0.0)
    Cordon(condition, tmp_path / "cordoned")
    assert "Is a directory" in condition.cordoned


@pytest.mark.parametrize(
    ("folders", "file"),
    [("/var/lib/dlcpd", "/var/lib/dlcpd/cordoned"), ("/a:/b", "/a/cordoned"),
     ("", "/run/dlcpd/x.sock.cordoned")],
)  # fmt: skip
def test_the_state_folder_of_the_manager_goes_first(folders: str, file: str) -> None:
    assert str(state_file(folders, "/run/dlcpd/x.sock", "cordoned")) == file
    assert state_file(folders, None, "cordoned") is None
