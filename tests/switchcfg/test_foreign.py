"""A file of another platform, or of none, is refused: it is no empty device."""

import json
from pathlib import Path

import pytest

from switchcfg.cli.main import FAILED, main
from switchcfg.errors import BadState
from switchcfg.platforms.known import PLATFORMS
from tests.switchcfg.golden import file

COMMANDS = ("eos", "nvue", "nxos")
NOTHING = {
    "empty": "",
    "blank": " \n\n",
    "html": "<html><body><h1>502 Bad Gateway</h1>\ninterface Ethernet1 nv set it\n</body></html>\n",
    "json": json.dumps({"cmds": {"interface Ethernet1": {}, "hostname leaf": None}}, indent=1),
    "login": "% Invalid input detected at '^' marker.\n",
}
# Switches that nobody has given any QoS, as they begin. A header of each, from vendors' guides.
BARE = {
    "eos": "! Command: show running-config\n! device: leaf (DCS-7060X6, EOS-4.32.1F)\n!\n"
    "hostname leaf\n!\ninterface Ethernet1\n!\nend\n",
    "nxos": "!Command: show running-config\nversion 10.4(3) Bios:version 01.08\nhostname leaf\n"
    "feature lacp\ninterface Ethernet1/1\n  no switchport\n",
    "nvue": "nv set interface eth0 type eth\nnv set interface swp1-2,32 type swp\n",
}


@pytest.mark.parametrize("platform", COMMANDS)
@pytest.mark.parametrize("text", NOTHING.values(), ids=NOTHING)
def test_what_no_switch_says_is_refused(platform: str, text: str) -> None:
    with pytest.raises(
        BadState, match=f"not a configuration of {platform}|is of another platform"
    ) as caught:
        PLATFORMS[platform].read(text)
    assert "show" in str(caught.value)


@pytest.mark.parametrize("platform", COMMANDS)
@pytest.mark.parametrize("other", PLATFORMS)
def test_what_another_platform_says_is_refused(platform: str, other: str) -> None:
    kind = PLATFORMS[platform]
    text = BARE.get(other, "") + file("minimal", other).read_text(encoding="utf-8")
    if platform == other:
        assert kind.read(text)
        return
    with pytest.raises(BadState, match=f"not a configuration of {platform}|is of another platform"):
        kind.read(text)


@pytest.mark.parametrize("platform", COMMANDS)
def test_a_switch_without_any_queue_of_its_own_is_no_mistake(platform: str) -> None:
    PLATFORMS[platform].read(BARE[platform])


def test_the_file_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "leaf-eos.txt").write_text("{}")
    intent = str(Path(__file__).parents[2] / "switchcfg/examples/no_ecn.toml")
    assert main(["plan", intent, "--device", "leaf-eos", "--present", str(tmp_path)]) == FAILED
    said = capsys.readouterr().err
    assert f"{tmp_path / 'leaf-eos.txt'}: JSON is not a configuration of eos" in said
    assert "`show running-config`" in said
