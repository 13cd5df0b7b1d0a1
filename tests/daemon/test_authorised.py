"""Files of keys, and the directory of those that may be peers: what is read, refused and kept."""

import os
from pathlib import Path

import pytest

from dlcpd.contract.errors import BadConfig
from dlcpd.daemon.config.tables import AUTHORISED, IDENTITY, SecurityTable
from dlcpd.daemon.peers.authorised import Authorised
from dlcpd.daemon.peers.key_files import (
    MAX_FILE,
    MAX_KEYS,
    Identity,
    PublicKeys,
    parse_identity_untrusted,
    parse_public_untrusted,
    read_identity,
    write,
)
from dlcpd.daemon.peers.keys import KeyPair
from dlcpd.daemon.peers.trust import Trust
from tests.daemon.keys_kit import authorise, host_with_keys, revoke

KEYS = tuple(KeyPair.of_secret(bytes([n]) * 32).text for n in (1, 2, 3))  # the same in all workers


def test_an_identity_comes_back_as_written(tmp_path: Path) -> None:
    made = host_with_keys(tmp_path / "keys", "node-7")
    file = tmp_path / "keys" / IDENTITY
    assert read_identity(file) == made
    assert file.stat().st_mode & 0o777 == 0o600
    assert made.pair.secret.hex() not in repr(made) and repr(made.pair.secret) not in repr(made)


def test_public_keys_come_back_as_written() -> None:
    public = PublicKeys("node-7", KEYS)
    assert parse_public_untrusted(public.text(), "x") == public


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("host = ", "is no TOML"),
        ("a = " + "[" * 3000, "is no TOML"),
        ('host = "a"', "has exactly host and keys"),
        (f'host = "../a"\nkeys = ["{KEYS[0]}"]', "host is a name"),
        (f'host = "a"\nkeys = "{KEYS[0]}"', "1 to 8 keys"),
        ('host = "a"\nkeys = []', "1 to 8 keys"),
        (f'host = "a"\nkeys = {[KEYS[0]] * (MAX_KEYS + 1)}', "1 to 8 keys"),
        ('host = "a"\nkeys = [1]', "40 characters of Z85"),
        ('host = "a"\nkeys = ["é"]', "ascii"),
        (f'host = "a"\nkeys = ["{KEYS[0]}0"]', "40 characters of Z85"),
    ],
)
def test_what_is_no_file_of_public_keys_is_named(text: str, says: str) -> None:
    with pytest.raises(BadConfig, match=f"^x.toml: .*{says}.*keys show"):
        parse_public_untrusted(text, "x.toml")


def test_an_error_in_an_identity_does_not_quote_it() -> None:
    secret = Identity("a", KeyPair.new()).text()
    for broken in (secret.replace('"\n', "\n"), secret.replace("secret =", "secrets =")):
        with pytest.raises(BadConfig) as caught:
            parse_identity_untrusted(broken, "x")
        assert secret.split('"')[-2] not in str(caught.value)
        assert caught.value.__cause__ is None


@pytest.mark.parametrize(
    ("mode", "says"), [(0o640, r"may read it: chmod 600"), (0o602, r"may write it|may read it")]
)
def test_an_identity_that_others_can_open_is_refused(tmp_path: Path, mode: int, says: str) -> None:
    host_with_keys(tmp_path / "keys", "a")
    file = tmp_path / "keys" / IDENTITY
    file.chmod(mode)
    with pytest.raises(BadConfig, match=says):
        Trust.configured(SecurityTable(str(file), ""))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file away")
def test_an_identity_of_another_user_is_refused(tmp_path: Path) -> None:
    host_with_keys(tmp_path / "keys", "a")
    file = tmp_path / "keys" / IDENTITY
    os.chown(file, 65534, -1)
    with pytest.raises(BadConfig, match=r"belongs to user id 65534; .*chown 0"):
        read_identity(file)


def test_what_is_no_file_or_too_long_is_refused(tmp_path: Path) -> None:
    pipe, long = tmp_path / "pipe", tmp_path / "long"
    os.mkfifo(pipe, 0o600)
    write(long, "#" * (MAX_FILE + 1), 0o600, replace=False)
    for file, says in (
        (pipe, "no regular file"),
        (long, "longer than"),
        (tmp_path / "no", "No "),
    ):
        with pytest.raises(BadConfig, match=says):
            read_identity(file)


def test_a_file_is_written_whole_or_not_at_all(tmp_path: Path) -> None:
    file = tmp_path / "x.toml"
    write(file, "one", 0o644, replace=False)
    with pytest.raises(FileExistsError):
        write(file, "two", 0o644, replace=False)
    write(file, "three", 0o600, replace=True)
    assert file.read_text() == "three" and file.stat().st_mode & 0o777 == 0o600
    assert os.listdir(tmp_path) == ["x.toml"]


def test_authorised_without_identity_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(BadConfig, match=r"without identity: .*dlcpctl keys new"):
        Trust.configured(SecurityTable("", str(tmp_path)))


# --- the directory -------------------------------------------------------------------------------


@pytest.fixture
def home(tmp_path: Path) -> Path:
    host_with_keys(tmp_path, "home")
    return tmp_path


def known(home: Path) -> Authorised:
    return Authorised(home / AUTHORISED, "own" * 13 + "k")


def test_without_a_directory_anybody_may_come() -> None:
    anybody = Authorised(None, KEYS[0])
    assert anybody.allows(KEYS[1]) and anybody.host_of(KEYS[1]) == ""
    assert not anybody.read().revoked


def test_who_is_in_a_file_may_come_under_its_name(home: Path) -> None:
    a, b = (Identity(host, KeyPair.new()) for host in "ab")
    authorise(home, a)
    directory = known(home)
    assert directory.allows(a.pair.text) and directory.host_of(a.pair.text) == "a"
    assert not directory.allows(b.pair.text)
    assert directory.allows("own" * 13 + "k"), "ranks of one daemon are peers"
    authorise(home, b)
    assert directory.read().added == {b.pair.text}
    assert directory.hosts == 2
    revoke(home, a)
    assert directory.read().revoked == {a.pair.text}
    assert not directory.allows(a.pair.text)
    assert directory.read().added == directory.read().revoked == frozenset()


def test_a_host_may_have_two_keys_while_it_gets_another(home: Path) -> None:
    old, new = (Identity("a", KeyPair.new()) for _ in range(2))
    file = home / AUTHORISED / "a.toml"
    authorise(home, old)
    directory = known(home)
    write(file, PublicKeys("a", (new.pair.text, old.pair.text)).text(), 0o644, replace=True)
    assert directory.read().revoked == frozenset()
    assert {directory.host_of(each.pair.text) for each in (old, new)} == {"a"}
    authorise(home, new)
    assert directory.read().revoked == {old.pair.text}
    assert directory.hosts == 1


def test_a_file_that_breaks_keeps_its_meaning_and_others_take_effect(home: Path) -> None:
    a, b, c = (Identity(host, KeyPair.new()) for host in "abc")
    authorise(home, a, b)
    directory = known(home)
    (home / AUTHORISED / "a.toml").write_text("host =")
    revoke(home, b)
    authorise(home, c)
    found = directory.read()
    assert found.added == {c.pair.text} and found.revoked == {b.pair.text}
    assert "a.toml: is no TOML" in found.problems[0]
    assert directory.allows(a.pair.text)
    authorise(home, a)
    assert not directory.read().problems


def test_a_directory_that_goes_changes_nothing_but_is_a_problem(home: Path) -> None:
    a = Identity("a", KeyPair.new())
    authorise(home, a)
    directory = known(home)
    (home / AUTHORISED).rename(home / "away")
    assert "No such file" in directory.read().problems[0]
    assert directory.allows(a.pair.text)


def test_at_the_start_any_mistake_is_refused(home: Path) -> None:
    (home / AUTHORISED / "a.toml").write_text("host =")
    with pytest.raises(BadConfig, match=r"\[security\] authorised .*a\.toml: is no TOML"):
        known(home)
    (home / AUTHORISED / "a.toml").unlink()
    (home / AUTHORISED / ".b.toml.new").write_text("a writer's own")
    (home / AUTHORISED / ".b.toml").write_text("likewise")
    (home / AUTHORISED / "README").write_text("for people")
    (home / AUTHORISED / "c.toml").symlink_to(home / "nowhere")
    known(home)
    (home / AUTHORISED).chmod(0o777)
    with pytest.raises(BadConfig, match=r"others may write to it .*mode 0777.* chmod go-w"):
        known(home)


def test_a_key_is_one_hosts(home: Path) -> None:
    a = Identity("a", KeyPair.new())
    authorise(home, a, Identity("b", a.pair))
    with pytest.raises(BadConfig, match=r"b\.toml: a has the key .* too"):
        known(home)


def test_too_many_files_are_named(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlcpd.daemon.peers.authorised.MAX_FILES", 1)
    authorise(home, *(Identity(host, KeyPair.new()) for host in "ab"))
    with pytest.raises(BadConfig, match="more than 1 files"):
        known(home)
