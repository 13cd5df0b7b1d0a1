"""`dlcpctl report` without a browser: what it reads, what it says, and the figures of both."""

import base64
import gzip
import hashlib
import json
import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from dlcp_client.reporting import json_lines
from dlcpd.contract.errors import BadConfig, BadLedger
from dlcpd.ctl.main import main as dlcpctl
from dlcpd.ctl.report.document import document
from dlcpd.ctl.report.history import of_windows
from dlcpd.ctl.report.inputs import sections
from dlcpd.ctl.report.parts import Section, table
from dlcpd.ctl.report.steps import of_trace
from dlcpd.daemon.config.tables import Config
from dlcpd.inspection.run_identity import sentence
from dlcpd.inspection.timeline import timeline
from dlcpd.ledger.frames import frame
from dlcpd.ledger.records import Record
from tests.client.test_report import WHOLE
from tests.lab.report.bench_documents import bench, block
from tests.ledger import examples

# --- trainings ---------------------------------------------------------------------------------


def windows(**changes: float) -> list[dict[str, Any]]:
    one = WHOLE.scalars(waits=True, network=True) | {"bound": 0.01, "paths": 2, "paths_in_alarm": 0}
    return [one, one | {"loss": 0.005, "paths_in_alarm": 1} | changes]


def test_metrics_of_a_training_are_read_as_its_logger_writes_them(tmp_path: Path) -> None:
    log = json_lines(tmp_path / "m.jsonl")
    for step, scalars in zip((10, 20), windows(), strict=True):
        log({f"dlcp/{name}": value for name, value in scalars.items()}, step)
    [made] = sections(tmp_path / "m.jsonl")
    assert list(made.sentences) == [
        "27 MB of gradients a step went through dlcpd.",
        "180 segments were waived and 160 came back in later steps; the most in one window was "
        "0.5 %, within the bound of 1 %.",
        "A step waited 31 ms of 200 ms for gradients, 16%: a faster exchange could save at "
        "most that.",
        "Up to 1 of 2 paths were down or lost too much.",
    ]
    loss = block(made, "lines", "against the bound")
    assert loss["labels"] == ["waived", "bound"]
    assert loss["columns"] == [[10, 20], [pytest.approx(0.3), pytest.approx(0.5)], [1.0, 1.0]]
    waits = block(made, "lines", "its wait")
    assert waits["columns"] == [[10, 20], [200.0, 200.0], [31.0, 31.0]]
    assert [row[0] for row in block(made, "table")["rows"]] == [10, 20]


def test_the_table_of_windows_has_the_units_of_the_charts() -> None:
    shown = block(of_windows(windows()), "table")
    first = dict(zip(shown["header"], shown["rows"][0], strict=True))
    assert first["gradients (MB)"] == pytest.approx(270.0)
    assert first["bounded gradients (MB)"] == pytest.approx(250.0)
    assert (first["loss (%)"], first["bound (%)"]) == pytest.approx((0.3, 1.0))
    assert (first["waited a step (ms)"], first["a step (ms)"]) == pytest.approx((31.0, 200.0))
    assert (first["segments waived"], first["paths in alarm"]) == (90, 0)


def test_a_training_names_its_run_first(tmp_path: Path) -> None:
    log = json_lines(tmp_path / "m.jsonl")
    config = json.loads(json.dumps(asdict(Config())))
    config["daemon"] |= {"host": "host-a", "control_address": "192.0.2.7"}  # its host's
    config["network"] |= {"entropy": 4, "paths": [{"address": "192.0.2.7", "port": 0}]}
    peers = [{"host": "host-b"}, {"host": "host-c"}]
    session = {"job": "bert-7", "rank": 1, "world_size": 3, "peers": peers}
    log.run = {
        "host": "host-a",
        "version": "0.1.0",
        "commit": "1a2b3c4",
        "config": config,
        "sessions": [session],
    }
    for step, scalars in zip((10, 20), windows(), strict=True):
        log(scalars, step)
    [made] = sections(tmp_path / "m.jsonl")
    assert made.sentences[0].startswith(
        "Job bert-7, 3 ranks, on host-a, host-b, host-c; recorded on host-a by dlcpd 0.1.0, "
        "commit 1a2b3c4, with "
    )
    assert made.made["settings"]["network.entropy"] == 4 and made.made["launches"] == 1
    of_host = {"daemon.host", "daemon.control_address", "network.paths"}
    assert not of_host & made.made["settings"].keys()
    assert [row[0] for row in block(made, "table")["rows"]] == [10, 20]
    text = (tmp_path / "m.jsonl").read_text().replace('"version"', '"vision"')
    (tmp_path / "m.jsonl").write_text(text)
    with pytest.raises(BadConfig, match="looks like metrics of a training, and is damaged"):
        sections(tmp_path / "m.jsonl")


def test_a_training_that_gains_nothing_from_the_network_is_told() -> None:
    made = of_windows(windows(exposed_s=0.0, step_s=20.0))
    assert made.sentences[3] == "So a faster network would gain nothing here."
    assert "ABOVE the bound" in of_windows(windows(loss=0.02)).sentences[1]
    exact = [{"steps": 3, "bytes": 300}]
    assert "No loss was allowed" in of_windows(exact).sentences[1]


def events() -> list[list[Any]]:
    """Two steps and the beginning of a third, of one operation each."""
    made: list[list[Any]] = []
    for number, at in enumerate((1000, 2000, 4000), 1):
        key = [7, 1, 3, number]
        made += [
            [at, "submitted", *key, "exchange", number, "all_reduce", 4096, at - 10, 10_000],
            [at + 300, "ready", *key, 1],
            [at + 400, "result", *key],
            [at + 450, "returned", 7, 0, 0, 0, number],
        ]
    return made


def test_a_trace_says_what_its_operations_waited_for() -> None:
    sessions_ = [{"session": 7, "job": "train", "rank": 0}]
    found = timeline({0: events()}, sessions_, 2)
    profile = [{"ph": "X", "pid": 3, "name": "matmul", "ts": 1, "dur": 5}]
    made = of_trace({"traceEvents": profile + found})
    [row] = block(made, "table")["rows"]
    assert row == ["dlcpd: rank 0 of train", 2, 1.5, 2, 0, 0, 0.02, 0.6, 0.2, 0.1]
    assert made.sentences[1] == (
        "Of the time of its operations 65% is waits for ranks: another rank came later, which a "
        "faster network does not change."
    )
    shown = block(made, "timeline")["events"]
    assert shown and all(event["pid"] != 3 and event["ph"] != "i" for event in shown)


RUN_OF_TRACE: dict[str, Any] = {
    "jobs": ["bert-7"], "ranks": 2, "recorded on": "host-a", "hosts": ["host-a", "host-b"],
    "dlcpd": "0.1.0", "commit": "1a2b3c4", "settings": {"network.entropy": 4},
}  # fmt: skip


def test_a_trace_says_first_what_it_is_of() -> None:
    found = timeline({0: events()}, [{"session": 7, "job": "bert-7", "rank": 0}], 2)
    made = of_trace({"traceEvents": found, "otherData": {"run": RUN_OF_TRACE}})
    assert made.sentences[0] == (
        "Job bert-7, 2 ranks, on host-a, host-b; recorded on host-a by dlcpd 0.1.0, commit "
        "1a2b3c4, with 1 setting other than the defaults."
    )
    assert made.made == RUN_OF_TRACE


def test_many_hosts_are_counted_in_a_sentence() -> None:
    hosts = [f"h{number}" for number in range(20)]
    none = {"hosts": hosts, "commit": "", "settings": {}, "jobs": []}
    assert sentence(RUN_OF_TRACE | none) == (
        "Job unknown, 2 ranks, on h0, h1, h2, h3, h4, h5, h6, h7 and 12 more; recorded on host-a "
        "by dlcpd 0.1.0, commit unknown, with no settings other than the defaults."
    )


def test_a_step_of_the_client_is_a_span_from_due_to_computed() -> None:
    name = [7, 0, -1, 1]
    rows: list[list[Any]] = [
        [10, "submitted", *name, "weights", 1, "all_reduce", 4096, 0, 0],
        [20, "due", *name, 1024, 512],
        [35, "computed", *name, 1024, 512],
        [36, "computed", *name, 2048, 512],  # its "due" was before the recording
        [40, "result", *name],
        [50, "submitted", 7, 0, -1, 2, "weights", 2, "all_reduce", 4096, 0, 0],
    ]
    found = [row for row in timeline({0: rows}, [], 1) if row.get("cat") == "computation"]
    assert [(row["ph"], row["name"], row["ts"]) for row in found] == [
        ("b", "computes: weights", 20),
        ("e", "computes: weights", 35),
    ]
    assert found[0]["args"] == {"first byte": 1024, "bytes": 512}


def test_a_ledger_is_what_was_waived_by_tensor(tmp_path: Path) -> None:
    (tmp_path / "00000000.ledger").write_bytes(examples.FILE)
    [made] = sections(tmp_path)
    assert list(made.sentences) == [
        "Job job, 2 ranks, peers on host; written by dlcpd 0.",
        "2 segments were waived in 1 operations; of one transfer at most 3.12 %, within the "
        "bound of 10 %.",
    ]
    assert block(made, "table")["rows"] == [["name", 4096, "10 %", 1, 0, 2, "3.12 %"]]
    assert block(made, "lines")["columns"] == [[0], [2]]


def test_a_loss_beyond_the_bound_stands_out(tmp_path: Path) -> None:
    records: list[Record] = [examples.OPENING, replace(examples.PLAN, bound=0.02), examples.ENDED]
    (tmp_path / "00000000.ledger").write_bytes(b"".join(map(frame, records)))
    assert "3.12 %, ABOVE the bound of 2 %" in sections(tmp_path)[0].sentences[1]


# --- inputs ------------------------------------------------------------------------------------


def test_what_is_packed_is_unpacked(tmp_path: Path) -> None:
    file = tmp_path / "bench.json.gz"
    file.write_bytes(gzip.compress(json.dumps(bench()).encode()))
    assert sections(file)[0].title == "dlcpctl bench all-reduce"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{}", "is not a file that report can read. It reads what --json"),
        ('{"traceEvents": []}', "is not a file that report can read"),
        ('{"traceEvents": [{"pid": 3}]}', "is not a file that report can read"),
        ("[1, 2]", "is not a file that report can read"),
        ("", "is not a file that report can read"),
        ("not json", "is not JSON"),
        ('{"command": "bench x", "rows": [{"ratio": {}}]}', "looks like the JSON of a benchmark"),
        ('{"command": "sing"}', "the JSON of a benchmark, and no installed package reads it"),
        ('{"command": "bench x", "claims": 3}', "looks like the JSON of a benchmark"),
        ('{"command": "bench x", "data": {"a": [1]}, "header": ["b"]}', "KeyError: 'rows'"),
        ('{"steps": "x", "bytes": 1}', "looks like metrics of a training"),
        ('{"traceEvents": [{"pid": 1073741824}]}', "looks like a file of dlcpctl trace"),
    ],
)  # fmt: skip
def test_what_it_does_not_know_is_one_clear_error(tmp_path: Path, content: str, says: str) -> None:
    file = tmp_path / "x.json"
    file.write_text(content)
    with pytest.raises(BadConfig, match=re.escape(says)) as caught:
        sections(file)
    assert str(file) in str(caught.value)


def test_what_is_not_there_or_too_long_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BadConfig, match="cannot be read"):
        sections(tmp_path / "none.json")
    with pytest.raises(BadLedger, match="no ledger is there"):
        sections(tmp_path)
    monkeypatch.setattr("dlcpd.ctl.report.inputs.MAX_FILE", 8)
    (tmp_path / "long.json").write_text(json.dumps(bench()))
    with pytest.raises(BadConfig, match="has more than 8 B"):
        sections(tmp_path / "long.json")


def test_an_input_is_not_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, to = tmp_path / "b.json", tmp_path / "r.html"
    file.write_text(json.dumps(bench()))
    assert dlcpctl(["report", str(file), "-o", str(file)]) == 2
    assert json.loads(file.read_text()) == bench()
    assert dlcpctl(["report", str(file), "-o", str(tmp_path / "no" / "r.html")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    assert dlcpctl(["report", str(file), str(file), "-o", str(to)]) == 0
    assert "1.50 times as fast as Gloo" in capsys.readouterr().out
    assert to.read_text().count("dlcpctl bench all-reduce") == 3  # a title, and two sections


# --- HTML --------------------------------------------------------------------------------------


def test_a_report_needs_nothing_else_and_lets_nothing_else_run() -> None:
    hostile = "</script><img src=x onerror=alert(1)><!--"
    text = document([Section(hostile, [hostile], [table("t", ["h"], [[hostile]])])], "made <b>")
    assert "<img" not in text and "made <b>" not in text
    [policy] = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
    assert "default-src 'none'" in policy and "unsafe" not in policy
    for tag in ("script", "style"):
        inline = re.findall(rf"<{tag}>(.*?)</{tag}>", text, re.DOTALL)
        digests = (hashlib.sha256(part.encode()).digest() for part in inline)
        hashes = [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
        assert hashes and f"{tag}-src {' '.join(hashes)}" in policy
    data = re.findall(r'<script type="application/json" id="report">(.*?)</script>', text)
    assert json.loads(data[0])["sections"][0]["title"] == hostile
    assert not re.findall(r'(?:src|href)="(?!data:,")', text)
