"""The shell that follows a page: what lasts, what fails, and that nothing of it stays."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pages import Block
from tests.tooling import shell as module
from tests.tooling import steps
from tests.tooling.shell import Shell
from tests.tooling.steps import Elsewhere, Run


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    with Shell(tmp_path, tmp_path) as made:
        yield made


def test_variables_and_processes_last(shell: Shell) -> None:
    shell.run("export NAME=value; sleep 100 & pid=$!")
    assert shell.run("echo $NAME; kill -0 $pid") == "value\n"


def test_a_line_that_fails_says_what_it_printed(shell: Shell) -> None:
    with pytest.raises(AssertionError, match=r"(?s)exit code 3.*said so"):
        shell.run("echo said so; (exit 3)")
    shell.run("(exit 3)", code=3)


def test_a_line_that_does_not_end_is_ended_and_no_other_is_typed(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "PATIENCE", 0.2)
    with pytest.raises(AssertionError, match="has not ended"):
        shell.run("sleep 100")
    with pytest.raises(AssertionError, match="not typed"):
        shell.run("true")


def test_nothing_of_it_stays(tmp_path: Path) -> None:
    with Shell(tmp_path, tmp_path) as made:
        pid = int(made.run("sleep 100 & echo $!"))
        assert Path(f"/proc/{pid}").exists()
    assert not Path(f"/proc/{pid}").exists()


def test_comments_are_not_typed_and_continued_lines_are_one() -> None:
    text = "# first\none --x  1   # why\n\ntwo \\\n  --y '#'\n"
    assert Block("page", "sh", text).typed == ["one --x 1", "two --y '#'"]


@pytest.mark.parametrize(
    ("table", "wrong"),
    [({}, "make demo"), ({"make demo": Run(), "make nothing": Run()}, "make nothing")],
)
def test_a_line_that_is_missing_in_a_table_or_on_the_page_is_named(
    table: steps.Table, wrong: str, tmp_path: Path
) -> None:
    page = tmp_path / "page.md"
    page.write_text("```sh\nmake demo\n```\n")
    with pytest.raises(AssertionError, match=wrong):
        steps.complete(page, table)
    steps.complete(page, {"make demo": Run()})


@pytest.mark.parametrize(
    "by",
    [
        Elsewhere("tests/tooling/test_shell.py::test_nothing"),
        Elsewhere("tests/tooling/test_shell.py::shell", "make coffee"),
        Elsewhere(".ci/run::lunch"),
    ],
    ids=lambda by: by.by,
)
def test_who_is_said_to_execute_a_line_must_do_so(by: Elsewhere) -> None:
    with pytest.raises(AssertionError):
        by.check()
    Elsewhere("tests/tooling/test_shell.py::shell", "with Shell").check()
    Elsewhere(".ci/run::test").check()
