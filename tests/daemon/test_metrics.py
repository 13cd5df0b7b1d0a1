"""What Prometheus gets: what `dlcpctl status` says, under the names that docs/metrics.md lists."""

import asyncio
import re
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client.parser import text_string_to_metric_families

from dlcpd.contract.messages import Completed
from dlcpd.ctl.status import status_lines
from dlcpd.daemon.condition import Condition
from dlcpd.daemon.config.tables import MetricsTable
from dlcpd.daemon.metrics.collector import samples
from dlcpd.daemon.metrics.families import FAMILIES, KNOWN_CONTROL_EVENTS, PRESSED
from dlcpd.daemon.metrics.port import MetricsPort
from dlcpd.daemon.metrics.server import MetricsServer
from dlcpd.inspection.report import alarms as alarm_lines
from tests.daemon.kit import PATIENCE, Daemon, configuration, environment, join_all
from tests.daemon.test_two_hosts import (
    COUNT,
    SUBMIT,
    Rank,
    all_reduce,
    close,
    ranks_of,
    start,
)

ROOT = Path(__file__).parents[2]
LIMIT = 30.0  # seconds of the condition
LISTEN = '[metrics]\nlisten = "127.0.0.1:0"\n'
Series = dict[tuple[str, frozenset[tuple[str, str]]], float]


def scrape(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE) as answer:
        text: str = answer.read().decode()
        return text


def series(text: str) -> Series:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def settled(port: int, rank: Rank) -> tuple[Series, dict[str, Any]]:
    """A scrape and a status of the same state: datagrams may be under way for a while."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        before = rank.client.status()
        found = series(scrape(port))
        fresh = found["dlcpd_uptime_seconds", frozenset()] >= before["uptime"]
        if fresh and rank.client.status()["engine"]["sessions"] == before["engine"]["sessions"]:
            return found, before
    raise AssertionError("the session never comes to rest")


def port_of(daemon: Daemon) -> int:
    return int(daemon.wait_for("metrics")["port"])


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Daemon]]:
    folder = tmp_path_factory.mktemp("metrics")
    lossy = "[inject]\nloss = 0.05\nseed = 3\n"
    with start(folder, 5, more=LISTEN + lossy) as one, start(folder, 6, more=lossy) as two:
        yield [one, two]


def test_a_scrape_says_what_status_says(hosts: list[Daemon]) -> None:
    ranks = ranks_of(hosts, "measured")
    all_reduce(ranks)
    found, report = settled(port_of(hosts[0]), ranks[0])

    def value(name: str, **labels: str) -> float:
        return found[name, frozenset(labels.items())]

    [session] = report["engine"]["sessions"].values()
    whose = {"job_name": "measured", "rank": "0"}
    assert value("dlcpd_session_operations_submitted_total", **whose) == 1
    assert value("dlcpd_session_operation_seconds_count", **whose) == 1
    assert value("dlcpd_session_operation_seconds_bucket", **whose, le="+Inf") == 1
    totals = session["totals"]
    assert totals["sent"] > 0
    assert value("dlcpd_session_segments_sent_total", **whose) == totals["sent"]
    for alarm in ("gray_failure", "bound_pressure", "divergence", "stall", "silent_peer"):
        assert value("dlcpd_alarm", **whose, alarm=alarm) == 0
    peer = {"job_name": "measured", "peer_host": "host-6"}
    assert value("dlcpd_peer_up", **peer) == 1
    [path] = session["peers"][0]["paths"]
    assert value("dlcpd_path_datagrams_received_total", **peer, path="0") == path["received"] > 0
    [(name, space)] = path["classes"].items()
    place = {**peer, "path": "0", "class": name}
    assert value("dlcpd_class_datagrams_sent_total", **place) == space["sent"] > totals["sent"]
    assert value("dlcpd_class_datagrams_resent_total", **place) == space["again"] > 0
    assert value("dlcpd_class_datagrams_lost_total", **place) > 0
    assert value("dlcpd_class_bytes_sent_total", **place) == space["bytes"] > 1e6
    injected = report["engine"]["counters"]["injected_loss"]
    assert value("dlcpd_engine_events_total", event="injected_loss") == injected
    assert value("dlcpd_sessions", state="open") == 1
    close(ranks)


def test_both_ends_count_the_same_of_what_was_waived(hosts: list[Daemon]) -> None:
    ranks = ranks_of(hosts, "bounded")
    for rank in ranks:
        rank.values[:COUNT] = 1.0
        rank.submit(replace(SUBMIT, max_loss=0.2))
    assert all(isinstance(rank.result(), Completed) for rank in ranks)
    [ours], [theirs] = (rank.client.status()["engine"]["sessions"].values() for rank in ranks)
    waived = ours["totals"]["waived"]
    assert 0 < waived <= ours["totals"]["allowed"]
    assert sum(path["waived"] for path in ours["peers"][0]["paths"]) == waived
    assert theirs["peers"][0]["missing"] == theirs["totals"]["lost"] == waived
    close(ranks)


def documented() -> dict[str, tuple[str, list[str], str]]:
    """Type, labels and text of each metric of docs/metrics.md.

    The page gives types by name. Labels are those of the metric's section, then those of its row.
    """
    page = (ROOT / "docs" / "metrics.md").read_text()
    [histogram] = re.findall(r"`(\w+)` is a histogram, all\s+others\s+are gauges", page)
    assert "Names that end in `_total` are counters" in page
    found = {}
    row = re.compile(r"^\| `(dlcpd_\w+)` \|(?: ?([^|]*)\|)? ([^|]*) \|$", re.MULTILINE)
    for section in page.split("\n### ")[1:]:
        common = re.findall(r"\w+", "".join(re.findall(r"^Labels: (.*)$", section, re.MULTILINE)))
        for name, labels, text in row.findall(section):
            kind = "counter" if name.endswith("_total") else "gauge"
            kind = "histogram" if name == histogram else kind
            found[name] = kind, common + re.findall(r"\w+", labels), text
    return found


def test_documented_metrics_exist_and_existing_ones_are_documented(hosts: list[Daemon]) -> None:
    assert documented() == {
        family.name + ("_total" if family.kind == "counter" else ""): (
            family.kind,
            list(family.labels),
            family.text,
        )
        for family in FAMILIES
    }
    served = {f.name: f.type for f in text_string_to_metric_families(scrape(port_of(hosts[0])))}
    ours = {name: kind for name, kind in served.items() if name.startswith("dlcpd_")}
    assert ours == {family.name: family.kind for family in FAMILIES}
    assert "process_start_time_seconds" in served and "process_cpu_seconds" in served


def session(**changes: Any) -> dict[str, Any]:
    return {
        "session": 7,
        "job": "j",
        "title": "j",
        "rank": 0,
        "state": "open",
        "age": 1.0,
        "arena_bytes": 1,
        "broken_code": "",
        "peers": [],
    } | changes


def report(engine: dict[str, Any], **changes: Any) -> dict[str, Any]:
    return {
        "version": "1",
        "commit": "",
        "messages": [1],
        "peers": [1],
        "features": {},
        "counters": {},
        "uptime": 1.0,
        "draining": False,
        "cordoned": "",
        "pending": [],
        "unreachable": "",
        "sessions": [session(**changes)],
        "engine": engine,
    }


def engine(
    *, gray: bool = False, used: float = 0.0, late: int = 0, silent: float = 0
) -> dict[str, Any]:
    path = {"gray": gray, "classes": {}}
    totals = {"used": used, "took": [0] * 17, "seconds": 0.0, "failed": {}}
    peer = {"rank": 1, "silent": silent, "paths": [path]}
    counts = {"silent_peers": bool(silent), "paths_down": 0, "paths_gray": int(gray)}
    known = {"late": [{}] * late, "totals": totals, "peers": [peer], "alarms": counts}
    return {"sessions": {"7": known}}


def alarms(value: dict[str, Any]) -> set[str]:
    [family] = [metric for metric in samples(value) if metric.name == "dlcpd_alarm"]
    assert len(family.samples) == 5
    return {sample.labels["alarm"] for sample in family.samples if sample.value}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (report(engine()), set()),
        (report(engine(gray=True)), {"gray_failure"}),
        (report(engine(used=PRESSED)), {"bound_pressure"}),
        (report(engine(used=PRESSED - 0.01)), set()),
        (report(engine(late=2)), {"stall"}),
        (report(engine(silent=1.5)), {"silent_peer"}),
        (report({"error": "x"}, broken_code="replica_divergence"), {"divergence"}),
        (report({"error": "x"}, broken_code="peer_lost"), set()),
    ],
    ids=["well", "gray", "pressed", "nearly", "late", "silent", "diverged", "lost"],
)
def test_each_alarm_has_its_cause(value: dict[str, Any], expected: set[str]) -> None:
    assert alarms(value) == expected


def values(value: dict[str, Any]) -> Series:
    """The series of a report."""
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for metric in samples(value)
        for sample in metric.samples
    }


def test_every_code_and_event_has_a_series_before_anything_happens() -> None:
    found = values(report({"sessions": {}, "counters": {}}))
    for code in ("peer_lost", "replica_divergence", "session_closed", "deadline_exceeded"):
        assert found["dlcpd_operations_failed_total", frozenset({("code", code)})] == 0
        assert found["dlcpd_control_events_total", frozenset({("event", f"broken_{code}")})] == 0
    assert found["dlcpd_engine_events_total", frozenset({("event", "internal")})] == 0


def test_every_event_of_the_page_has_a_series_from_the_start() -> None:
    page = (ROOT / "docs" / "ipc.md").read_text().partition("| counter | counts |")[2]
    table = page.partition("\n\n")[0]
    names = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (.*?) \|", table, re.MULTILINE))))
    assert len(names) > 20
    assert names - {"refused_CODE", "broken_CODE"} <= set(KNOWN_CONTROL_EVENTS)


def test_a_rank_that_delivers_in_the_epoch_before_has_one_series() -> None:
    known = engine()
    known["sessions"]["8"] = engine(late=2)["sessions"]["7"]
    both = [session(job="a"), session(job="b", session=8, age=2.0)]
    found = [
        sample
        for metric in samples(report(known) | {"sessions": both})
        for sample in metric.samples
        if "rank" in sample.labels
    ]
    names = [(sample.name, *sample.labels.items()) for sample in found]
    assert len(set(names)) == len(names)
    assert [s.value for s in found if s.name == "dlcpd_session_late_peers"] == [2]


def test_ranks_of_a_host_share_the_series_of_a_path() -> None:
    one, two = engine()["sessions"]["7"], engine(gray=True)["sessions"]["7"]
    space = {"sent": 3, "queue_delay": 0.25}
    one["peers"][0]["paths"][0] |= {"up": True, "in_flight": 1, "classes": {"front": space}}
    worse = {"front": space | {"queue_delay": 0.5}}
    two["peers"][0]["paths"][0] |= {"up": False, "in_flight": 2, "classes": worse}
    value = report({"sessions": {"7": one, "8": two}})
    link = {"rank": 1, "host": "there", "state": "up"}
    value["sessions"] = [session(session=n, rank=n - 7, peers=[link]) for n in (7, 8)]
    found = values(value)
    place = frozenset({"job_name": "j", "peer_host": "there", "path": "0"}.items())
    assert found["dlcpd_path_up", place] == 0
    assert found["dlcpd_path_gray", place] == 1
    assert found["dlcpd_path_datagrams_in_flight", place] == 3
    front = place | {("class", "front")}
    assert found["dlcpd_class_datagrams_sent_total", front] == 6
    assert found["dlcpd_class_queue_delay_seconds", front] == 0.5


def test_an_engine_that_does_not_answer_is_a_metric_itself() -> None:
    found = {s.name: s.value for metric in samples(report({"error": "x"})) for s in metric.samples}
    assert found["dlcpd_engine_answers"] == 0 and found["dlcpd_session_age_seconds"] == 1.0
    assert "dlcpd_session_operations_open" not in found


# --- the port ----------------------------------------------------------------------------


class Control:
    """An event loop in a thread of its own, that counts how often it makes a report."""

    def __init__(self) -> None:
        self.asked = 0
        self.answers = True
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever)
        self._thread.start()
        self.now = 0.0
        self.condition = Condition(LIMIT, lambda: self.now)
        self.server = MetricsServer(("127.0.0.1", 0), self.loop, self._status, self.condition)

    async def _status(self) -> dict[str, Any]:
        self.asked += 1
        if not self.answers:
            raise TimeoutError("the loop is busy")
        return report(engine())

    def close(self) -> None:
        asyncio.run_coroutine_threadsafe(self.server.close(), self.loop).result(PATIENCE)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join(PATIENCE)
        self.loop.close()


@pytest.fixture
def control() -> Iterator[Control]:
    made = Control()
    yield made
    made.close()


def test_nobody_asks_and_nothing_is_done_and_scrapes_share_a_report(
    control: Control, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dlcpd.daemon.metrics.server.FRESH", PATIENCE)
    assert control.asked == 0
    port = control.server.address[1]
    assert "dlcpd_uptime_seconds 1.0" in scrape(port)
    scrape(port)
    assert control.asked == 1


def test_a_control_that_does_not_answer_is_an_error_of_the_scrape(control: Control) -> None:
    control.answers = False
    with pytest.raises(urllib.error.HTTPError, match="503"):
        scrape(control.server.address[1])


def probe(control: Control, path: str) -> tuple[int, str]:
    """Status and text of the answer."""
    host, port = control.server.address
    try:
        with urllib.request.urlopen(f"http://{host}:{port}{path}", timeout=PATIENCE) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as exc:
        with exc:
            return exc.code, exc.read().decode()


def test_health_is_as_patient_as_the_watchdog_and_asks_no_loop(control: Control) -> None:
    control.answers = False
    control.now = LIMIT
    assert probe(control, "/-/healthy") == (200, "healthy\n")
    assert probe(control, "/-/ready") == (200, "ready\n")
    control.now += 1.0
    for path in ("/-/healthy", "/-/ready"):
        status, text = probe(control, path)
        assert status == 503 and "have answered for 31 s" in text
    control.condition.proved("")
    assert probe(control, "/-/healthy")[0] == 200
    assert control.asked == 0


def test_a_daemon_that_drains_or_whose_engines_fail_is_healthy_and_not_ready(
    control: Control,
) -> None:
    control.condition.proved("engine 0 ended 7 times at once")
    assert probe(control, "/-/healthy")[0] == 200
    assert probe(control, "/-/ready") == (503, "not ready: engine 0 ended 7 times at once\n")
    control.condition.proved("")
    control.condition.draining = True
    control.now += 10 * LIMIT
    assert probe(control, "/-/healthy")[0] == 200
    assert probe(control, "/-/ready") == (503, "not ready: draining\n")


def test_a_daemon_serves_without_a_port_that_is_taken(tmp_path: Path, control: Control) -> None:
    port = control.server.address[1]
    config = configuration(tmp_path, more=f'[metrics]\nlisten = "127.0.0.1:{port}"\n')
    with Daemon(config) as daemon, daemon.client() as client:
        daemon.wait_for("metrics_unavailable", code="address_unavailable")
        join_all([client], "unmeasured")
        status = client.status()
        [alarm] = [line for line in alarm_lines(status) if line.startswith("METRICS: ")]
        assert f"[metrics] listen 127.0.0.1 port {port}" in alarm
        assert alarm in list(status_lines(status))


def test_a_taken_port_is_served_once_it_is_free(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlcpd.daemon.metrics.port.RETRY", 0.0)

    async def ask() -> dict[str, Any]:
        return report(engine())

    async def scenario() -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            address = taken.getsockname()
            table = MetricsTable(listen=f"127.0.0.1:{address[1]}")
            port = MetricsPort(table, ask, Condition(LIMIT))
            port.start()
            assert port.problem
        while port.problem:  # ends by the time limit of tests
            await asyncio.sleep(0)
        assert "dlcpd_uptime_seconds 1.0" in await asyncio.to_thread(scrape, address[1])
        await port.close()

    asyncio.run(scenario())


def test_a_port_without_a_thread_is_served_once_there_is_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Trainings of the same control group may have all processes that it may have."""
    monkeypatch.setattr("dlcpd.daemon.metrics.port.RETRY", 0.0)
    start, threads = threading.Thread.start, iter([False, True])

    def limited(thread: threading.Thread) -> None:
        if not next(threads, False):
            raise RuntimeError("can't start new thread")
        start(thread)

    async def ask() -> dict[str, Any]:
        return {}

    async def scenario() -> None:
        port = MetricsPort(MetricsTable(listen="127.0.0.1:0"), ask, Condition(LIMIT))
        monkeypatch.setattr(threading.Thread, "start", limited)
        port.start()
        assert "no further process or thread" in port.problem
        while port.problem:  # ends by the time limit of tests
            await asyncio.sleep(0)
        await port.close()  # without another thread

    asyncio.run(scenario())
    monkeypatch.undo()
    assert not [each for each in threading.enumerate() if each.name == "metrics"]


def test_without_the_library_it_says_what_to_install(tmp_path: Path) -> None:
    config = configuration(tmp_path, more=LISTEN)
    program = (
        "import sys; sys.modules['prometheus_client'] = None\n"
        "from dlcpd.daemon.metrics import server\n"
        "server.find_spec = lambda name: None\n"
        "from dlcpd.daemon.main import main\n"
        f"sys.exit(main(['--config', {str(config)!r}]))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        timeout=PATIENCE,
        env=environment(),
    )
    assert done.returncode == 2 and "pip install 'dlcpd[metrics]'" in done.stderr


def test_a_port_for_everybody_is_warned_of(tmp_path: Path) -> None:
    with Daemon(configuration(tmp_path, more='[metrics]\nlisten = "0.0.0.0:0"\n')) as daemon:
        daemon.wait_for("metrics_open")
