"""Which data path does the work: what the setting asks for, and what there is."""

import subprocess
from pathlib import Path

import pytest

from dlcpd.contract.errors import BadConfig
from dlcpd.io.datapath import library
from dlcpd.io.datapath.choices import AUTO, COMPILED, NUMPY, SETTING
from dlcpd.io.datapath.library import choose, load


@pytest.fixture(autouse=True)
def _no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SETTING, raising=False)


def test_numpy_needs_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "installed", lambda: None)
    assert choose(NUMPY) is None
    assert choose(AUTO) is None


def test_who_asks_for_c_is_told_where_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "installed", lambda: None)
    with pytest.raises(BadConfig, match=r"C compiler.*data_path"):
        choose(COMPILED)


def test_the_environment_decides_for_auto_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SETTING, NUMPY)
    assert choose(AUTO) is None
    monkeypatch.setenv(SETTING, "/nowhere/lib.so")
    assert choose(NUMPY) is None
    with pytest.raises(BadConfig, match=r"/nowhere/lib\.so"):
        choose(AUTO)


@pytest.mark.parametrize(
    ("source", "says"),
    [
        ("int nothing;", "undefined symbol"),
        ("void dlcpd_sizes(unsigned *out) { *out = 7; }", "undefined symbol"),
    ],
)
def test_another_library_is_refused(tmp_path: Path, source: str, says: str) -> None:
    _build(tmp_path, source)
    with pytest.raises(BadConfig, match=says):
        load(tmp_path / "other.so")


def test_a_library_of_another_version_is_refused(tmp_path: Path) -> None:
    names = [name for name in library._FUNCTIONS]  # noqa: SLF001
    functions = "".join(f"void {name}(void) {{}}\n" for name in names)
    _build(tmp_path, functions + "void dlcpd_sizes(unsigned *out) { *out = 7; }")
    with pytest.raises(BadConfig, match="another version"):
        load(tmp_path / "other.so")


def _build(folder: Path, source: str) -> None:
    (folder / "other.c").write_text(source)
    try:
        subprocess.run(
            ["gcc", "-shared", "-fPIC", "-o", "other.so", "other.c"], cwd=folder, check=True
        )
    except FileNotFoundError:
        pytest.skip("no gcc")
