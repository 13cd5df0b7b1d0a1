"""`dlcpctl plan`: what it prints, its picture and its JSON, and one error for each mistake."""

import json
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from dlcpd.ctl import main as command
from dlcpd.planning.topology import MOST_HOSTS

SLOW = '[hosts]\na = "25mbit"\nb = "100mbit"\nc = "100mbit"\nd = "100mbit"\n'
RACKS = """
[hosts]
a = "100mbit"
b = "100mbit"
c = "100mbit"
d = "100mbit"

[racks.left]
hosts = ["a", "c"]
uplink = "50mbit"

[racks.right]
hosts = ["b", "d"]
uplink = "50mbit"
"""
WAYS = (("a", "b"), ("b", "c"), ("c", "a"))
ONE_WAY = 'hosts = ["a", "b", "c"]\n' + "".join(
    f'[[links]]\nfrom = "{a}"\nto = "{b}"\nrate = "1gbit"\none_way = true\n' for a, b in WAYS
)
DIRECT = ONE_WAY.replace("one_way = true\n", "")


@pytest.fixture
def planned(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """A function of a file's text and options: exit code, stdout, stderr."""

    def run(text: str, *options: str) -> tuple[int, str, str]:
        file = tmp_path / "net.toml"
        file.write_text(text)
        code = command.main(["plan", str(file), *options])
        told = capsys.readouterr()
        return code, told.out, told.err

    return run


@pytest.fixture
def without_scipy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "scipy.optimize", None)


def test_a_slow_host_owns_no_part(planned: Any) -> None:
    code, text, _ = planned(SLOW)
    assert code == 0
    assert "a     core     25mbit   25mbit" in text
    assert "33.33 %  b(a, c, d)" in text and "a(b" not in text
    assert "no schedule is faster than 25mbit: the links out of {a} carry 25mbit together" in text
    assert "plan: 25mbit, 100% of the bound" in text
    assert "limit: a -> core and back (25mbit), which the tensor crosses once each" in text
    assert (
        "gain 1.50: with an equal share for each host the tensor crosses a -> core (25mbit) "
        "1.5 times, with these trees once" in text
    )


def test_racks_cross_an_uplink_once(planned: Any) -> None:
    pytest.importorskip("scipy", reason="scipy, which solves linear programs, is not installed")
    code, text, _ = planned(RACKS)
    assert code == 0
    assert "a     left" in text and "left -> core   " in text
    assert "limit: core -> left and back (50mbit), which the tensor crosses once each" in text
    assert "gain 2.00: " in text


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (SLOW.replace("25m", "100m"), "gain 1.00: all hosts are equal, direct is optimal"),
        ('[hosts]\na = "1gbit"\n', "gain 1.00: one host: nothing is sent"),
        (
            '[hosts]\na = "1gbit"\nb = "2gbit"\n',
            "gain 1.00: a -> core (1gbit) limits equal shares as much as any trees, direct is opt",
        ),
    ],
)
def test_without_a_gain_it_says_why(planned: Any, text: str, why: str) -> None:
    code, said, _ = planned(text)
    assert code == 0 and why in said


def test_hosts_that_forward_cannot_be_compared(planned: Any) -> None:
    pytest.importorskip("scipy", reason="scipy, which solves linear programs, is not installed")
    text = DIRECT.replace('from = "c"\nto = "a"', 'from = "b"\nto = "a"')
    code, said, _ = planned(text)
    assert code == 0
    assert "no comparison: an equal share for each host needs routes through switches al" in said


@pytest.mark.usefixtures("without_scipy")
def test_without_scipy_the_closed_form_is_used_and_named(planned: Any) -> None:
    code, text, _ = planned(RACKS)
    assert code == 0
    assert "note: trees for this network need scipy" in text
    assert "pip install 'dlcpd[planner]'" in text
    assert "until then racks have trees of two levels" in text and "gain 2.00: " in text
    assert "note:" not in planned(SLOW)[1]


@pytest.mark.usefixtures("without_scipy")
def test_without_scipy_hosts_that_forward_have_no_plan(planned: Any) -> None:
    text = DIRECT.replace('from = "c"\nto = "a"', 'from = "b"\nto = "a"')
    code, said, told = planned(text)
    assert code == 1 and said == ""
    assert "need scipy" in told and told.endswith("[solver_missing]\n")


def test_json_has_names_and_bits_per_second(planned: Any, tmp_path: Path) -> None:
    to = tmp_path / "plan.json"
    planned(SLOW, "--json", str(to))
    found = json.loads(to.read_text())
    assert found["rate_bps"] == found["bound"]["rate_bps"] == 25e6
    assert found["direct_rate_bps"] == pytest.approx(25e6 / 1.5)
    assert found["gain"] == pytest.approx(1.5)
    assert sum(tree["share"] for tree in found["trees"]) == pytest.approx(1)
    assert found["trees"][0]["parents"] == {"a": "b", "b": None, "c": "b", "d": "b"}
    assert found["bound"]["sides"] == [["a"]] and found["limits"][0]["link"] == "a -> core"
    assert {"from": "core", "to": "a", "rate_bps": 25_000_000} in found["links"]


def test_json_of_one_host(planned: Any, tmp_path: Path) -> None:
    to = tmp_path / "plan.json"
    assert planned('[hosts]\na = "1gbit"\n', "--json", str(to))[0] == 0
    found = json.loads(to.read_text())
    assert found["bound"] is None and found["rate_bps"] is None and found["gain"] == 1


@pytest.mark.parametrize("text", [SLOW, RACKS, SLOW.replace("a =", '"<&>" ='), DIRECT])
def test_the_picture_is_svg_with_all_names_and_the_limit_in_red(
    planned: Any, tmp_path: Path, text: str
) -> None:
    pytest.importorskip("scipy", reason="scipy, which solves linear programs, is not installed")
    to = tmp_path / "plan.svg"
    code, said, _ = planned(text, "--svg", str(to))
    root = ElementTree.fromstring(to.read_text())  # noqa: S314  # our own file
    assert code == 0 and root.tag.endswith("svg")
    words = [each.text or "" for each in root.iter() if each.tag.endswith("text")]
    first = "<&>" if "<&>" in text else "a"
    assert {first, "b", "c"} <= set(words)
    assert sum(" % through " in each for each in words) == said.count(" %  ")
    red = [each for each in root.iter() if each.get("stroke") == "#c62828"]
    assert red and all(each.get("stroke-width") == "5" for each in red)


def test_many_trees_are_counted_and_many_hosts_are_refused(planned: Any, tmp_path: Path) -> None:
    to = tmp_path / "plan.svg"
    hosts = "[hosts]\n" + "".join(f'h{n} = "1gbit"\n' for n in range(65))
    code, said, told = planned(hosts, "--svg", str(to))
    assert code == 2 and said == "" and not to.exists()
    assert told == (
        "dlcpctl: --svg: 65 hosts are too many to draw: at most 64; name some with --hosts\n"
    )
    code, said, _ = planned(
        hosts, "--svg", str(to), "--hosts", ",".join(f"h{n}" for n in range(20))
    )
    assert code == 0 and "and 8 more trees, with smaller shares" in to.read_text()
    said = planned(hosts)[1]
    assert "and 1 more hosts" in said and "and 1 more trees" in said
    assert said.count("\nlimit: ") == 8 and "and 57 more limits" in said


def test_the_hosts_of_a_job_alone(planned: Any) -> None:
    code, text, _ = planned(SLOW, "--hosts", "b,c")
    assert code == 0 and "all hosts are equal" in text and "\na  " not in text


MISTAKES = {
    "zero": ('[hosts]\na = "0mbit"\n', "hosts.a: rate '0mbit' is zero; give a rate above 0"),
    "negative": ('[hosts]\na = "-1mbit"\n', "hosts.a: rate '-1mbit' is negative; write it like"),
    "unknown host": (RACKS.replace('["a", "c"]', '["a", "x"]'), "racks.left.hosts: 'x' is unk"),
    "missing host": (RACKS.replace('["a", "c"]', '["a"]'), "racks: host 'c' is in no rack; add"),
    "two racks": (RACKS.replace('["b", "d"]', '["b", "d", "a"]'), "'a' is in rack 'left' too; rem"),
    "unconnected": (ONE_WAY.replace('to = "c"', 'to = "a"'), "'c' is not connected: no links lead"),
    "one way": (ONE_WAY, "some hosts are connected through others only one way"),
    "not TOML": ("[hosts", "net.toml: "),
    "empty": ("", "hosts: missing or empty; list the hosts with their rates"),
}  # fmt: skip


@pytest.mark.parametrize("case", MISTAKES)
def test_a_mistake_in_the_file_is_one_line_on_stderr(planned: Any, case: str) -> None:
    text, said = MISTAKES[case]
    code, out, told = planned(text)
    assert code == 2 and out == "" and told.count("\n") == 1
    assert told.startswith("dlcpctl: ") and "net.toml: " in told and said in told


@pytest.mark.parametrize(
    ("hosts", "said"),
    [
        ("a,x", "hosts: 'x' of this job is missing"),
        ("a,,b", "--hosts: a name is empty; write them like a,b,c"),
        ("a,a", "--hosts: 'a' is listed twice; remove one"),
    ],
)
def test_a_mistake_in_the_names_of_hosts(planned: Any, hosts: str, said: str) -> None:
    code, _, told = planned(SLOW, "--hosts", hosts)
    assert code == 2 and said in told and told.count("\n") == 1


def test_a_file_that_cannot_be_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    binary, folder, absent = tmp_path / "binary", tmp_path, tmp_path / "absent"
    binary.write_bytes(b"\xff\xfe")
    for file, said in (
        (binary, "is not UTF-8 text: is it a topology file?"),
        (folder, "cannot be read: Is a directory"),
        (absent, "cannot be read: No such file or directory"),
    ):
        assert command.main(["plan", str(file)]) == 2
        assert capsys.readouterr().err == f"dlcpctl: {file}: {said}\n"


def test_a_file_with_a_byte_order_mark(planned: Any) -> None:
    assert planned(f"\ufeff{SLOW}")[0] == 0


def test_a_file_that_is_too_long(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    long = tmp_path / "long.toml"
    with long.open("wb") as opened:
        opened.truncate((16 << 20) + 1)  # takes no space on disk
    assert command.main(["plan", str(long)]) == 2
    assert "is longer than 16 MiB: is it a topology file?" in capsys.readouterr().err
    assert MOST_HOSTS * 300 < 16 << 20


def test_a_picture_that_cannot_be_written(planned: Any, tmp_path: Path) -> None:
    code, said, told = planned(SLOW, "--svg", str(tmp_path / "none" / "plan.svg"))
    assert code == 2 and said == "" and "--svg" in told and "there is no folder" in told
