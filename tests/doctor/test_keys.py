"""Which hosts may be peers, as doctor sees it."""

import os
from pathlib import Path
from typing import Any

import pytest

from dlcpd.daemon.config.file import parse
from dlcpd.daemon.config.tables import AUTHORISED, IDENTITY, SecurityTable
from dlcpd.doctor import keys
from dlcpd.doctor.keys import PeerKeys
from dlcpd.doctor.rows import Verdict
from tests.daemon.keys_kit import authorise, host_with_keys, security


@pytest.mark.parametrize(
    ("found", "loopback", "verdict", "says"),
    [
        (PeerKeys("/k", 3), False, Verdict.PASS, "3 hosts authorised by /k"),
        (PeerKeys(), True, Verdict.PASS, "on loopback only"),
        (PeerKeys(), False, Verdict.WARN, "any key that a job names"),
        (PeerKeys("/k", problem="a.toml: is no TOML"), True, Verdict.FAIL, "a.toml: is no TOML"),
        (
            PeerKeys("/k", hidden="/k/identity.toml"),
            False,
            Verdict.PASS,
            "only the user of the daemon",
        ),
    ],
    ids=str,
)
def test_keys(found: PeerKeys, loopback: bool, verdict: Verdict, says: str) -> None:
    row = keys.judge_keys(found, loopback=loopback)
    assert row.verdict is verdict and says in row.found


def test_files_are_read_as_the_daemon_would(tmp_path: Path) -> None:
    alpha = host_with_keys(tmp_path / "a", "alpha")
    authorise(tmp_path / "a", alpha, host_with_keys(tmp_path / "b", "beta"))
    table = parse(security(tmp_path / "a"), "x").security
    assert keys.look_at_keys(table, None) == PeerKeys(str(tmp_path / "a" / AUTHORISED), 2)
    (tmp_path / "a" / AUTHORISED / "beta.toml").write_text("?")
    assert "beta.toml" in keys.look_at_keys(table, None).problem


def test_an_identity_of_another_user_is_no_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host_with_keys(tmp_path, "alpha")
    table = parse(security(tmp_path), "x").security
    monkeypatch.setattr("os.access", lambda *_: False)  # root may read everything
    assert keys.look_at_keys(table, None).hidden == str(tmp_path / IDENTITY)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file away")
def test_root_does_not_take_the_daemons_file_for_its_own(tmp_path: Path) -> None:
    host_with_keys(tmp_path, "alpha")
    os.chown(tmp_path / IDENTITY, 4711, 4711)
    table = parse(security(tmp_path), "x").security
    assert keys.look_at_keys(table, None).hidden == str(tmp_path / IDENTITY)


def test_a_running_daemon_knows_best() -> None:
    known: dict[str, Any] = {"authorised": "/k", "hosts": 5, "problems": ["x", "y"]}
    assert keys.look_at_keys(SecurityTable("", ""), {"security": known}) == PeerKeys("/k", 5, "x")
