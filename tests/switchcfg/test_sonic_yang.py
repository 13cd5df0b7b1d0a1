"""SONiC's tables against YANG models of the same shape as SONiC's, which are not ours to ship."""

import json
import shutil
from pathlib import Path

import pytest

from switchcfg.cli.main import main
from switchcfg.cli.sonic_yang import Tables, check
from switchcfg.errors import CannotExpress

pytestmark = pytest.mark.skipif(not shutil.which("yanglint"), reason="yanglint is not installed")
MODULE = """\
module sonic-{name} {{
    yang-version 1.1;
    namespace "urn:test:{name}";
    prefix p;
    {imports}
    container sonic-{name} {{ container {table} {{ {body} }} }}
}}
"""
NAME = 'leaf name { type string { length "1..16"; } }'
MODELS = {
    ("port", "PORT"): (
        "",
        f'list PORT_LIST {{ key "name"; {NAME} leaf speed {{ type uint32; }} '
        "leaf-list adv_speeds { type uint32; } }",
    ),
    ("scheduler", "SCHEDULER"): (
        "",
        f'list SCHEDULER_LIST {{ key "name"; {NAME} leaf type {{ type enumeration '
        "{ enum STRICT; enum WRR; } } leaf weight { type uint8; } }",
    ),
    ("queue", "QUEUE"): (
        "import sonic-port { prefix port; } import sonic-scheduler { prefix sch; }",
        'list QUEUE_LIST { key "ifname qindex"; leaf ifname { type leafref { path '
        '"/port:sonic-port/port:PORT/port:PORT_LIST/port:name"; } } leaf qindex { type string; } '
        'leaf scheduler { type leafref { path "/sch:sonic-scheduler/sch:SCHEDULER/'
        'sch:SCHEDULER_LIST/sch:name"; } } }',
    ),
    ("dscp-tc-map", "DSCP_TO_TC_MAP"): (
        "",
        f'list DSCP_TO_TC_MAP_LIST {{ key "name"; {NAME} list DSCP_TO_TC_MAP {{ key "dscp"; '
        'leaf dscp { type uint8 { range "0..63"; } } leaf tc { type uint8 { range "0..7"; } } } }',
    ),
    ("hash", "SWITCH_HASH"): (
        "",
        "container GLOBAL { leaf-list ecmp_hash { type enumeration "
        "{ enum SRC_IP; enum DST_IP; enum IP_PROTOCOL; enum L4_SRC_PORT; enum L4_DST_PORT; } } }",
    ),
}
GOOD: Tables = {
    "PORT": {"Ethernet0": {"speed": "100000", "adv_speeds": "100000,50000"}},
    "SCHEDULER": {"ours": {"type": "STRICT"}},
    "QUEUE": {"Ethernet0|7": {"scheduler": "ours"}},
    "DSCP_TO_TC_MAP": {"ours": {"0": "0", "46": "7"}},
    "SWITCH_HASH": {"GLOBAL": {"ecmp_hash": ["SRC_IP", "L4_SRC_PORT"]}},
}


@pytest.fixture
def models(tmp_path: Path) -> Path:
    folder = tmp_path / "models"
    folder.mkdir()
    for (name, table), (imports, body) in MODELS.items():
        text = MODULE.format(name=name, table=table, imports=imports, body=body)
        (folder / f"sonic-{name}.yang").write_text(text)
    return folder


def test_what_the_models_allow_passes(models: Path) -> None:
    assert check(GOOD, models) == []
    assert check({}, models) == []


@pytest.mark.parametrize(
    ("table", "rows", "says"),
    [
        ("QUEUE", {"Ethernet4|7": {"scheduler": "ours"}}, "Ethernet4"),
        ("QUEUE", {"Ethernet0|7": {"scheduler": "theirs"}}, "theirs"),
        (
            "QUEUE",
            {"Ethernet0": {"scheduler": "ours"}},
            "QUEUE|Ethernet0: the model has no",
        ),
        ("SCHEDULER", {"ours": {"type": "<STRICT>"}}, "<STRICT>"),
        ("SCHEDULER", {"ours": {"colour": "red"}}, "no field 'colour'"),
        ("SCHEDULER", {"a name that is far too long": {}}, "length"),
        ("DSCP_TO_TC_MAP", {"ours": {"64": "0"}}, "64"),
        ("DSCP_TO_TC_MAP", {"ours": {"0": "8"}}, "8"),
        ("SWITCH_HASH", {"LOCAL": {}}, "SWITCH_HASH|LOCAL: the model has no such key"),
        ("NEW_TABLE", {"a": {}}, "NEW_TABLE: no model has this table"),
    ],
)
def test_what_they_do_not_is_told(
    models: Path, table: str, rows: dict[str, dict[str, str]], says: str
) -> None:
    found = check({**GOOD, table: rows}, models)
    assert any(says in line for line in found), found


def test_a_message_of_several_lines_is_whole(models: Path) -> None:
    """As SONiC's own `must` and `when` conditions, which yanglint prints as they are written."""
    file = models / "sonic-scheduler.yang"
    body = 'must "boolean(../PORT_LIST)\n   and not(type)\n   and weight";'
    file.write_text(file.read_text().replace("leaf weight", f"{body} leaf weight"))
    [found] = check(GOOD, models)
    assert found.startswith('Must condition "boolean(../PORT_LIST) and not(type) and weight" not')
    assert "ours" in found  # where it is


def test_without_models_or_with_nonsense_it_says_so(
    tmp_path: Path, models: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CannotExpress, match="0 files"):
        check(GOOD, tmp_path)
    (models / "sonic-hash.yang").write_bytes(b"\xff")
    with pytest.raises(CannotExpress, match="cannot be read"):
        check(GOOD, models)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(CannotExpress, match="yanglint is missing"):
        check(GOOD, models)


def test_a_plan_is_refused_by_them(
    tmp_path: Path, models: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    intent = tmp_path / "intent.toml"
    intent.write_text(
        'schema = 1\n[fabric]\nname = "lab"\n[[device]]\nname = "leaf1"\nplatform = "sonic"\n'
        '[[device.ports]]\nnames = ["Ethernet0"]\nrate = "100Gbit"\n'
    )
    present = tmp_path / "leaf1.json"
    pool = {"egress_lossy_pool": {"mode": "dynamic", "size": "10000000", "type": "egress"}}
    port = {"Ethernet0": {"speed": "100000"}}
    present.write_text(json.dumps({"PORT": port, "BUFFER_POOL": pool}))
    ask = ["plan", str(intent), "--present", str(present)]
    assert main(ask) == 2
    assert main([*ask, "--yang", str(models)]) == 1
    said = capsys.readouterr().err
    assert "leaf1: refused by the models in" in said
    assert "WRED_PROFILE: no model has this table" in said
    assert "[refused]" in said
    assert main([*ask, "--remove", "--yang", str(models)]) in {0, 1}
