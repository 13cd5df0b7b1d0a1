"""Damaged configuration files give one clear error, or a configuration that a daemon can use."""

import pwd
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings

from dlcpd.contract.errors import BadConfig
from dlcpd.contract.toml_text import loaded, printable
from dlcpd.daemon.clients.access import Access
from dlcpd.daemon.config.effective import engine_configs, resolved, to_toml
from dlcpd.daemon.config.file import MOST_BYTES, load, parse
from dlcpd.daemon.config.tables import Config
from tests.daemon.test_config import EVERYTHING
from tests.damaged import check_error, damaged

LONGEST = 700  # characters of an error
VALUES = (
    "1", "65536", "-0.0", "inf", '"auto"', '"127.0.0.1"', '"::1"', '"[::1]:1"', '"1:1"', '"٣"',
    '"*"', '["*"]', "[0x1ffffffff]", '["0-8192"]', '["0-"]', '"/"', "[{}]", "[{ port = 1 }, {}]",
    '[{ port = "1" }]', '[{ address = "::" }]', "[[{}]]",
)  # fmt: skip


@settings(max_examples=300, deadline=None)
@given(damaged([EVERYTHING], VALUES))
def test_a_damaged_file_is_one_error_or_a_configuration(text: str) -> None:
    try:
        config = parse(text, "x.toml")
    except BadConfig as exc:
        check_error(str(exc), "x.toml", LONGEST)
        return
    used = resolved(config)
    assert engine_configs(used)
    assert parse(to_toml(used), "printed") == used
    with suppress(BadConfig):  # a name that this host does not have
        Access.configured(used.daemon.allowed_users, used.daemon.socket_group)


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("daemon.socket", '"/a\\u0000b"', r"'/a\x00b' has a character that cannot be printed"),
        ("daemon.host", '"a\\nb"', r"'a\nb' has a character that cannot be printed"),
        ("daemon.allowed_users", '["a\\u0000"]', r"'a\x00' is neither a user id nor a name"),
        ("daemon.socket_group", '"a\\u0000"', r"'a\x00' is neither a group id nor a name"),
        ("daemon.socket_group", "4294967295", "4294967295 is neither a group id nor a name"),
        ("daemon.allowed_users", "[4294967295]", "4294967295 is neither a user id nor a name"),
        ("ledger.directory", '"/a\\u0000"', r"'/a\x00' has a character that cannot be printed"),
        ("planner.topology", '"/a\\u0000"', r"'/a\x00' has a character that cannot be printed"),
        ("daemon.max_sessions", "2020-01-01", "2020-01-01 is not an integer"),
        ("daemon.max_sessions", "{ a = true }", "{ a = true } is not an integer"),
        ("daemon.log_format", "[1]", "[1] is not a text"),
        ("daemon.control_address", "true", "true is not an IP address"),
        ("network.offload", "07:32:00", "07:32:00 is not true or false"),
    ],
)  # fmt: skip
def test_a_value_is_refused_as_the_file_has_it(key: str, value: str, said: str) -> None:
    table, name = key.split(".")
    with pytest.raises(BadConfig) as caught:
        parse(f"[{table}]\n{name} = {value}\n", "x.toml")
    assert str(caught.value).startswith(f"x.toml: [{table}] {name}: {said}")


def test_the_largest_user_id_is_taken() -> None:
    most = (1 << 32) - 2
    config = parse(f"[daemon]\nallowed_users = [{most}]\nsocket_group = {most}\n", "x.toml")
    access = Access.configured(config.daemon.allowed_users, config.daemon.socket_group)
    assert access.users == frozenset({0, most}) and access.group == most


def test_what_is_printed_of_every_character_means_the_same() -> None:
    host = "".join(filter(printable, map(chr, (*range(0x300), 0xFFFD, 0x1F600))))
    config = replace(Config(), daemon=replace(Config().daemon, host=host))
    text = to_toml(config)
    assert text.isascii()
    assert loaded(text)["daemon"]["host"] == host


def test_a_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    file = tmp_path / "dlcpd.toml"
    file.write_bytes(b"\xef\xbb\xbf[daemon]\nmax_sessions = 7\n")
    assert load(file).daemon.max_sessions == 7


def test_a_file_of_another_kind_is_not_read_to_its_end(tmp_path: Path) -> None:
    file = tmp_path / "image"
    with file.open("wb") as made:
        made.truncate(1 << 40)  # a file with a hole, larger than memory
    with pytest.raises(BadConfig) as caught:
        load(file)
    assert (
        str(caught.value)
        == f"{file}: is longer than {MOST_BYTES >> 20} MiB: is it a configuration file?"
    )


def test_a_user_of_this_host_is_found_by_name() -> None:
    own = pwd.getpwuid(0)
    config = parse(f'[daemon]\nallowed_users = ["{own.pw_name}"]\n', "x.toml")
    assert Access.configured(config.daemon.allowed_users).users == frozenset({0})
