"""Every parser of foreign bytes has a target, and every input worth keeping is replayed."""

import ast
from collections import Counter
from pathlib import Path

import pytest

from tests.fuzz import corpus, machines, seeds
from tests.fuzz.target import ACCEPTED, Target, apart, joined
from tests.fuzz.targets import TARGETS

SOURCES = ("dlcpd", "client/dlcp_client", "switchcfg")
MAX_CORPUS = 200 << 10  # bytes in all, in the repository
each = pytest.mark.parametrize("target", TARGETS.values(), ids=list(TARGETS))


def untrusted(tree: ast.AST, inside: str = "") -> list[str]:
    """Qualified names of the functions whose name says that their input is untrusted."""
    found = []
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.ClassDef):
            found += untrusted(node, f"{inside}{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            found += [inside + node.name] if node.name.endswith("_untrusted") else []
    return found


def parsers(root: Path) -> set[str]:
    """All of them, as MODULE:NAME."""
    files = [(top, file) for top in SOURCES for file in (root / top).rglob("*.py")]
    return {
        f"{'.'.join(file.relative_to((root / top).parent).with_suffix('').parts)}:{name}"
        for top, file in files
        for name in untrusted(ast.parse(file.read_text()))
    }


def test_every_parser_of_untrusted_bytes_has_a_target() -> None:
    covered = Counter(name for target in TARGETS.values() for name in target.covers)
    assert parsers(corpus.ROOT) == set(covered)
    assert max(covered.values()) == 1


def test_a_new_parser_would_be_missed(tmp_path: Path) -> None:
    """Else the test before would prove nothing."""
    package = tmp_path / "client" / "dlcp_client" / "job"
    package.mkdir(parents=True)
    text = "class A:\n    async def b_untrusted(self): ...\ndef c_untrusted(): ...\n"
    (package / "new.py").write_text(text)
    assert parsers(tmp_path) == {
        "dlcp_client.job.new:A.b_untrusted",
        "dlcp_client.job.new:c_untrusted",
    }


@each
def test_seeds_are_valid(target: Target) -> None:
    assert target.seeds
    assert {target.outcome(seed) for seed in target.seeds} == {ACCEPTED}


@each
def test_the_corpus_is_replayed(target: Target) -> None:
    files = corpus.files(target)
    assert files or target.name in ("body",), "python -m tests.fuzz makes it"
    for file in files:
        target.outcome(file.read_bytes())


def test_the_corpus_is_small_and_belongs_to_targets() -> None:
    files = [file for file in corpus.FOLDER.rglob("*") if file.is_file()]
    assert {file.parent.name for file in files} <= set(TARGETS)
    assert sum(file.stat().st_size for file in files) < MAX_CORPUS


def test_frames_come_apart_as_they_were_joined() -> None:
    frames = [b"", b"a", bytes(300)]
    assert list(apart(joined(frames))) == frames
    assert list(apart(joined(frames)[:-1])) == [b"", b"a", bytes(299)]


def test_what_a_client_of_a_lane_does_in_the_seeds_is_accepted() -> None:
    """Else the target would fuzz refusals only."""
    frames = next(iter(TARGETS["lane"].seeds))
    assert machines.lane(frames) == 0
    assert len(list(apart(frames))) == len(seeds.LANE)


def test_an_exception_that_is_not_the_documented_one_is_not_swallowed() -> None:
    def run(_: bytes) -> object:
        raise KeyError

    with pytest.raises(KeyError):
        Target("t", run, ValueError, ()).outcome(b"")


def test_only_inputs_that_add_a_branch_are_kept() -> None:
    target = TARGETS["bitmap"]
    beyond, short = b"\x0c\x00\xff\x1f", b"\x0c\x00"
    kept, branches = corpus.reduced(target, [short, beyond, beyond + b"\x00", b"\x0c\x00\xff\x2f"])
    assert kept == [short, beyond]
    assert branches > 4
