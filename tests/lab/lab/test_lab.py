"""`dlcpctl lab`: a fabric made, used, made worse and removed by commands of their own."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlcp_lab.emulation import Plan, cables
from dlcp_lab.emulation.namespaces import cleanup, namespaces
from dlcp_lab.emulation.namespaces import command as run_command
from dlcp_lab.lab import labs
from dlcpd.ctl import main as command

NAME = f"t{os.getpid()}"
PREFIX = f"dlcpd-lab-{NAME}"
SMALL = ("--hosts", "2", "--leaves", "2", "--spines", "2", "--rate", "100mbit")


def lab(action: str, *words: str) -> int:
    return command.main(["lab", action, "--name", NAME, *words])


def document(tmp_path: Path, action: str, *words: str) -> Any:
    assert lab(action, "--json", str(tmp_path / "document"), *words) == command.OK
    return json.loads((tmp_path / "document").read_text())


@pytest.fixture
def made() -> Iterator[None]:
    assert lab("up", *SMALL) == command.OK
    yield
    labs.down(NAME)


@pytest.mark.netns
@pytest.mark.usefixtures("made")
class TestMade:
    def test_it_stays_and_is_described(self, tmp_path: Path) -> None:
        assert not any(name.startswith(PREFIX) for name in cleanup())
        [found] = document(tmp_path, "status")
        assert found["hosts"][1] == {
            "host": 1,
            "namespace": f"{PREFIX}-h1",
            "addresses": ["10.77.1.2"],
        }
        links = {link["direction"]: link for link in found["links"]}
        assert links["l0:h0"]["rate"] == links["l0:s1"]["rate"] == "100mbit"
        assert links["l0:h0"]["cut"] == "no"

    def test_its_tables_are_for_people(self, capsys: pytest.CaptureFixture[str]) -> None:
        lab("limit", "l0:s1", "10mbit")
        lab("lose", "5%", "--burst-length", "4")
        capsys.readouterr()
        assert lab("status") == command.OK
        shown = capsys.readouterr().out
        assert f"{PREFIX}-h0  10.77.0.2" in shown
        [line] = [line for line in shown.splitlines() if line.startswith("l0:s1")]
        assert line.split()[1:4] == ["10mbit", "0.05", "burst_loss"]

    def test_ranks_run_with_their_place_and_the_first_failure_counts(self, tmp_path: Path) -> None:
        place = 'echo "$WORLD_SIZE $MASTER_ADDR $HOST_ADDRESS" > $0/$RANK'
        assert lab("run", "--", "sh", "-c", place, str(tmp_path)) == 0
        assert (tmp_path / "0").read_text() == "2 10.77.0.2 10.77.0.2\n"
        assert (tmp_path / "1").read_text() == "2 10.77.0.2 10.77.1.2\n"
        assert lab("run", "--", "sh", "-c", "test $RANK = 0 || exit 7") == 7

    def test_one_host_runs_what_is_for_it_alone(self, tmp_path: Path) -> None:
        say = ("sh", "-c", "echo $RANK >> $0/ran", str(tmp_path))
        assert lab("run", "--host", "1", "--", *say) == 0
        assert (tmp_path / "ran").read_text() == "1\n"
        assert lab("run", "--host", "0", "--", "sh", "-c", "kill -9 $$") == 137

    def test_what_was_changed_is_remembered(self, tmp_path: Path) -> None:
        lab("cut", "l0-s0")
        changed = document(tmp_path, "limit", "h0-l0", "10mbit")
        links = {link["direction"]: link for link in changed["links"]}
        assert links["l0:s0"]["cut"] == links["s0:l0"]["cut"] == "clean"
        assert links["h0:l0"]["rate"] == links["l0:h0"]["rate"] == "10mbit"
        restored = document(tmp_path, "restore")
        assert {link["cut"] for link in restored["links"]} == {"no"}

    def test_down_ends_what_runs_inside(self) -> None:
        child = labs.load(NAME).run(0, ["sleep", "300"])
        assert lab("down") == command.OK
        assert child.wait(10) != 0
        assert namespaces(PREFIX) == []
        assert NAME not in labs.names()

    def test_it_is_not_made_twice(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert lab("up") == command.USAGE
        assert f"dlcpctl lab down --name {NAME}" in capsys.readouterr().err
        assert namespaces(PREFIX)

    def test_a_link_that_is_not_there_is_refused(self, capsys: pytest.CaptureFixture[str]) -> None:
        assert lab("cut", "l0-s7") == command.USAGE
        assert "no link 'l0-s7'" in capsys.readouterr().err

    def test_what_a_crash_left_goes_down_too(self) -> None:
        (labs.FOLDER / f"{NAME}.json").unlink()
        assert NAME in labs.names()
        assert lab("down") == command.OK
        assert namespaces(PREFIX) == []

    def test_a_broken_state_says_so(self, capsys: pytest.CaptureFixture[str]) -> None:
        (labs.FOLDER / f"{NAME}.json").write_text("{}")
        assert lab("status") == command.USAGE
        assert "remove the lab and create it again" in capsys.readouterr().err


@pytest.mark.netns
@pytest.mark.skipif(not cables.compiler(), reason="no C compiler")
def test_delays_are_remembered_and_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    delays = ("--delay", "2.5ms", "--delay", "l0:h1=0.1s", "--delay", "h0-l0=0us")
    try:
        assert lab("up", "--hosts", "2", *delays) == command.OK
        [found] = document(tmp_path, "status")
        assert found["plan"]["delays"] == [["", 0.0025], ["l0:h1", 0.1], ["h0-l0", 0.0]]
        shown = {link["direction"]: link["delay"] for link in found["links"]}
        assert shown == {"h0:l0": 0.0, "l0:h0": 0.0, "h1:l0": 0.0025, "l0:h1": 0.1}
        lab("lose", "5%", "l0:h1")
        capsys.readouterr()
        lab("status")
        assert "100 ms delay, 0.05 loss" in capsys.readouterr().out
    finally:
        removed = labs.down(NAME)
    assert removed == [f"{PREFIX}-{node}" for node in ("c0", "h0", "h1", "l0")]


@pytest.mark.netns
def test_racks_and_limits_are_made_and_remembered(tmp_path: Path) -> None:
    limits = ("--limit", "h0-l0=25mbit", "--limit", "l0-s0=50mbit", "--limit", "s0:l0=40mbit")
    try:
        assert lab("up", "--place", "0,1,1", *limits, "--rate", "100mbit") == command.OK
        [found] = document(tmp_path, "status")
        assert found["plan"]["place"] == [0, 1, 1]
        rates = {link["direction"]: link["rate"] for link in found["links"]}
        assert rates["h0:l0"] == rates["l0:h0"] == "25mbit" and rates["h2:l1"] == ""
        assert (rates["l0:s0"], rates["s0:l0"], rates["l1:s0"]) == ("50mbit", "40mbit", "100mbit")
        for node, device, rate in (("h0", "eth0", "25Mbit"), ("s0", "l0", "40Mbit")):
            shown = run_command("tc", "-n", f"{PREFIX}-{node}", "class", "show", "dev", device)
            assert rate in shown
        expected = "10.77.$((RANK / 2)).2 $((RANK % 2)) 6 2"
        check = f'test "$HOST_ADDRESS $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE" = "{expected}"'
        assert lab("run", "--ranks", "2", "--", "sh", "-c", check) == command.OK
    finally:
        labs.down(NAME)


@pytest.mark.netns
def test_a_failure_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(labs, "_store", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        labs.up(NAME, Plan())
    left = namespaces(PREFIX)
    labs.down(NAME)
    assert left == []


@pytest.mark.netns
@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("status --name nowhere", "no lab 'nowhere'; the labs are:"),
        ("run --name nowhere -- true", "no lab 'nowhere'"),
        ("up --name ../etc", "a name has 1..16 characters of a-z and 0-9"),
        ("status --name ../etc", "a name has 1..16"),
        ("down --name a-b", "a name has 1..16"),
        ("run", "give a program after --"),
        ("up --leaves 2", "spines 0 is out of range: use 1"),
        ("up --rate fast", "'fast' is not a rate"),
        ("up --delay h9-l0=1ms", "no link 'h9-l0'"),
        ("up --delay 11s", "delay of 11 s is out of range"),
        ("up --place 0,0,2", "place: leaf 1 has no host"),
        ("up --place 0,1 --hosts 3", "place has 2 hosts, the fabric 3"),
        ("up --place 0,1 --leaves 1", "place of host 1: 1 is out of range"),
        ("up --limit h9-l0=1mbit", "no link 'h9-l0'"),
    ],
)
def test_wishes_that_cannot_be(words: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["lab", *words.split()]) == command.USAGE
    assert says in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ("up --place 0,x", "argument --place: '0,x' is not a list of leaves; write it as 0,0,1,1"),
        ("up --limit 1mbit", "argument --limit: '1mbit' is not a limit; write it as l0-s0=50mbit"),
        ("up --limit h0-l0=fast", "argument --limit: 'fast' is not a rate"),
        ("run --ranks 0 -- true", "argument --ranks: '0' is not a whole number 1..64"),
    ],
)
def test_words_that_are_none(words: str, says: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        command.main(["lab", *words.split()])
    assert says in capsys.readouterr().err


@pytest.mark.parametrize("action", ["up", "down", "run -- true", "cut l0-s0"])
def test_without_the_rights_the_reason_is_named(
    action: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    assert command.main(["lab", *action.split()]) == command.USAGE
    assert (
        "this host cannot create the emulated fabric: this host lacks ip, tc, nft, ethtool"
        in capsys.readouterr().err
    )
