"""What is typed wrong: exit code 2 and a line that says what to write instead."""

import sys

import pytest

from dlcpd.cli.extensions import installed
from dlcpd.ctl import main as command
from dlcpd.ctl.arguments import parser
from tests.ctl.without import ABSENT, dlcpctl_without


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("bench", "OPERATION"),
        ("bench all-reduce --sizes 4X", "'4X' is not a size"),
        ("bench all-reduce --sizes 4K,,1M", "is not a size"),
        ("bench all-reduce --hosts 1", "2..64"),
        ("bench all-reduce --dtype int8", "invalid choice"),
        ("bench all-reduce --mode lossy", "invalid choice"),
        ("bench all-reduce --max-loss 0", "above 0"),
        ("bench all-reduce --max-loss 0.6", "up to 0.5"),
        ("bench all-reduce --repeat 0", "1..100000"),
        ("bench all-reduce --loss 0.95", "at most 0.9"),
        ("bench all-reduce --switch 1gbit --netns a=10.0.0.1", "not allowed with"),
        ("bench all-reduce --switch-loss 2", "not a fraction"),
        ("bench engine --sizes 4X", "'4X' is not a size"),
        ("bench engine --checksums maybe", "invalid choice"),
        ("bench engine --collectives send", "'send' is not known: choose from all_reduce"),
        ("bench engine --repeat 0", "1..100000"),
        ("bench step --models vgg19", "'vgg19' is not known: choose from vgg16"),
        ("bench step --scale 0", "above 0"),
        ("bench step --ratio 11", "0.1 to 10"),
        ("bench training --seeds 0", "1..100"),
        ("bench training --share 2", "not a fraction"),
        ("bench codecs --seeds 0", "1..100"),
        ("bench fused --ways ddp", "'ddp' is not known: choose from gloo, zero, hook"),
        ("bench fused --blocks 0", "1..100"),
        ("bench schedules --programs sgd", "'sgd' is not known: choose from adam, layer"),
        ("bench schedules --kernel fast", "invalid choice: 'fast'"),
        ("bench spmd --cases pipe", "'pipe' is not known: choose from tensor, data, sharded"),
        ("bench rtt --round-trips 2", "'2' is not a time"),
        ("bench rtt --rates 1mbit,fast", "'fast' is not a rate"),
        ("bench rtt --losses 0,2", "'2' is not a fraction"),
        ("bench sweep --hosts 1,4", "2..144"),
        ("bench sweep --round-trips 0", "not a round trip"),
        ("bench sweep --round-trips 1,,2", "not a round trip"),
        ("bench sweep --losses 95%", "at most 0.9"),
        ("bench sweep --bursts 0", "1..1000"),
        ("bench sweep --repeat 0", "1..10000"),
        ("bench sweep --max-loss 0.6", "up to 0.5"),
        ("verify --hosts 9", "2..8"),
        ("verify --loss 1.5", "not a fraction"),
        ("verify --seed -1", "not a whole number"),
        ("demo --fast", "unrecognized"),
        ("lab", "ACTION"),
        ("lab up --hosts 251", "1..250"),
        ("lab up --loss 2", "not a fraction"),
        ("lab up --delay h0-l0=fast", "'fast' is not a time; write 250us, 2.5ms or 1s"),
        ("lab cut", "LINK"),
        ("lab limit l0-s0", "RATE"),
        ("lab lose much", "not a fraction"),
        ("demo --qui", "unrecognized"),  # no abbreviations: they break when options are added
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
        ("bench all-reduce --codec int4", "codec 'int4': use one of"),
        ("bench all-reduce --codec int8 --op max", "codec int8: max of rounded values"),
        ("bench all-reduce --set windo=1", "did you mean window"),
        ("bench all-reduce --set window=1", "--set: [network] window"),
        ("bench fused --one-daemon --switch 1gbit", "have a daemon each"),
        ("bench fused --model-parallel", "--model-parallel needs --switch RATE"),
        ("bench fused --model-parallel --one-daemon", "leave --one-daemon out"),
        ("bench all-reduce --netns nonsense --netns a=10.0.0.1", "NAMESPACE=ADDRESS"),
        ("bench all-reduce --netns a=10.0.0.1", "at least two"),
        ("bench engine --sizes 4K,1G", "--sizes: 1G is too much: at most 256M"),
        ("bench engine --set windo=1", "did you mean window"),
        ("bench engine --set engines=2", "--set engines: this benchmark has an engine per host"),
        ('bench engine --checksums on --set checksum="off"', "--set"),
        ("bench sweep --rate fast", "--rate: 'fast' is not a rate; write it like"),
        ("bench sweep --rate 500gbit", "--rate: 500gbit is out of range"),
        ("bench sweep --sizes 4K,5", "5 bytes are not a whole number of float32"),
        ("bench sweep --csv /absent/map.csv", "--csv /absent/map.csv: there is no folder"),
        ("bench step --rate fast", "--rate: 'fast' is not a rate; write it like"),
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


def test_defaults_of_bench() -> None:
    options = parser({}, installed()).parse_args(["bench", "all-reduce"])
    assert options.sizes == [4 << 10, 1 << 20, 16 << 20, 64 << 20]
    assert (options.mode, options.against, options.arena) == ("exact", "gloo", False)


@pytest.mark.parametrize(
    ("line", "lacks", "advice"),
    [
        ("demo", "torch and scikit-learn", "'dlcpd[client,demo]'"),
        ("bench training", "torch and scikit-learn", "'dlcpd[client,demo]'"),
        ("verify", "torch", "'dlcpd[client]'"),
        ("bench all-reduce", "torch", "'dlcpd[client]'"),
        ("bench spray", "torch", "'dlcpd[client]'"),
    ],
)
def test_what_is_not_installed_is_named_with_the_way_to_get_it(
    line: str, lacks: str, advice: str
) -> None:
    done = dlcpctl_without(ABSENT, *line.split())
    assert done.returncode == command.USAGE
    needs = f"dlcpctl: {line} needs {lacks}, which {sys.executable} does not have"
    assert done.stderr == f"{needs}: pip install {advice}\n"
