"""`dlcpctl keys`: what an operator types to make, show, authorise and revoke keys."""

import json
import os
import stat
from pathlib import Path

import pytest

from dlcpd.ctl import keys
from dlcpd.ctl import main as command
from dlcpd.daemon.config.tables import AUTHORISED, IDENTITY
from dlcpd.daemon.peers import key_files
from dlcpd.daemon.peers.key_files import read_identity, read_public

Capture = pytest.CaptureFixture[str]


def run(folder: Path, *words: str) -> int:
    return command.main(["keys", words[0], "--keys", str(folder), *words[1:]])


def shown(folder: Path, capsys: Capture, *more: str) -> str:
    capsys.readouterr()
    assert run(folder, "show", *more) == 0
    return capsys.readouterr().out


def made(folder: Path, host: str, capsys: Capture) -> Path:
    """A host's folder with an identity; the file that its `show` printed."""
    assert run(folder, "new", "--host", host) == 0
    file = folder / f"{host}.pub"
    file.write_text(shown(folder, capsys))
    return file


def test_two_hosts_authorise_each_other(tmp_path: Path, capsys: Capture) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    files = [made(a, "node-a", capsys), made(b, "node-b", capsys)]
    for folder in (a, b):
        assert run(folder, "authorise", *map(str, files)) == 0
        assert sorted(file.name for file in (folder / AUTHORISED).iterdir()) == [
            "node-a.toml",
            "node-b.toml",
        ]
    assert read_public(a / AUTHORISED / "node-b.toml") == read_identity(b / IDENTITY).public
    capsys.readouterr()
    assert run(a, "list") == 0
    rows = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in rows] == ["host", "node-a", "node-b"]
    assert "this host" in rows[1] and "this host" not in rows[2]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
def test_root_gives_the_identity_to_the_user_of_the_service(
    tmp_path: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keys, "KEYS", tmp_path / "etc")
    for user, owner in (("no-such-user", "root"), ("nobody", "nobody")):
        monkeypatch.setattr(key_files, "SERVICE_USER", user)
        file = tmp_path / "etc" / IDENTITY
        file.unlink(missing_ok=True)
        made(tmp_path / "etc", "a", capsys)
        assert (file.owner(), stat.S_IMODE(file.stat().st_mode)) == (owner, 0o600)
    made(tmp_path / "elsewhere", "a", capsys)
    assert (tmp_path / "elsewhere" / IDENTITY).owner() == "root"


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to give a file away")
def test_root_looks_at_the_identity_of_a_daemon_of_another_user(
    tmp_path: Path, capsys: Capture
) -> None:
    made(tmp_path, "a", capsys)
    os.chown(tmp_path / IDENTITY, 4711, 4711)
    assert shown(tmp_path, capsys).count('host = "a"') == 1
    assert run(tmp_path, "list") == 0
    (tmp_path / IDENTITY).chmod(0o644)
    assert run(tmp_path, "show") == 2
    assert "others may read it" in capsys.readouterr().err


def test_an_identity_is_never_written_over(tmp_path: Path, capsys: Capture) -> None:
    made(tmp_path, "a", capsys)
    before = (tmp_path / IDENTITY).read_text()
    assert run(tmp_path, "new") == command.USAGE
    assert "there is an identity already" in capsys.readouterr().err
    assert (tmp_path / IDENTITY).read_text() == before


def test_nothing_that_is_printed_is_secret(tmp_path: Path, capsys: Capture) -> None:
    assert run(tmp_path, "new", "--host", "a", "--json", str(tmp_path / "out.json")) == 0
    run(tmp_path, "show")
    run(tmp_path, "list")
    said = capsys.readouterr().out + (tmp_path / "out.json").read_text()
    secret = (tmp_path / IDENTITY).read_text().split('"')[-2]
    assert len(secret) == 40 and secret not in said
    assert json.loads((tmp_path / "out.json").read_text())["host"] == "a"


def test_keys_change_with_both_authorised_in_between(tmp_path: Path, capsys: Capture) -> None:
    old = made(tmp_path, "a", capsys)
    peer = tmp_path / "peer"
    assert run(peer, "authorise", str(old)) == 0
    following = tmp_path / "next.toml"
    assert run(tmp_path, "new", "--host", "a", "--identity", str(following)) == 0
    new = tmp_path / "new.pub"
    new.write_text(shown(tmp_path, capsys, "--identity", str(following)))
    assert run(peer, "authorise", str(new)) == 0
    file = peer / AUTHORISED / "a.toml"
    assert len(read_public(file).keys) == 2
    following.rename(tmp_path / IDENTITY)
    assert run(peer, "authorise", "--replace", str(new)) == 0
    assert read_public(file) == read_identity(tmp_path / IDENTITY).public


def test_a_host_or_one_of_its_keys_is_revoked(tmp_path: Path, capsys: Capture) -> None:
    peer, files = tmp_path / "peer", [tmp_path / name for name in ("one", "two")]
    public = [made(file, "a", capsys) for file in files]
    assert run(peer, "authorise", *map(str, public)) == 0
    first, second = (read_identity(file / IDENTITY).pair.text for file in files)
    assert run(peer, "revoke", "a", f"--key={first}") == 0
    assert read_public(peer / AUTHORISED / "a.toml").keys == (second,)
    assert run(peer, "revoke", "a", f"--key={first}") == command.USAGE
    assert run(peer, "revoke", "a") == 0
    assert not list((peer / AUTHORISED).iterdir())
    capsys.readouterr()
    assert run(peer, "list") == 0
    assert "names no host" in capsys.readouterr().out


def test_what_another_file_says_of_a_host_goes_too(tmp_path: Path, capsys: Capture) -> None:
    public, peer = made(tmp_path / "a", "a", capsys), tmp_path / "peer"
    other = made(tmp_path / "b", "a", capsys)
    (peer / AUTHORISED).mkdir(parents=True)
    (peer / AUTHORISED / "by-hand.toml").write_text(other.read_text())
    assert run(peer, "authorise", "--replace", str(public)) == 0
    assert [file.name for file in (peer / AUTHORISED).iterdir()] == ["a.toml"]
    assert len(read_public(peer / AUTHORISED / "a.toml").keys) == 1


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["show"], "this host has no identity; `dlcpctl keys new` makes one"),
        (["new", "--host", "a b"], "--host: host is a name"),
        (["authorise", "absent.pub"], "absent.pub: cannot be read: No such file"),
        (["revoke", "node"], "does not authorise this host; `dlcpctl keys"),
    ],
)
def test_a_mistake_is_named(tmp_path: Path, words: list[str], says: str, capsys: Capture) -> None:
    assert run(tmp_path, *words) == command.USAGE
    assert says in capsys.readouterr().err


def test_a_host_that_is_not_there_is_guessed(tmp_path: Path, capsys: Capture) -> None:
    public = made(tmp_path, "node-7", capsys)
    assert run(tmp_path, "authorise", str(public)) == 0
    assert run(tmp_path, "revoke", "node7") == command.USAGE
    assert "did you mean node-7?" in capsys.readouterr().err


def test_one_bad_file_leaves_all_unwritten(tmp_path: Path, capsys: Capture) -> None:
    good, bad = made(tmp_path, "a", capsys), tmp_path / "bad.pub"
    bad.write_text("host = 1")
    assert run(tmp_path, "authorise", str(good), str(bad)) == command.USAGE
    assert f"{bad}: has exactly host and keys" in capsys.readouterr().err
    assert not (tmp_path / AUTHORISED).exists()


def test_a_secret_is_not_taken_for_a_public_key(tmp_path: Path, capsys: Capture) -> None:
    made(tmp_path, "a", capsys)
    assert run(tmp_path, "authorise", str(tmp_path / IDENTITY)) == command.USAGE
    assert "has exactly host and keys" in capsys.readouterr().err


def test_a_key_of_another_host_is_refused(tmp_path: Path, capsys: Capture) -> None:
    public = made(tmp_path, "a", capsys)
    other = tmp_path / "b.pub"
    other.write_text(public.read_text().replace('"a"', '"b"'))
    assert run(tmp_path, "authorise", str(public), str(other)) == command.USAGE
    assert "b: a has the key" in capsys.readouterr().err


def test_where_nothing_can_be_written_is_named(tmp_path: Path, capsys: Capture) -> None:
    assert run(Path("/proc/keys-of-nobody"), "new", "--host", "a") == command.USAGE
    assert "cannot write there" in capsys.readouterr().err
