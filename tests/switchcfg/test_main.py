import json
from importlib.metadata import version
from pathlib import Path

import pytest

from switchcfg.cli.main import CHANGES, FAILED, SAME, main
from tests.switchcfg.intents import WHOLE


@pytest.fixture
def intent(tmp_path: Path) -> str:
    file = tmp_path / "intent.toml"
    file.write_text(WHOLE)
    return str(file)


def test_render_prints_the_configuration_and_says_what_is_degraded(
    intent: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["render", intent, "--device", "leaf1"]) == SAME
    out, err = capsys.readouterr()
    assert json.loads(out)["PORT_QOS_MAP"]["Ethernet60"]["dscp_to_tc_map"] == "DLCP_UP"
    assert err.startswith("leaf1: degraded: ")


def test_render_writes_a_file_per_device(intent: str, tmp_path: Path) -> None:
    assert main(["render", intent, "--out", str(tmp_path / "out")]) == SAME
    assert sorted(f.name for f in (tmp_path / "out").iterdir()) == ["leaf1.sonic", "leaf2.eos"]


def test_plan_tells_changes_by_its_exit_code_and_nothing_the_second_time(
    intent: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    present = tmp_path / "leaf2.txt"
    present.write_text("hostname leaf2\ninterface Ethernet1/1\n")
    only = [intent, "--device", "leaf2"]
    assert main(["plan", *only, "--present", str(present), "--out", str(tmp_path)]) == CHANGES
    assert "+ interface profile Ethernet1/1" in capsys.readouterr().out
    assert main(["show", str(tmp_path / "leaf2.plan.json")]) == CHANGES
    assert "\nqos profile DLCP\n" in capsys.readouterr().out
    main(["render", *only, "--out", str(tmp_path / "now")])
    assert main(["plan", *only, "--present", str(tmp_path / "now")]) == SAME
    assert capsys.readouterr().out.endswith("No changes on 1 device.\n")
    assert (
        main(["plan", *only, "--present", str(tmp_path / "now"), "--remove", "--json"]) == CHANGES
    )
    document = json.loads(capsys.readouterr().out)
    told = document["plans"][0]["steps"][0]["payload"]
    assert told.startswith("qos map dscp 0 to traffic-class 1\n")  # as EOS begins
    assert told.endswith("interface Ethernet1/1\n   no service-profile\nno qos profile DLCP\n")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["render", "absent.toml"], "absent.toml: cannot be read"),
        (["render", "INTENT", "--device", "leaf7"], "no device 'leaf7'"),
        (["plan", "INTENT", "--present", "absent", "--device", "leaf1"], "absent: cannot be read"),
        (["plan", "INTENT", "--present", "INTENT"], "the intent has several devices: select one"),
        (
            ["plan", "INTENT", "--present", "FOLDER", "--only", "leaf1"],
            "contains 0 files leaf1.*, and exactly one is needed",
        ),
        (["render", "INTENT", "--only", "leaf?,spine*"], "no device 'spine*'"),
        (["render", "INTENT", "--skip", "laef1"], "did you mean 'leaf1'? (known: leaf1, leaf2)"),
        (["render", "INTENT", "--skip", "*"], "--skip excludes every device"),
        (["render", "INTENT", "--only", ""], "need names of devices, separated"),
        (["render", "INTENT", "--only", "leaf1,,leaf2"], "need names of devices, separated"),
        (["show", "INTENT"], "is not a plan of switchcfg"),
    ],
)
def test_errors_are_one_line_with_a_code_and_exit_1(
    intent: str, capsys: pytest.CaptureFixture[str], arguments: list[str], says: str
) -> None:
    folder = str(Path(intent).parent)
    words = [{"INTENT": intent, "FOLDER": folder}.get(word, word) for word in arguments]
    assert main(words) == FAILED
    err = capsys.readouterr().err
    assert says in err
    assert err.startswith("switchcfg: ")
    assert err.count("\n") == 1
    assert err.rstrip().endswith("]")


@pytest.mark.parametrize("arguments", [[], ["plant"], ["apply", "x"], ["render", "x", "--devise"]])
def test_wrong_usage_exits_1_as_2_means_changes(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == FAILED
    err = capsys.readouterr().err
    assert err.startswith("usage: switchcfg")
    assert err.endswith(" [bad_usage]\n")


def test_the_version_is_that_of_the_distribution(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == SAME
    assert capsys.readouterr().out == f"switchcfg {version('dlcpd')}\n"
