"""A platform of switches is one row of KNOWN and one module, in a copy of the package: commands and
the page of platforms know it."""

import json
import os
import shutil
import subprocess
import sys
from typing import Final

import pytest

from switchcfg.cli.main import CHANGES, FAILED, SAME
from tests.pages import ROOT

ROW: Final = """
    "acme": Known(
        "Acme OS", "switchcfg.platforms.acme:Acme", "", "", PortNames(r"port\\d{1,3}", "port1")
    ),
"""
MODULE: Final = '''
"""Platform Acme OS: a queue by code point, and its limit on a port."""

from collections.abc import Mapping
from typing import Final

from switchcfg.intent.intent import Intent, PortGroup
from switchcfg.plan.queues import Abilities, Layout
from switchcfg.plan.state import Place
from switchcfg.platforms.commands import CommandPlatform
from switchcfg.platforms.grammar import Grammar
from switchcfg.platforms.rule import SEPARATOR, Rule
from switchcfg.platforms.platform import group_name

ABLE: Final = Abilities(curves=1, own_mark=False, spray=("keep",))
PROFILE: Final = "qos profile {profile}"
GRAMMAR: Final = Grammar(
    rules=(
        Rule("queue of", (PROFILE, "dscp {dscp} queue <queue>"), "no dscp {dscp}"),
        Rule("limit", (PROFILE, "queue {queue} limit <bytes>"), "no queue {queue} limit"),
        Rule("interface profile", ("interface {port}", "profile <profile>"), "no profile"),
    ),
    indent=1,
)


class Acme(CommandPlatform):
    """Acme OS 1."""

    name, able, grammar, mode = "acme", ABLE, GRAMMAR, "configure"
    binds, said, signs = ("interface profile",), "show configuration", r"^(hostname|interface) "

    def group(self, intent: Intent, group: PortGroup, layout: Layout) -> Mapping[Place, str]:
        profile, found = group_name(intent, group), dict[Place, str]()
        for dscp, queue in layout.queue_of(intent).items():
            found[Place("queue of", f"{profile}{SEPARATOR}{dscp}", "")] = str(queue)
        for each in layout.queues:
            found[Place("limit", f"{profile}{SEPARATOR}{each.index}", "")] = str(each.limit)
        return found | {Place("interface profile", port, ""): profile for port in group.ports}
'''
# Runs each command of argv[1] in this process; prints (exit code, output) of each.
RUNNER: Final = """
import contextlib, io, json, sys
from docs import platforms
from switchcfg.cli.main import main
found = []
for words in json.loads(sys.argv[1]):
    with io.StringIO() as said, contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        code = main(words)
        found.append((code, said.getvalue()))
print(json.dumps([*found, platforms.page()]))
"""
COMMANDS: Final = {
    "plan": "plan intent.toml --present leaf.txt --out plans",
    "show": "show plans/leaf.plan.json",
    "render": "render intent.toml --out rendered",
    "plan again": "plan intent.toml --present rendered/leaf.acme",
    "ports": "ports intent.toml",
    "import": "import sw --platform acme --present leaf.txt --ports port7",
    "verify": "verify intent.toml",
}
INTENT: Final = """\
schema = 1
[fabric]
name = "lab"
spray = "keep"
[[device]]
name = "leaf"
platform = "acme"
[[device.ports]]
names = ["port[1-2]"]
rate = "100Gbit"
"""


Told = dict[str, tuple[int, str]]


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> Told:
    """Command -> exit code and output, in a copy with the row, the module and an intent; and the
    page of platforms."""
    folder = tmp_path_factory.mktemp("copy")
    leave = shutil.ignore_patterns("__pycache__")
    shutil.copytree(ROOT / "switchcfg", folder / "switchcfg", ignore=leave)
    (folder / "docs").mkdir()
    for name in ("platforms.py", "switches-platforms.md"):
        shutil.copy(ROOT / "docs" / name, folder / "docs" / name)
    (folder / "switchcfg" / "platforms" / "acme.py").write_text(MODULE.lstrip())
    table = folder / "switchcfg" / "intent" / "known.py"
    before = "KNOWN: Final[Mapping[str, Known]] = {"
    whole = table.read_text()
    assert whole.count(before) == 1
    table.write_text(whole.replace(before, before + ROW))
    (folder / "intent.toml").write_text(INTENT)
    (folder / "leaf.txt").write_text("hostname leaf\n")
    path = {"PYTHONPATH": os.pathsep.join((str(folder), str(ROOT)))}
    words = json.dumps([line.split() for line in COMMANDS.values()])
    done = subprocess.run(
        [sys.executable, "-c", RUNNER, words],
        cwd=folder,
        env=os.environ | path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    *found, page = json.loads(done.stdout)
    return {name: tuple(each) for name, each in zip(COMMANDS, found, strict=True)} | {
        "page": (SAME, page)
    }


def test_an_added_platform_is_planned_shown_and_rendered(told: Told) -> None:
    assert told["plan"][0] == told["show"][0] == CHANGES
    for command in ("plan", "show"):
        assert "leaf (acme):\n  + interface profile port[1-2]\n      + DLCP" in told[command][1]
    assert "interface port2\n profile DLCP\n" in told["show"][1]
    assert told["render"][0] == SAME
    assert told["plan again"][0] == SAME
    assert "No changes" in told["plan again"][1]


def test_commands_know_its_ports_and_that_it_has_no_driver(told: Told) -> None:
    assert "port[1-2]: DLCP, 100Gbit" in told["ports"][1]
    assert 'names = ["port7"]' in told["import"][1]
    assert told["verify"][0] == FAILED and "no driver for acme" in told["verify"][1]


def test_the_page_of_platforms_lists_it(told: Told) -> None:
    row = "| `acme` | Acme OS | `port1` | on the device | `--present` only | 1, and 1 by ECN | - |"
    assert row in told["page"][1].splitlines()
