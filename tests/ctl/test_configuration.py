"""`dlcpctl config`: files are checked, and every setting is explained by its own definition."""

import json
import tomllib
from pathlib import Path

import pytest

from dlcpd.ctl import main as command
from dlcpd.ctl.explain import comments, matching, settings
from dlcpd.daemon.config.file import parse
from dlcpd.daemon.config.tables import DaemonTable, NetworkTable


def run(*line: str) -> int:
    return command.main(["config", *line])


def test_every_setting_has_a_meaning() -> None:
    found = list(settings())
    assert len(found) > 40
    assert [f"{s.table}.{s.key}" for s in found if not s.meaning] == []
    assert all(s.allowed and s.default for s in found)


def test_the_defaults_that_are_explained_are_accepted() -> None:
    lines: dict[str, list[str]] = {}
    for setting in settings():
        lines.setdefault(setting.table, []).append(f"{setting.key} = {setting.default}")
    text = "\n".join("\n".join([f"[{table}]", *keys]) for table, keys in lines.items())
    assert parse(text, "defaults") == parse("", "nothing")


def test_comments_above_and_beside_are_read() -> None:
    found = comments(NetworkTable)
    assert found["entropy"].startswith("source ports per path")
    assert found["window"].startswith("bytes in flight to one peer; default: ")
    assert "engines" in found and "net.core.rmem_max" in found["receive_buffer"]
    assert comments(DaemonTable)["max_sessions"].endswith("8 GPUs x 8 jobs")


@pytest.mark.parametrize(
    ("key", "count"), [("network.entropy", 1), ("entropy", 1), ("[network] entropy", 1)]
)
def test_a_key_is_found_however_it_is_written(key: str, count: int) -> None:
    assert [(s.table, s.key) for s in matching(key)] == [("network", "entropy")] * count


def test_a_key_that_there_is_not_is_guessed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("explain", "entropi") == command.USAGE
    assert "did you mean entropy? `dlcpctl config explain` lists all" in capsys.readouterr().err
    assert run("explain", "bogus") == command.USAGE
    said = capsys.readouterr().err
    assert "there is no setting 'bogus'. `dlcpctl config explain` lists all" in said
    assert "(daemon, network, security, checks, inject, ledger, metrics, planner)" in said
    assert run("explain", "networking") == command.USAGE
    assert "did you mean network or network.window or" in capsys.readouterr().err
    assert run("explain", "rate_limit_bps") == 0
    assert "number 0.0..10000000000000.0" in capsys.readouterr().out
    assert run("explain", "data_path", "--json", "-") == 0
    [document] = json.loads(capsys.readouterr().out)
    assert document["allowed"] == '"auto", "compiled", "numpy"'


def test_files_are_checked(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good, bad, nobody = (tmp_path / name for name in ("good", "bad", "nobody"))
    good.write_text("[network]\nentropy = 4\n")
    bad.write_text("[network]\nentropi = 4\n")
    nobody.write_text('[daemon]\nallowed_users = ["nobody-has-this-name"]\n')
    assert run("check", str(good)) == 0
    assert f"{good}: valid; 1 settings are not the default" in capsys.readouterr().out
    assert run("check", str(good), str(bad)) == command.USAGE
    assert "entropi" in capsys.readouterr().err
    assert run("check", str(nobody)) == command.USAGE


def test_what_is_shown_is_a_configuration_again(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "dlcpd.toml"
    file.write_text('[network]\nentropy = 4\n[daemon]\nhost = "alpha"\n')
    assert run("show", str(file)) == 0
    shown = parse(capsys.readouterr().out, "shown")
    assert shown.network.entropy == 4
    assert shown.network.paths[0].address != "auto"
    assert run("show", str(file), "--changed") == 0
    changed = tomllib.loads(capsys.readouterr().out)
    assert changed == {"daemon": {"host": "alpha"}, "network": {"entropy": 4}}
