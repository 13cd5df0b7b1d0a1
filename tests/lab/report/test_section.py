"""The section of a report from a benchmark's JSON: its sentences and figures."""

from dataclasses import asdict
from pathlib import Path

import pytest

from dlcp_lab.bench.all_reduce import rows_of
from dlcp_lab.replay.step_rows import StepRow
from dlcp_lab.report.section import of_document, versus
from dlcp_lab.report.statistic import Spread, quotient
from dlcp_lab.scenarios.claims import Findings
from dlcpd import __version__
from dlcpd.cli.output import Output
from dlcpd.contract.errors import PeerLost
from dlcpd.ctl.report.inputs import sections
from dlcpd.ctl.report.parts import spread
from tests.lab.report.bench_documents import OPTIONS, SAMPLES, bench, block, measured, series


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


def test_figures_that_were_not_measured_are_said(tmp_path: Path) -> None:
    found, file = Findings(), tmp_path / "x.json"
    found.run("seed 1", _lost)
    found.times("random 0.01, bounded", [])
    found.claim("throughput kept", lambda: quotient(1.0, 0.0), 0.9)
    assert found.report("loss", "two hosts").tell(Output(str(file))) == 1
    [made] = sections(file)
    assert list(made.sentences) == [
        "0 of 1 claims hold.",
        "NOT MEASURED: throughput kept: a duration of 0 s",
        "NOT MEASURED: seed 1: rank 1 is silent",
        "NOT MEASURED: random 0.01, bounded: no sample",
        f"Measured by dlcpd {__version__}: two hosts.",
    ]
    assert block(made, "table", "claims")["rows"][0][0] == "not measured"


def _lost() -> None:
    raise PeerLost("rank 1 is silent")


def test_a_row_without_a_measurement_has_no_chart() -> None:
    rank = {"dlcpd": series([]), "gloo": series(SAMPLES)}
    rows = rows_of(1 << 20, [rank, rank], OPTIONS).document()
    made = of_document({"command": "bench all-reduce", "rows": rows})
    assert made.sentences[0] == "NOT MEASURED: 1 MiB dlcpd: no sample"
    assert [row["label"] for row in block(made, "ranges", "seconds")["rows"]] == ["gloo"]


def test_a_trace_without_a_block_says_so() -> None:
    found = {"command": "bench trace", "times": {"on": [], "off": [], "off again": []}}
    assert of_document(found).sentences[0] == ("NOT MEASURED: the cost of a recording: no sample")


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
    row = StepRow("vgg16", "hook", Spread.of(SAMPLES), [0.9, 1.2, 3.0], [1.0] * 3, {"sent": 3}, [])
    found = {"command": "bench step", "rows": [asdict(row), asdict(row) | {"system": "gloo"}]}
    assert of_document(found).sentences[0] == "vgg16 hook: 1.20 times as fast as Gloo."
    assert len(of_document(found).sentences) == 2, "Gloo is not compared with itself"


def test_quantiles_are_those_of_the_benchmarks() -> None:
    made = Spread.of(SAMPLES)
    assert spread(SAMPLES) == pytest.approx((made.p10, made.p50, made.p90))
    assert versus("x", 1.02).endswith("1.02 times as fast as Gloo.")
