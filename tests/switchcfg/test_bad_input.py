"""Configurations that are damaged, mixed or huge: one clear error, and nothing is written."""

import json
from pathlib import Path
from typing import Final

import pytest

from switchcfg.cli.main import FAILED, main
from switchcfg.errors import BadState
from switchcfg.plan.account import MOST, counts
from switchcfg.platforms.known import PLATFORMS
from tests.switchcfg.accounted import CLASSES, PORTS
from tests.switchcfg.foreign_devices import DEVICES

TEXTS: Final = {
    "sonic": DEVICES["sonic", "stock"],
    "eos": DEVICES["eos", "profile"],
    "nxos": DEVICES["nxos", "RoCE"],
    "nvue": DEVICES["nvue", "RoCE"],
    "junos": DEVICES["junos", "RoCE"],
    "openconfig": DEVICES["openconfig", "policies"],
    "linux": DEVICES["linux", "empty"],
}
LINES: Final = ("eos", "nxos", "nvue", "junos")
PAIRS: Final = [
    (platform, other)
    for platform in TEXTS
    for other in TEXTS
    if platform not in (other, "linux")  # its answer comes from a script of switchcfg
]


@pytest.mark.parametrize(("platform", "other"), PAIRS)
def test_a_file_of_two_platforms_is_refused(platform: str, other: str) -> None:
    with pytest.raises(BadState):
        PLATFORMS[platform].read(f"{TEXTS[platform]}\n{TEXTS[other]}")


def test_the_first_line_of_the_other_platform_is_named() -> None:
    with pytest.raises(BadState, match=r"^line 3 \('set system host-name x'\) is of another plat"):
        PLATFORMS["eos"].read("hostname leaf\ninterface Ethernet1\nset system host-name x\n")


@pytest.mark.parametrize("platform", LINES)
@pytest.mark.parametrize("control", ["\x00", "\x1b[2J", "\x08", "\x7f"])
def test_control_characters_are_refused_by_their_line(platform: str, control: str) -> None:
    first, _, rest = TEXTS[platform].partition("\n")
    with pytest.raises(BadState, match=r"^line 2 (has the control character|is not a line of)"):
        PLATFORMS[platform].read(f"{first}\n{control}{rest}")


@pytest.mark.parametrize("platform", ["sonic", "openconfig"])
def test_a_document_that_is_cut_is_refused(platform: str) -> None:
    text = TEXTS[platform]
    for part in (3, 5, 8):
        with pytest.raises(BadState):
            PLATFORMS[platform].read(text[: len(text) * part // 10])


@pytest.mark.parametrize("platform", LINES)
def test_a_file_that_is_cut_within_a_line_is_refused_and_nothing_is_written(
    platform: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "leaf.txt").write_text(TEXTS[platform].rstrip()[:-3])
    intent = tmp_path / "intent.toml"
    ports = json.dumps(PORTS[platform])
    intent.write_text(
        f'schema = 1\n[fabric]\nname = "lab"\n{CLASSES}[[device]]\nname = "leaf"\n'
        f'platform = "{platform}"\n[[device.ports]]\nnames = {ports}\nrate = "100Gbit"\n'
    )
    out = tmp_path / "plans"
    words = ["plan", str(intent), "--present", str(tmp_path / "leaf.txt"), "--out", str(out)]
    assert main(words) == FAILED
    said = capsys.readouterr().err
    assert f"{tmp_path}/leaf.txt: the last line has no end, so the file may be cut" in said
    assert list(out.iterdir()) == []


@pytest.mark.parametrize("platform", ["eos"])
def test_a_hundred_thousand_lines_are_counted_once_each(platform: str) -> None:
    many = "".join(f"   foo {number}\n" for number in range(100_000))
    found = PLATFORMS[platform].read(f"{TEXTS[platform]}interface Ethernet9/1\n{many}")
    read, every = counts(found)
    assert every - read == 100_000
    assert len(found) <= MOST


def test_an_intent_that_keeps_what_is_not_there_writes_no_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "leaf.txt").write_text(DEVICES["eos", "empty"])
    intent, out = tmp_path / "intent.toml", tmp_path / "plans"
    intent.write_text(
        f'schema = 1\n[fabric]\nname = "lab"\n{CLASSES}[keep.dscp]\n24 = 5\n[[device]]\n'
        'name = "leaf"\nplatform = "eos"\n[[device.ports]]\nnames = ["Ethernet1/1"]\n'
        'rate = "100Gbit"\n'
    )
    words = ["plan", str(intent), "--present", str(tmp_path / "leaf.txt"), "--out", str(out)]
    assert main(words) == FAILED
    said = capsys.readouterr().err
    assert said.count("code point 24 goes to queue 3 today, not to 5 as [keep.dscp] says") == 1
    assert list(out.iterdir()) == []


@pytest.mark.parametrize(
    ("platform", "line"), [("eos", "banner login"), ("eos", "comment"), ("nxos", "banner motd {}")]
)
def test_banners_without_an_end_are_read_in_linear_time(platform: str, line: str) -> None:
    ends = (chr(0x4E00 + each) for each in range(20_000))
    lines = "".join(f"{line.format(end)}\n" for end in ends)
    read = PLATFORMS[platform].read(f"hostname leaf\n{lines}interface Ethernet1/1\n")
    assert counts(read) == (1, 1)
