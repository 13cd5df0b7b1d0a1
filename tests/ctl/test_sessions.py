"""Rows of `dlcpctl sessions`, `paths` and `top`, out of reports."""

import json
import os
import pty
import subprocess
import sys
import termios
from pathlib import Path
from typing import Any

import pytest

from dlcpd.cli.colour import by_alarm
from dlcpd.contract.errors import DaemonLost, TooMany
from dlcpd.contract.inquiries import Status
from dlcpd.ctl import main as command
from dlcpd.ctl import sessions, top
from dlcpd.ctl.keyboard import END, Keyboard
from dlcpd.ctl.top import KEYS, PATH_HEADER, Sample, View, frame, screen
from dlcpd.inspection.report import alarms
from tests.ctl.test_status import WELCOME, Answering
from tests.ctl.test_status import report as status_report
from tests.daemon.kit import PATIENCE, Daemon, configuration, environment

SPACE = {"sent": 1000, "lost": 20, "marked": 3, "rtt": 0.00025, "window": 64,
         "queue_delay": 0.0001, "bytes": 1_000_000}  # fmt: skip
PATH = {"up": True, "gray": False, "sent": 1000, "lost": 20, "rtt": 0.00025,
        "congestion_window": 64, "queue_delay": 0.0001, "classes": {"front": SPACE}}  # fmt: skip


def report(submitted: int = 17, **path: Any) -> dict[str, Any]:
    """One session, one peer, one path."""
    made = status_report()
    engine = made["engine"]["sessions"]["3"]
    engine |= {"submitted": submitted, "late": []}
    engine["totals"] = {"waived": submitted, "allowed": 2 * submitted, "used": 0.5}
    engine["peers"] = [{"rank": 1, "host": "beta", "queued": 4096, "paths": [PATH | path]}]
    return made


def as_maps(header: tuple[str, ...], rows: Any) -> list[dict[str, Any]]:
    return [dict(zip(header, row, strict=True)) for row in rows]


def test_a_session_is_a_row() -> None:
    [row] = as_maps(sessions.SESSION_HEADER, sessions.session_rows(report()))
    assert (row["job"], row["operations"], row["waived"]) == ("train", 17, 17)
    assert row["of bound(%)"] == 50.0
    assert row["waits for"] is None and row["broken"] is None


def test_who_is_waited_for_is_named() -> None:
    late = report()
    late["engine"]["sessions"]["3"]["late"] = [{"rank": 1, "host": "beta"}]
    [row] = as_maps(sessions.SESSION_HEADER, sessions.session_rows(late))
    assert row["waits for"] == "1:beta"


def test_an_engine_that_does_not_answer_leaves_gaps() -> None:
    silent = report() | {"engine": {"error": "the engine did not answer within 1 s"}}
    [row] = as_maps(sessions.SESSION_HEADER, sessions.session_rows(silent))
    assert row["operations"] is None and row["of bound(%)"] is None
    assert list(sessions.path_rows(silent)) == []
    assert "ENGINE: the engine did not answer within 1 s" in list(alarms(silent))


@pytest.mark.parametrize(("used", "count"), [(0.89, 0), (0.9, 1)])
def test_a_bound_that_is_nearly_used_up_is_an_alarm(used: float, count: int) -> None:
    pressed = report()
    pressed["engine"]["sessions"]["3"]["totals"]["used"] = used
    found = [line for line in alarms(pressed) if line.startswith("BOUND: train, rank 0")]
    assert len(found) == count


def test_a_report_that_was_cut_says_so() -> None:
    assert not [line for line in alarms(report()) if line.startswith("SHORT")]
    waiting = report() | {"pending": ["network.entropy"]}
    assert "SETTINGS: 1 wait for a restart: network.entropy" in list(alarms(waiting))
    cut = report()
    cut["engine"]["truncated"] = True
    cut["engine"]["sessions"]["3"]["alarms"] = {"paths_down": 7, "paths_gray": 0}
    assert [line for line in alarms(cut) if "SHORT: the" in line]
    assert "MORE: train, rank 0: 7 further paths down" in list(alarms(cut))


def test_a_bound_that_was_never_asked_for_is_not_used() -> None:
    exact = report()
    exact["engine"]["sessions"]["3"]["totals"] = {"waived": 0, "allowed": 0, "used": 0.0}
    [row] = as_maps(sessions.SESSION_HEADER, sessions.session_rows(exact))
    assert row["of bound(%)"] is None


def test_each_class_of_a_path_is_a_row() -> None:
    [row] = as_maps(sessions.PATH_HEADER, sessions.path_rows(report()))
    assert (row["class"], row["loss(%)"], row["marked"]) == ("front", 2.0, 3)
    assert (row["rtt(us)"], row["queue(us)"], row["is"]) == (250, 100, "up")
    [idle] = as_maps(sessions.PATH_HEADER, sessions.path_rows(report(classes={}, sent=0)))
    assert idle["class"] is None and idle["loss(%)"] is None


def between(**changes: Any) -> tuple[Sample, Sample]:
    """Two samples, two seconds apart; the path has changed meanwhile."""
    busier = {"front": SPACE | {"bytes": 2_000_000}}
    path = {"sent": 3000, "lost": 40, "classes": busier} | changes
    return Sample(report(27, **path), 12.0), Sample(report(17), 10.0)


def test_rates_are_those_between_two_samples() -> None:
    now, before = between()
    [session] = as_maps(top.SESSION_HEADER, top.session_rows(now, before))
    assert (session["op/s"], session["waived/s"]) == (5.0, 5.0)
    [path] = as_maps(top.PATH_HEADER, top.path_rows(now, before))
    assert (path["packets/s"], path["Mbit/s"], path["loss(%)"]) == (1000.0, 4.0, 1.0)
    assert path["queued"] == 4096


def test_what_began_anew_has_no_rate() -> None:
    now, before = between(sent=5)
    [path] = as_maps(top.PATH_HEADER, top.path_rows(now, before))
    assert path["packets/s"] is None
    young = Sample(before.report | {"engine": {"sessions": {}}}, 10.0)
    [session] = as_maps(top.SESSION_HEADER, top.session_rows(now, young))
    assert session["op/s"] is None


def test_a_frame_begins_with_what_is_wrong() -> None:
    now, before = between(gray=True)
    now.report["sessions"][0]["broken"] = "rank 1 on beta has not answered\x1b[2J"
    late = {"rank": 1, "host": "beta", "late": 7.2, "awaiting": "rank(s) 1 to submit"}
    now.report["engine"]["sessions"]["3"]["late"] = [late]
    lines = list(frame(now, before))
    assert lines[0] == "alpha: dlcpd 0.1.0, serving for 12 s, 1 sessions; the last 2.0 s"
    assert lines[1] == "BROKEN: train, rank 0: rank 1 on beta has not answered\\x1b[2J"
    assert lines[2].startswith("LATE: train, rank 0 waits for rank 1 on beta for 7.2 s: rank(s) 1")
    assert lines[3] == "PATH: train, rank 0: path 0 to rank 1 is gray"
    assert any(line.startswith("job") and "packets/s" in line for line in lines)


def test_a_screen_is_cut_to_the_terminal() -> None:
    drawn = screen(["a" * 100, "b", "c", "d"], (10, 3))
    assert drawn.count("\n") == 2
    assert "a" * 11 not in drawn
    assert "... and 2 " in drawn, "lines that do not fit are counted"
    assert "... and" not in screen(["a", "b", "c"], (10, 3))
    assert "\x1b[1;31mBROKEN: a\x1b[0m" in screen(["BROKEN: a, rank 0"], (9, 3), by_alarm)


@pytest.mark.parametrize(
    ("line", "key"), [("sessions", "operations"), ("paths", "class"), ("peers", "via")]
)
def test_tables_are_documents_as_well(
    line: str, key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Answering(tmp_path / "s", WELCOME, Status.of(report())) as daemon:
        assert command.main([line, "--socket", daemon.path, "--json", "-"]) == 0
    told = capsys.readouterr()
    [row] = json.loads(told.out)
    assert row["job"] == "train" and key in row
    assert "train" in told.err


def test_a_broken_session_is_exit_code_1(tmp_path: Path) -> None:
    broken = report()
    broken["sessions"][0]["broken"] = "rank 1 left"
    with Answering(tmp_path / "s", WELCOME, Status.of(broken)) as daemon:
        assert command.main(["sessions", "--socket", daemon.path]) == 1


def test_top_draws_for_people_and_documents_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    samples = iter(reversed(between()))
    monkeypatch.setattr(top, "_sample", lambda _: next(samples))
    monkeypatch.setattr("time.sleep", lambda _: None)
    assert command.main(["top", "--once", "--json", "-"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["paths"][0]["packets/s"] == 1000.0
    assert "packets/s" in told.err


def test_rows_of_a_job_or_host_and_columns_can_be_chosen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    numbers = iter(range(9))

    def said(*words: str) -> tuple[int, str]:
        with Answering(tmp_path / str(next(numbers)), WELCOME, Status.of(report())) as daemon:
            code = command.main([*words, "--socket", daemon.path])
        told = capsys.readouterr()
        return code, told.out + told.err

    assert said("peers", "--columns", "rank,rtt")[1].splitlines()[0].split() == ["rank", "rtt(us)"]
    assert "train" in said("paths", "--job", "train")[1]
    for line in ("peers --host nowhere", "paths --job bert"):
        code, text = said(*line.split())
        assert code == 0 and "train" not in text
    code, text = said("paths", "--columns", "rank,speed")
    assert code == command.USAGE and "--columns speed: the columns are job, rank, " in text


def test_top_shows_one_job_and_sorts_its_paths() -> None:
    rows = [["a", 1, "h", 0, "up", 5.0], ["b", 2, "h", 0, "up", None], ["a", 3, "g", 0, "up", 9.0]]
    assert [row[1] for row in View("a", "packets/s").paths(rows)] == [3, 1]
    assert [row[1] for row in View("", "packets/s").paths(rows)] == [3, 1, 2]
    assert [row[2] for row in View("", "host").paths(rows)] == ["g", "h", "h"]
    shown = report()
    view = View().after("j", shown).after("s", shown).after("x", shown)
    assert view == View("train", PATH_HEADER[0])
    assert view.after("j", shown).job == "" == View("gone").after("j", shown).job
    assert View("", PATH_HEADER[-1]).after("s", shown).sort == ""


def test_keys_of_a_terminal_change_top_and_end_it(tmp_path: Path) -> None:
    leader, follower = pty.openpty()
    before = termios.tcgetattr(leader)
    with Daemon(configuration(tmp_path)) as daemon:
        words = [sys.executable, "-m", "dlcpd.ctl.main", "top", "--interval", "3600"]
        started = subprocess.Popen(
            [*words, "--socket", str(daemon.socket)],
            stdin=follower,
            stdout=follower,
            env=environment(),
        )
        shown = b""
        for part, key in ((b"\x1b[?1049h", b"s"), (KEYS.encode(), b"q")):
            while part not in shown:
                shown += os.read(leader, 1 << 16)
            os.write(leader, key)
        assert started.wait(PATIENCE) == 0
    assert b"host-a: dlcpd" in shown
    assert termios.tcgetattr(leader) == before
    os.close(leader)
    os.close(follower)


def test_top_ends_with_ctrl_c_and_survives_a_daemon_that_does_not(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    samples = iter(reversed(between()))
    query = top._sample  # noqa: SLF001  # of a socket that nobody listens at

    refusals = iter([DaemonLost("dlcpd on alpha was stopped"), TooMany("others wait to connect")])

    def sample(_: str) -> Sample:
        if found := next(samples, None):
            return found
        if refusal := next(refusals, None):
            raise refusal
        return query(str(tmp_path / "absent"))

    naps = iter([None] * 4)

    def nap(_: float) -> None:
        if next(naps, "over") == "over":
            raise KeyboardInterrupt

    monkeypatch.setattr(top, "_sample", sample)
    monkeypatch.setattr("time.sleep", nap)
    assert command.main(["top"]) == 0
    said = capsys.readouterr().out
    for part in ("alpha: dlcpd", "alpha was stopped", "others wait", "no daemon answers"):
        assert part in said
    assert "\x1b" not in said, "no terminal"
    samples = iter(reversed(between()))
    assert command.main(["top", "--json", "-"]) == command.USAGE


def test_a_terminal_that_is_gone_is_the_end_and_keys_come_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    leader, follower = pty.openpty()
    with open(follower, closefd=True) as terminal:
        monkeypatch.setattr("sys.stdin", terminal)
        with Keyboard() as keyboard:
            os.write(leader, b"js")
            assert [keyboard.key(PATIENCE), keyboard.key(PATIENCE)] == ["j", "s"]
            assert keyboard.key(0.0) == ""
            os.close(leader)
            assert keyboard.key(PATIENCE) == END
