"""`dlcpctl bugreport`: what it holds, what it says that it lacks, and that no secret is in it."""

import gzip
import json
import os
import shutil
import stat
import subprocess
import sys
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import bcrypt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcpd.ctl.main import main
from dlcpd.ctl.outside import MOST_TEXT, CannotRead, last_bytes, said_by
from dlcpd.ctl.redaction import REMOVED, Redaction, names_secret
from dlcpd.daemon.peers.key_files import Identity
from dlcpd.daemon.peers.keys import KeyPair
from tests.daemon.kit import PATIENCE, Daemon, configuration, environment, join_all

HEX: Final = "c0ffee" * 11
PLANTED: Final = {  # by where it stands in the log; each is nowhere else
    "value": 'level=info event=x password=planted-password-1 text="ok"',
    "quoted": 'level=info secret="planted with spaces 2" text="a token: planted-token-3"',
    "json": '{"event": "x", "api_key": "planted-key-4", "inner": "{\\"token\\": \\"planted-5\\"}"}',
    "header": "GET /metrics Authorization: Basic cGxhbnRlZC02Og==",
    "bearer": "sent Bearer planted.token.7",
    "url": "store at redis://user:planted-8@host:6379/0",
    "option": "started with --page-token planted-9 --secret=planted-10",
    "known form": "used ghp_planted11planted11",
    "hexadecimal": f"proof {HEX}",
    "pem": "-----BEGIN PRIVATE KEY-----\nplanted12\nplanted13\n-----END PRIVATE KEY-----",
    "names": "DLCPD_JOB_SECRET=planted-14 HF_TOKEN=planted-15 key: planted-16",
}  # fmt: skip
NAMED: Final = ("planted", "cGxhbnRlZC02", "c0ffeec0ffee")
ENVIRONMENT: Final = {
    "DLCPD_JOB_SECRET": 'hunter"two\\17',
    "MY_TOKEN": "of-the-environment-18",
    "DLCPD_WARN_AFTER": "9.5",
}


def parts(archive: Path) -> dict[str, str]:
    with tarfile.open(archive) as opened:
        found = {}
        for entry in opened:
            assert entry.isreg()
            file = opened.extractfile(entry)
            assert file is not None
            found[entry.name.removeprefix("dlcpd-bugreport/")] = file.read().decode()
    return found


def all_bytes(archive: Path) -> str:
    return gzip.decompress(archive.read_bytes()).decode(errors="replace")


@pytest.fixture
def planted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Path]:
    """Files with secrets in them, and variables."""
    pair = KeyPair.new()
    identity, secret, web = (tmp_path / name for name in ("identity.toml", "job-secret", "web.yml"))
    identity.write_text(Identity("host-a", pair).text())
    hashed = bcrypt.hashpw(b"planted-19", bcrypt.gensalt(4)).decode()
    secret.write_text("of-the-file-20\n")
    web.write_text(f"basic_auth_users: {{prometheus: '{hashed}'}}\n")
    for file in (identity, secret, web):
        file.chmod(0o600)
    for name, value in ENVIRONMENT.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DLCPD_JOB_SECRET_FILE", str(secret))
    log = tmp_path / "log"
    private = identity.read_text().split('"')[3]
    free = ['as hunter"two\\17 says', "of-the-environment-18", "of-the-file-20", private, hashed]
    log.write_text("\n".join([*PLANTED.values(), *free, json.dumps(free), "the last line"]))
    return {"identity": identity, "log": log, "web": web, "secret": secret}


def secrets_of(planted: Mapping[str, Path]) -> list[str]:
    private = planted["identity"].read_text().split('"')[3]
    hashed = planted["web"].read_text().split("'")[1]
    return [*NAMED, "hunter", "of-the-environment-18", "of-the-file-20", private, hashed]


def test_no_secret_of_any_source_is_in_the_archive_of_a_running_daemon(
    tmp_path: Path,
    planted: Mapping[str, Path],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("dlcpd.ctl.bugreport.TRACE_SECONDS", 0.0)  # no step is submitted
    more = (
        f'[security]\nidentity = "{planted["identity"]}"\n'
        f'[metrics]\nlisten = "127.0.0.1:0"\nweb_config = "{planted["web"]}"\n'
    )
    config, archive = configuration(tmp_path, more=more), tmp_path / "report.tar.gz"
    with Daemon(config, mode="") as daemon, daemon.client() as client:
        join_all([client], "password=planted-21")
        words = ["--socket", str(daemon.socket), "--log", str(planted["log"]), "--steps", "1"]
        assert main(["bugreport", *words, "-o", str(archive)]) == 0
    found, everything = parts(archive), all_bytes(archive)
    assert [secret for secret in secrets_of(planted) if secret in everything] == []
    assert {"alarms.txt", "status.txt", "doctor.txt", "versions.txt"} <= set(found)
    status = json.loads(found["status.json"])
    assert status["host"] == "host-a"
    assert [session["job"] for session in status["sessions"]] == [f"password={REMOVED}"]
    assert f'identity = "{planted["identity"]}"' in found["running-configuration.toml"]
    assert json.loads(found["trace.json"])["displayTimeUnit"] == "ms"
    assert found["log.txt"].endswith("the last line")
    assert 'DLCPD_WARN_AFTER="9.5"\n' in found["environment.txt"]
    assert f"DLCPD_JOB_SECRET={REMOVED}\n" in found["environment.txt"]
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600
    assert "without units.txt" in capsys.readouterr().out


def test_without_daemon_and_with_a_wrong_file_it_says_what_it_lacks(
    tmp_path: Path, planted: Mapping[str, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    wrong, archive = tmp_path / "wrong.toml", tmp_path / "report.tar.gz"
    wrong.write_text('[daemon]\npassword = "planted-22"\n"planted-23=token" = 1\n')
    link = tmp_path / "link"
    link.symlink_to(planted["log"])
    archive.write_text("older")
    archive.chmod(0o644)
    words = ["--socket", str(tmp_path / "absent"), "--config", str(wrong), "--log", str(link)]
    assert main(["bugreport", *words, "-o", str(archive), "--json", str(tmp_path / "json")]) == 0
    document = json.loads((tmp_path / "json").read_text())
    assert {"status.json", "configuration.toml", "log.txt"} <= set(document["missing"])
    assert "BadConfig" in document["missing"]["configuration.toml"]
    said = capsys.readouterr().out
    assert "without status.json: DaemonUnavailable" in said
    found = parts(archive)
    assert "without log.txt: OSError" in found["contents.txt"]
    assert "version " in found["doctor.txt"]
    assert stat.S_IMODE(archive.stat().st_mode) == 0o600


@pytest.mark.skipif(shutil.which("setpriv") is None, reason="setpriv (util-linux) is missing")
def test_without_rights_each_part_says_so_and_the_others_are_there(tmp_path: Path) -> None:
    config, archive, log = configuration(tmp_path), tmp_path / "report.tar.gz", tmp_path / "log"
    log.write_text("planted-24")
    with Daemon(config) as daemon:
        for file in (log, daemon.socket):
            file.chmod(0)
        words = ["--socket", str(daemon.socket), "--log", str(log), "-o", str(archive)]
        none = "--bounding-set=-dac_override,-dac_read_search"  # else root may read everything
        done = subprocess.run(
            ["setpriv", none, sys.executable, "-m", "dlcpd.ctl.main", "bugreport", *words],
            capture_output=True,
            text=True,
            check=False,
            env=environment(),
            timeout=PATIENCE,
        )
    assert done.returncode == 0, done.stderr
    said = [line for line in done.stdout.splitlines() if line.startswith("without ")]
    assert f"without status.json: NotPermitted: {daemon.socket}: user id {os.getuid()} " in "".join(
        said
    )
    assert [line for line in said if line.startswith("without log.txt: PermissionError: ")]
    assert "may not connect" in parts(archive)["contents.txt"]
    assert "commit" in parts(archive)["versions.txt"]


def test_an_archive_is_not_written_through_a_link(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, link = tmp_path / "target", tmp_path / "report.tar.gz"
    target.write_text("kept")
    link.symlink_to(target)
    assert main(["bugreport", "-o", str(link)]) == 2
    assert "is a link" in capsys.readouterr().err
    assert target.read_text() == "kept"


def test_the_end_of_a_long_log_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"first" + bytes(MOST_TEXT) + b"last")
    text = last_bytes(log)
    assert len(text) == MOST_TEXT
    assert text.endswith("last")


def test_commands_are_bounded_and_their_complaints_are_told() -> None:
    assert len(said_by("head", "-c", str(2 * MOST_TEXT), "/dev/zero")) == MOST_TEXT
    with pytest.raises(CannotRead, match="no-such-command: No such file"):
        said_by("no-such-command")
    with pytest.raises(CannotRead, match=r"ls says nothing: .*absent"):
        said_by("ls", "/absent")


@pytest.mark.parametrize("line", PLANTED.values(), ids=PLANTED)
def test_each_form_of_a_secret_is_removed(line: str) -> None:
    cleaned = Redaction().text(line)
    assert not [name for name in NAMED if name in cleaned], cleaned
    assert REMOVED in cleaned


@pytest.mark.parametrize(
    "text",
    [
        "level=warning event=path_down session=\"rank 0 of job 'train' on host0\" peer=1 path=0",
        "commit 0123456789abcdef0123456789abcdef01234567; messages 11 and 10",
        "/opt/dlcpd/lib/python3.11/site-packages/dlcpd/daemon/config/tables.py:10",
        "fix: give all ranks the same DLCPD_JOB_SECRET, or authorise the keys of hosts",
        'unproved = "warn"\nnumber_of_tokenizers = 3\nTOKENIZERS_PARALLELISM=false',
    ],
)
def test_other_text_stays(text: str) -> None:
    assert Redaction().text(text) == text


def test_names_of_secrets() -> None:
    secret = ["DLCPD_JOB_SECRET", "HF_TOKEN", "AWS_SECRET_ACCESS_KEY", "password", "api-key", "key"]
    assert [name for name in secret if not names_secret(name)] == []
    other = ["TOKENIZERS_PARALLELISM", "keyboard", "DLCPD_SOCKET", "PWDX", "monkey"]
    assert [name for name in other if names_secret(name)] == []


@pytest.mark.parametrize("part", ["secret_", "-", "$1$", "key.", "--token", '"', "x://", "secret "])
def test_a_hostile_line_does_not_hold_it_up(part: str) -> None:
    """Ambiguous patterns take minutes for it, which is this test's timeout."""
    assert Redaction().text(part * 20_000 + "\nthe last line").endswith("the last line")


KNOWN: Final = st.text("abcXYZ0189_-/\"'\\\n=:\u00e9", min_size=6, max_size=40)  # none of REMOVED's


TEXT: Final = st.text(max_size=20)
DOCUMENT: Final = st.recursive(
    TEXT, lambda below: st.lists(below) | st.dictionaries(TEXT, below), max_leaves=9
)


@given(KNOWN, st.text(max_size=40), st.text(max_size=40))
def test_a_known_value_stands_nowhere(known: str, before: str, after: str) -> None:
    assert known not in Redaction([known]).text(f"{before} {known} {after}")


@given(DOCUMENT)
def test_a_document_stays_a_document(value: object) -> None:
    json.loads(json.dumps(Redaction(["planted"]).document(value)))
