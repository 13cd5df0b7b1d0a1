"""Reports in a real browser: figures equal those of their inputs, and names do nothing."""

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from dlcp_client.reporting import json_lines
from dlcpd.ctl.main import main as dlcpctl
from tests.ctl.test_report import windows
from tests.daemon.kit import environment
from tests.lab.report.bench_documents import bench
from tests.page.browser import NO_SELENIUM, complaints, requests, resized
from tests.page.conftest import JOB, Site
from tests.page.site import steps

pytest.importorskip("selenium", reason=NO_SELENIUM)
from selenium.webdriver.common.by import By

from tests.page.test_page import FITS, SIZES, TABLES, cells, text, until

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

pytestmark = pytest.mark.timeout(300)


def command(*words: str) -> "subprocess.Popen[str]":
    return subprocess.Popen(
        [sys.executable, "-m", "dlcpd.ctl.main", *words],
        env=environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def opened(chrome: "Chrome", file: Path) -> None:
    complaints(chrome), requests(chrome)  # those of other tests
    chrome.get(f"file://{file}")
    until(chrome, lambda: chrome.find_elements(By.CSS_SELECTOR, "main section"))


def quiet(chrome: "Chrome") -> None:
    """Nothing went wrong, and nothing was asked for but the file."""
    assert complaints(chrome) == []
    assert {url.partition(":")[0] for url in requests(chrome)} <= {"file", "data"}


@pytest.mark.check(11, "a report of a benchmark has its figures, and says when there was no gain")
def test_a_benchmark_is_drawn(chrome: "Chrome", tmp_path: Path) -> None:
    file, to = tmp_path / "bench.json", tmp_path / "report.html"
    file.write_text(json.dumps(bench(0.5)))
    assert dlcpctl(["report", str(file), "-o", str(to)]) == 0
    ours, theirs = json.loads(file.read_text())["rows"]
    opened(chrome, to)
    said = text(chrome, "main ul")
    assert f"no gain, slower than Gloo: {ours['ratio']['p50']:.2f} times" in said
    rows = cells(chrome, "section:not(.head) > .body > table")
    for row, measured in zip(rows, (ours, theirs), strict=True):
        assert row[0] == "1 MiB" and measured["transport"] in row
        assert f"{measured['bus_bandwidth']:.4g}" in row
        assert any(cell.startswith(f"{measured['time']['p50'] * 1e3:.3g} ms") for cell in row)
    last = f"{ours['samples'][-1] * 1e3:.3g} ms"
    until(chrome, lambda: last in text(chrome, ".u-legend"))
    quiet(chrome)


@pytest.mark.check(14, "tables of reports are whole in a phone's window, and charts have text")
def test_a_report_fits_a_narrow_window(site: Site, chrome: "Chrome", tmp_path: Path) -> None:
    measured, training = tmp_path / "bench.json", tmp_path / "m.jsonl"
    trace, to = tmp_path / "trace.json", tmp_path / "report.html"
    measured.write_text(json.dumps(bench()))
    log = json_lines(training)
    for step, scalars in zip((10, 20), windows(), strict=True):
        log(scalars, step)
    recording = command("trace", "--socket", site.socket, "--steps", "3", "-o", str(trace))
    while recording.poll() is None:
        steps(site.ranks, 2)
    recording.communicate()
    files = [str(file) for file in (measured, training, trace)]
    assert dlcpctl(["report", *files, "-o", str(to)]) == 0
    opened(chrome, to)
    chrome.execute_script("document.querySelectorAll('details').forEach(one => one.open = true)")
    for width, height in reversed(SIZES):
        resized(chrome, width, height)
        until(chrome, lambda: chrome.execute_script(FITS))
        assert chrome.execute_script(TABLES) == []
    heads = [head.text for head in chrome.find_elements(By.CSS_SELECTOR, "thead th")]
    assert {"gradients (MB)", "loss (%)", "a step (ms)"} <= set(heads)
    charts = chrome.find_elements(By.CSS_SELECTOR, "canvas")
    told = [(one.get_attribute("role"), str(one.get_attribute("aria-label"))) for one in charts]
    assert told and all(role == "img" and " from " in label for role, label in told)
    assert chrome.find_elements(By.CSS_SELECTOR, ".ranges .track:not([aria-label])") == []
    quiet(chrome)


@pytest.mark.check(12, "a report of a trace shows its steps; names that are HTML do nothing")
def test_a_trace_is_drawn(site: Site, chrome: "Chrome", tmp_path: Path) -> None:
    file, to = tmp_path / "trace.json", tmp_path / "report.html"
    recording = command("trace", "--socket", site.socket, "--steps", "3", "-o", str(file))
    while recording.poll() is None:
        steps(site.ranks, 2)
    assert recording.returncode == 0
    recording.communicate()
    assert dlcpctl(["report", str(file), "-o", str(to)]) == 0
    opened(chrome, to)
    assert JOB in text(chrome, "main ul") and JOB in text(chrome, ".lanes ~ p, section p")
    assert chrome.find_elements(By.CSS_SELECTOR, "main img") == []
    assert chrome.title == "Steps, as dlcpctl trace recorded them - dlcpd"
    events: list[dict[str, Any]] = json.loads(file.read_text())["traceEvents"]
    row, *_ = cells(chrome, "table")  # the settings follow, folded
    operations = [e for e in events if e["ph"] == "b" and "collective" in e.get("args", {})]
    lost = sum(event["args"]["segments waived"] for event in operations)
    assert row[1] == "3" and row[3:6:2] == [str(len(operations)), str(lost)]
    labels = chrome.find_elements(By.CSS_SELECTOR, ".lanes .label")
    assert len(labels) == len({event["name"] for event in operations}) == 4
    quiet(chrome)
