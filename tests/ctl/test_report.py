"""`dlcpctl report` without a browser: what it reads, what it says, and the figures of both."""

import argparse
import base64
import gzip
import hashlib
import json
import re
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from dlcp_client.reporting import json_lines
from dlcp_lab.bench.all_reduce import rows_of
from dlcp_lab.replay.step_rows import Row
from dlcp_lab.report.statistic import Spread
from dlcp_lab.scenarios.claims import Findings
from dlcpd import __version__
from dlcpd.contract.errors import BadConfig, BadLedger
from dlcpd.ctl.main import main as dlcpctl
from dlcpd.ctl.output import Output
from dlcpd.ctl.report.benchmark import of_document
from dlcpd.ctl.report.history import of_windows
from dlcpd.ctl.report.html import document
from dlcpd.ctl.report.inputs import sections
from dlcpd.ctl.report.parts import Section, spread, table, versus
from dlcpd.ctl.report.steps import of_trace
from dlcpd.ctl.timeline import timeline
from dlcpd.ledger.frames import frame
from dlcpd.ledger.records import Record
from tests.client.test_report import WHOLE
from tests.ledger import examples

SAMPLES = [0.011, 0.01, 0.012, 0.03]
OPTIONS = argparse.Namespace(dtype="float32", mode="exact")


def measured() -> list[dict[str, Any]]:
    """Rows as bench all-reduce writes them; 1 MiB, two ranks."""
    counts = {
        "sent": 60,
        "retransmitted": 1,
        "waived": 0,
        "reapplied": 0,
        "wrong": 0,
        "segment_size": 8896,
        "headers": 68,
    }
    rank = {"dlcpd": counts | {"times": SAMPLES}, "gloo": counts | {"times": SAMPLES[::-1]}}
    return [asdict(row) for row in rows_of(1 << 20, [rank, rank], OPTIONS)]


def bench(ratio: float = 1.5, **changes: Any) -> dict[str, Any]:
    """A document of bench all-reduce with round figures."""
    time = dict(zip(("p10", "p50", "p90", "p99"), (0.01, 0.0115, 0.02, 0.03), strict=True))
    row = measured()[0] | {
        "transport": "dlcpd",
        "time": time,
        "bus_bandwidth": 0.25,
        "wrong": 0,
        "ratio": {"p10": ratio / 2, "p50": ratio, "p90": ratio * 2, "p99": 9.0},
        "segments": {"sent": 120, "waived": 3},
        "samples": SAMPLES,
    }
    other = measured()[1] | {"time": time, "samples": SAMPLES[::-1]}
    return {
        "command": "bench all-reduce",
        "version": "0.1.0",
        "machine": {"cpus": 2},
        "rows": [row, other],
    } | changes


def block(section: Section, kind: str, title: str = "") -> dict[str, Any]:
    return next(b for b in section.blocks if b["kind"] == kind and title in b["title"])


@pytest.mark.parametrize(
    ("ratio", "says"),
    [(1.5, "1 MiB dlcpd: 1.50 times as fast as Gloo"), (1.01, "no gain, as fast as Gloo"),
     (0.99, "no gain, as fast as Gloo"), (0.7, "no gain, slower than Gloo: 0.70 times as fast")],
)  # fmt: skip
def test_a_benchmark_says_when_there_was_no_gain(ratio: float, says: str) -> None:
    sentence, conditions = of_document(bench(ratio)).sentences
    assert conditions == "Measured by dlcpd 0.1.0: see below."
    assert says in sentence and f"({ratio / 2:.2f} to {ratio * 2:.2f} in eight of ten)" in sentence


def test_figures_of_a_benchmark_are_those_of_the_input() -> None:
    made = of_document(bench())
    all_figures = block(made, "table", "All figures")
    first = dict(zip(all_figures["header"], all_figures["rows"][0], strict=True))
    assert first["bus_bandwidth"] == 0.25 and first["time"] == "11.5 ms (10 ms..20 ms)"
    assert first["segments"] == "sent 120, waived 3" and "samples" not in first
    times = block(made, "ranges", "1 MiB: seconds")["rows"]
    assert [(r["label"], r["low"], r["mid"], r["high"]) for r in times] == [
        ("dlcpd", 0.01, 0.0115, 0.02),
        ("gloo", 0.01, 0.0115, 0.02),
    ]
    assert block(made, "lines")["columns"][1] == pytest.approx([s * 1e3 for s in SAMPLES])
    assert made.made == {"command": "bench all-reduce", "version": "0.1.0", "machine": {"cpus": 2}}


def test_what_a_benchmark_measures_is_understood() -> None:
    ours, theirs = measured()
    made = of_document({"command": "bench all-reduce", "rows": [ours, theirs]})
    assert f"{ours['ratio']['p50']:.2f} times" in made.sentences[0]
    low, mid, high = spread([b / a for a, b in zip(SAMPLES, SAMPLES[::-1], strict=True)])
    [row] = block(made, "ranges", "Times as fast")["rows"]
    assert (row["low"], row["mid"], row["high"]) == pytest.approx((low, mid, high))


def test_wrong_results_are_said() -> None:
    wrong = bench()
    wrong["rows"][0]["wrong"] = 7
    assert "WRONG: 1 MiB dlcpd has 7 wrong elements." in of_document(wrong).sentences


def test_a_scenario_is_read_as_it_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found, file = Findings(), tmp_path / "x.json"
    found.times("random 0.01, bounded", SAMPLES)
    found.times("random 0.01, gloo", [0.02, 0.03])
    found.claim("throughput kept", 0.5, 0.9, at_most=False)
    found.claim("of exact", 1.0, 1.1)
    found.report("loss", "two hosts").tell(Output(str(file)))
    [made] = sections(file)
    assert list(made.sentences) == [
        "1 of 2 claims hold.",
        "FALLS SHORT: throughput kept is 0.5, and should be at least 0.9.",
        f"Measured by dlcpd {__version__}: two hosts.",
    ]
    ours, theirs = block(made, "ranges")["rows"]
    expected = Spread.of(SAMPLES)
    assert (ours["low"], ours["mid"], ours["high"]) == pytest.approx(
        (expected.p10, expected.p50, expected.p90)
    )
    assert (ours["colour"], theirs["colour"]) == ("blue", "orange")
    assert block(made, "table", "claims")["rows"][0] == [
        "FALLS SHORT",
        "throughput kept",
        0.5,
        ">=",
        0.9,
    ]
    assert made.made["conditions"] == "two hosts"
    assert capsys.readouterr().out


def test_verdicts_of_demo_and_verify_are_said() -> None:
    held = {"promise": "P1", "what": "exact", "verdict": "held", "detail": "9 operations"}
    bad = held | {"verdict": "BROKEN", "what": "bound", "detail": "rank 1"}
    runs = [
        {"task": "digits", "transport": name, "step_seconds": took, "digests": ["x"]}
        for name, took in (("gloo", 0.1), ("bounded", 0.05), ("reference", 0.2))
    ]
    found = {
        "command": "demo",
        "checks": [held],
        "runs": runs,
        "hosts": 4,
        "version": "1",
        "injected_loss": 0.01,
        "mode": "bounded",
        "max_loss": 0.02,
    }
    assert list(of_document(found).sentences) == [
        "All promises held.",
        "a step of digits, bounded: 2.00 times as fast as Gloo.",
        "Measured by dlcpd 1: 4 hosts on one machine; bounded (2 %); INJECTED loss 1 %.",
    ]
    found["checks"] = [held, bad]
    assert of_document(found).sentences[0] == "BROKEN: bound: rank 1"
    found["checks"] = [held, held | {"verdict": "not judged"}]
    assert "1 of 2 were not judged" in of_document(found).sentences[0]


def test_steps_by_seed_are_compared_by_their_median() -> None:
    row = Row("vgg16", "hook", Spread.of(SAMPLES), [0.9, 1.2, 3.0], [1.0] * 3, {"sent": 3}, [])
    found = {"command": "bench step", "rows": [asdict(row), asdict(row) | {"system": "gloo"}]}
    assert of_document(found).sentences[0] == "vgg16 hook: 1.20 times as fast as Gloo."
    assert len(of_document(found).sentences) == 2, "Gloo is not compared with itself"


def test_quantiles_are_those_of_the_benchmarks() -> None:
    made = Spread.of(SAMPLES)
    assert spread(SAMPLES) == pytest.approx((made.p10, made.p50, made.p90))
    assert versus("x", 1.02).endswith("1.02 times as fast as Gloo.")


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
    made = of_trace(profile + found)
    [row] = block(made, "table")["rows"]
    assert row == ["dlcpd: rank 0 of train", 2, 1.5, 2, 0, 0, 0.02, 0.6, 0.2, 0.1]
    assert made.sentences[1] == (
        "Of the time of its operations 65% is waits for ranks: another rank came later, which a "
        "faster network does not change."
    )
    shown = block(made, "timeline")["events"]
    assert shown and all(event["pid"] != 3 and event["ph"] != "i" for event in shown)


def test_a_ledger_is_what_was_waived_by_tensor(tmp_path: Path) -> None:
    (tmp_path / "00000000.ledger").write_bytes(examples.FILE)
    [made] = sections(tmp_path)
    assert list(made.sentences) == [
        "2 segments were waived in 1 operations; of one transfer at most 3.12 %, within the "
        "bound of 10 %."
    ]
    assert block(made, "table")["rows"] == [["name", 4096, "10 %", 1, 0, 2, "3.12 %"]]
    assert block(made, "lines")["columns"] == [[0], [2]]


def test_a_loss_beyond_the_bound_stands_out(tmp_path: Path) -> None:
    records: list[Record] = [examples.OPENING, replace(examples.PLAN, bound=0.02), examples.ENDED]
    (tmp_path / "00000000.ledger").write_bytes(b"".join(map(frame, records)))
    assert "3.12 %, ABOVE the bound of 2 %" in sections(tmp_path)[0].sentences[0]


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
