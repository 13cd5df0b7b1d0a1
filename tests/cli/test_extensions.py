"""Commands of other packages: found by entry point, refused by name when they do not load."""

from importlib.metadata import EntryPoint

import pytest

from dlcp_lab import commands
from dlcpd.cli import extensions
from dlcpd.cli.extensions import GROUP, installed, reader
from dlcpd.cli.grammar import Commands, Need, check_needs, whole
from dlcpd.cli.grammar import command as add_command
from dlcpd.cli.output import Output
from dlcpd.contract.errors import BadConfig
from dlcpd.ctl import main as command
from dlcpd.ctl.arguments import parser
from tests.ctl.without import dlcpctl_without


def add_greeting(commands: Commands) -> None:
    """What an entry point names."""
    made = add_command(commands, "greet", lambda options, _: len(options.name), "Say hello.")
    made.add_argument("name")


def entry(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, GROUP)


def test_this_distribution_brings_the_measuring_commands() -> None:
    found = {each.name: each.value.partition(".")[0] for each in installed()}
    assert found == dict.fromkeys(("bench", "demo", "lab", "verify"), "dlcp_lab")


def test_a_found_command_is_parsed_and_run() -> None:
    grammar = parser({}, [entry("greet", f"{__name__}:add_greeting")])
    options = grammar.parse_args(["greet", "World"])
    assert options.run(options, Output(None)) == 5


@pytest.mark.parametrize("value", ["absent.module:add", f"{__name__}:absent_function"])
def test_a_command_that_cannot_be_loaded_says_so_only_when_it_is_called(value: str) -> None:
    grammar = parser({}, [entry("broken", value)])
    assert grammar.parse_args(["status"]).command == "status"
    options = grammar.parse_args(["broken", "with", "--any", "arguments"])
    with pytest.raises(BadConfig, match=r"^broken: .* cannot be loaded .*absent"):
        options.run(options, Output(None))


def test_the_json_of_a_command_is_read_by_its_package(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [
        entry("bench", "dlcp_lab.commands:bench"),
        entry("greet", f"{__name__}:add_greeting"),
        entry("broken", "absent.module:add"),
    ]
    monkeypatch.setattr(extensions, "installed", lambda: entries)
    assert reader("bench step") is commands.section
    assert reader("greet") is None  # draws nothing
    assert reader("sing") is None  # of no package
    with pytest.raises(BadConfig, match=r"^broken: absent.module:add cannot be loaded"):
        reader("broken")


def test_operating_works_without_the_package_that_measures() -> None:
    done = dlcpctl_without(("dlcp_lab",), "--help")
    assert (done.returncode, done.stderr) == (0, "")
    assert "status" in done.stdout
    done = dlcpctl_without(("dlcp_lab",), "bench", "all-reduce")
    assert done.returncode == command.USAGE
    assert "bench: dlcp_lab.commands:bench cannot be loaded" in done.stderr


def test_needs_name_what_is_missing_and_its_extra_once() -> None:
    there = Need("json", "json", "x")
    absent = [Need(f"no_module_{n}", f"project-{n}", "extra") for n in range(2)]
    check_needs("greet", [there])
    with pytest.raises(BadConfig, match=r"greet needs project-0 and project-1, .*dlcpd\[extra\]'"):
        check_needs("greet", [there, *absent])


def test_whole_keeps_to_its_limits() -> None:
    parse = whole(2, 8)
    assert [parse("2"), parse("8")] == [2, 8]
    for text in ("1", "9", "two", "2.0"):
        with pytest.raises(Exception, match=r"2\.\.8"):
            parse(text)
