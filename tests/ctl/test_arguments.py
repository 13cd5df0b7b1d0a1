"""What is typed wrong: exit code 2 and a line that says what to write instead."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dlcpd.ctl import main as command
from dlcpd.ctl.arguments import parser

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("", "COMMAND"),
        ("stats", "invalid choice"),
        ("bench", "OPERATION"),
        ("bench all-reduce --sizes 4X", "'4X' is no size"),
        ("bench all-reduce --sizes 4K,,1M", "is no size"),
        ("bench all-reduce --hosts 1", "2..64"),
        ("bench all-reduce --dtype int8", "invalid choice"),
        ("bench all-reduce --mode lossy", "invalid choice"),
        ("bench all-reduce --max-loss 0", "above 0"),
        ("bench all-reduce --max-loss 0.6", "up to 0.5"),
        ("bench all-reduce --repeat 0", "1..100000"),
        ("bench all-reduce --loss 0.95", "at most 0.9"),
        ("bench all-reduce --switch 1gbit --netns a=10.0.0.1", "not allowed with"),
        ("bench all-reduce --switch-loss 2", "no fraction"),
        ("bench step --models vgg19", "'vgg19': choose from vgg16"),
        ("bench step --scale 0", "above 0"),
        ("bench step --ratio 11", "0.1 to 10"),
        ("bench training --seeds 0", "1..100"),
        ("bench training --share 2", "no fraction"),
        ("verify --hosts 9", "2..8"),
        ("verify --loss 1.5", "no fraction"),
        ("verify --seed -1", "no whole number"),
        ("demo --fast", "unrecognized"),
        ("status --ledger 1001", "0..1000"),
        ("lab", "ACTION"),
        ("lab up --hosts 251", "1..250"),
        ("lab up --loss 2", "no fraction"),
        ("lab cut", "LINK"),
        ("lab limit l0-s0", "RATE"),
        ("lab lose much", "no fraction"),
        ("status --sock x", "unrecognized"),  # no abbreviations: they break when options are added
    ],
)
def test_usage_errors(line: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.main(line.split())
    assert ended.value.code == command.USAGE
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("bench all-reduce --result-only", "needs --arena"),
        ("bench all-reduce --mode bounded --op max", "sum or avg"),
        ("bench all-reduce --dtype int32 --op avg", "rounds"),
        ("bench all-reduce --set windo=1", "did you mean window"),
        ("bench all-reduce --set window=1", "--set: [network] window"),
        ("bench all-reduce --netns nonsense --netns a=10.0.0.1", "NAMESPACE=ADDRESS"),
        ("bench all-reduce --netns a=10.0.0.1", "at least two"),
        ("bench step --rate fast", "--rate: rate 'fast': write it as"),
        ("bench step --set entropi=8", "did you mean entropy"),
    ],
)
def test_wishes_that_do_not_fit_together(
    line: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(line.split()) == command.USAGE
    err = capsys.readouterr().err
    assert says in err
    assert err.count("\n") == 1


def test_the_socket_comes_from_the_environment_and_then_from_the_default() -> None:
    assert parser({}).parse_args(["status"]).socket == "/run/dlcpd/dlcpd.sock"
    assert parser({"DLCPD_SOCKET": "/x"}).parse_args(["peers"]).socket == "/x"
    assert parser({"DLCPD_SOCKET": "/x"}).parse_args(["peers", "--socket", "/y"]).socket == "/y"


def test_defaults_of_bench() -> None:
    options = parser({}).parse_args(["bench", "all-reduce"])
    assert options.sizes == [4 << 10, 1 << 20, 16 << 20, 64 << 20]
    assert (options.mode, options.against, options.arena) == ("exact", "gloo", False)


WITHOUT_TORCH = """
import sys
class Refuse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("torch", "dlcp_client", "sklearn"):
            if {hard}:
                raise AssertionError(name + " was imported")
            sys.path[:] = []
        return None
sys.meta_path.insert(0, Refuse())
from dlcpd.ctl.main import main
sys.exit(main({arguments!r}))
"""


def run_without_torch(*arguments: str, hard: bool) -> "subprocess.CompletedProcess[str]":
    code = WITHOUT_TORCH.format(arguments=list(arguments), hard=hard)
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )  # fmt: skip


def test_status_needs_no_torch(tmp_path: Path) -> None:
    done = run_without_torch("status", "--socket", str(tmp_path / "absent"), hard=True)
    assert done.returncode == command.FAILED
    assert "no daemon answers" in done.stderr
    assert "[daemon_unavailable]" in done.stderr


@pytest.mark.parametrize("line", ["demo", "verify", "bench all-reduce"])
def test_what_needs_torch_says_so(line: str) -> None:
    done = run_without_torch(*line.split(), hard=False)
    assert done.returncode == command.USAGE
    assert "needs torch" in done.stderr
    assert "pip install" in done.stderr
