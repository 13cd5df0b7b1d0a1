"""No secret of a switch gets into records, output, `--json`, diffs, errors or tracebacks."""

import hashlib
import json
import logging
import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from switchcfg.cli import records
from switchcfg.cli.diffs import shortened
from switchcfg.cli.main import main
from switchcfg.drivers.auto_revert import refusal
from switchcfg.errors import BadPlan, BadState, Refused, SwitchcfgError
from switchcfg.model.known import model_of
from switchcfg.plan.account import UNREAD
from switchcfg.plan.masking import MASK, masked
from switchcfg.plan.plan import dump, plan
from switchcfg.plan.text import lines
from switchcfg.platforms.known import PLATFORMS
from tests.switchcfg.accounted import PORTS
from tests.switchcfg.foreign_devices import DEVICES, intents
from tests.switchcfg.secret_devices import NAMES, SECRETS, planted
from tests.switchcfg.test_records import PLAN

LINES = [
    line
    for platform in ("eos", "nxos", "nvue", "junos")
    for line in planted(platform, "empty", PORTS[platform][0]).splitlines()
    if any(secret in line for secret in SECRETS)
]


def traces(errors: list[SwitchcfgError]) -> str:
    """All that Python prints of the errors, with those that caused them."""
    return "".join(line for each in errors for line in traceback.format_exception(each))


def in_clear(text: str) -> list[str]:
    return [secret for secret in SECRETS if secret in text]


@pytest.mark.parametrize(("platform", "name"), NAMES)
@pytest.mark.parametrize("of_port", [False, True], ids=["of the switch", "of a port, too"])
def test_states_plans_errors_and_records_have_none(
    platform: str, name: str, of_port: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    kind = PLATFORMS[platform]
    text = planted(platform, name, PORTS[platform][0] if of_port else "")
    assert in_clear(text)
    present = kind.read(text)
    assert in_clear(repr(dict(present))) == []
    assert of_port == any(MASK in place.field for place in present if place.kind == UNREAD)
    planned, errors = 0, list[SwitchcfgError]()
    for intent, device in intents(platform):
        try:
            made = plan(intent, device, kind, present)
        except SwitchcfgError as exc:
            errors.append(exc)
            continue
        said = "\n".join([*lines(made), dump(made), *(each.payload for each in made.steps)])
        assert in_clear(said) == []
        if not planned:
            file = records.keep(tmp_path, made, present, who="ann@host", diff=shortened(text))
            assert in_clear(file.read_text()) == []
            assert UNREAD not in {place.kind for place in records.last(tmp_path, "leaf").before}
        planned += 1
    assert planned or of_port
    assert in_clear(traces(errors)) == []
    assert of_port == any(MASK in str(each) for each in errors)
    assert in_clear(caplog.text) == []


@pytest.mark.parametrize(("platform", "name"), NAMES)
def test_commands_print_none(
    platform: str, name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    was, then = tmp_path / "leaf.txt", tmp_path / "then.txt"
    was.write_text(DEVICES[platform, name])
    then.write_text(planted(platform, name, PORTS[platform][0]))
    between = ["ports", "--platform", platform, "--before", str(was), "--after", str(then)]
    for words in (["import", "leaf", "--platform", platform, "--present", str(then)], between):
        for more in ([], ["--json"]):
            main([*words, *more])
            assert in_clear("".join(capsys.readouterr())) == [], words


@pytest.mark.parametrize("platform", PLATFORMS)
@pytest.mark.parametrize("other", ["sonic", "eos", "nxos", "nvue", "junos"])
def test_answers_of_other_platforms_and_lines_alone_are_refused_without(
    platform: str, other: str
) -> None:
    first = {"sonic": "stock", "nvue": "RoCE"}.get(other, "empty")
    text = planted(other, first, PORTS[other][0])
    errors: list[SwitchcfgError] = []
    for each in (text, *(line for line in text.splitlines() if in_clear(line))):
        try:
            assert in_clear(repr(dict(PLATFORMS[platform].read(each)))) == []
        except BadState as exc:
            errors.append(exc)
        try:
            model_of(platform, each)
        except BadState as exc:
            errors.append(exc)
    assert in_clear(traces(errors)) == []


@pytest.mark.parametrize("line", LINES)
def test_a_line_keeps_its_words_and_loses_its_secret(line: str) -> None:
    assert in_clear(masked(line)) == []
    assert MASK in masked(line)
    first = line.split(maxsplit=1)[0]
    assert masked(line).lstrip().startswith(MASK if first in SECRETS else first)
    assert masked(masked(line)) == masked(line)
    assert in_clear(shortened(f"+ {line}\n- {line}")) == []
    assert in_clear(str(refusal("leaf", 1, f"% refused: {line}"))) == []


@pytest.mark.parametrize("key", DEVICES, ids=" ".join)
def test_lines_of_qos_are_shown_as_they_are(key: tuple[str, str]) -> None:
    for line in DEVICES[key].splitlines():
        if len(line) < 200:
            assert masked(line) == line


@given(st.text(), st.sampled_from(["password 7 ", "key ", "snmp-server community ", '"secret": ']))
def test_masking_is_bounded_and_never_fails(text: str, head: str) -> None:
    """A line of many times a word takes as long as that many lines."""
    assert MASK in masked(f"{head}x{text}")
    assert len(masked(text)) <= len(text) * len(MASK)
    masked(text * 50 + "a-" * 5000 + "A" * 5000)


# --- records of earlier versions ------------------------------------------------------


def earlier(folder: Path, **more: object) -> Path:
    """A record of version 1, with the whole configuration."""
    text = planted("eos", "profile", "")
    file = records.keep(folder, PLAN, {})
    body = json.loads(file.read_text())
    del body["seal"], body["before"]
    plan_of = json.loads(body["plan"])
    del plan_of["seal"]
    plan_of["platform"] = "eos"
    seal = hashlib.sha256(json.dumps(plan_of, sort_keys=True, ensure_ascii=False).encode())
    body["plan"] = json.dumps({**plan_of, "seal": seal.hexdigest()})
    body |= {"switchcfg record": 1, "snapshot": text, "diff": text, **more}
    sealed = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
    file.write_text(json.dumps({**body, "seal": sealed}))
    return file


def test_a_record_with_a_configuration_is_read_and_the_next_one_replaces_it(tmp_path: Path) -> None:
    file = earlier(tmp_path)
    assert in_clear(file.read_text())
    found = records.last(tmp_path, "sw")
    assert found.before == PLATFORMS["eos"].read(DEVICES["eos", "profile"])
    assert found.diff is not None and in_clear(found.diff) == []
    records.keep(tmp_path, PLAN, {})
    assert in_clear(file.read_text()) == []
    [(_, again), _] = records.history(tmp_path, [], 10)
    assert isinstance(again, records.Record)
    assert (again.before, again.plan, again.state) == (found.before, found.plan, "applied")


def test_a_rolled_back_record_loses_its_configuration(tmp_path: Path) -> None:
    earlier(tmp_path)
    records.undo(records.last(tmp_path, "sw"), "ann@host")
    [file] = (tmp_path / "sw").iterdir()
    assert in_clear(file.read_text()) == []


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"snapshot": "{}"}, "in this record of version 1 cannot be read (JSON is not a config"),
        ({"switchcfg record": 3}, "is a record of version 3, and this switchcfg reads versions 1"),
        ({"before": [["kind"]]}, "in this record of version 1 cannot be read"),
    ],
)
def test_one_that_cannot_be_read_is_refused_by_name(
    tmp_path: Path, more: dict[str, object], says: str
) -> None:
    file = earlier(tmp_path, **more)
    with pytest.raises(BadPlan) as caught:
        records.last(tmp_path, "sw")
    assert str(caught.value).startswith(f"{file}: ")
    assert says in str(caught.value)
    records.keep(tmp_path, PLAN, {})  # it stays, and hides no other
    assert len(records.history(tmp_path, [], 10)) == 2


def test_a_refusal_still_names_the_line(tmp_path: Path) -> None:
    text = planted("eos", "profile", "Ethernet1/1")
    intent, device = next(intents("eos"))
    with pytest.raises(Refused) as caught:
        plan(intent, device, PLATFORMS["eos"], PLATFORMS["eos"].read(text))
    assert f'unread: Ethernet1/1: "bar key {MASK}": not understood' in str(caught.value)
