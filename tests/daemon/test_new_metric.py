"""A metric is one row: the engines' reports, their merge and the metrics page have it at once."""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.pages import ROOT

TIMEOUT = 60.0  # seconds
ROWS = {
    "SESSION: Final[tuple[ReportValue[SessionOrigin], ...]] = (\n": """\
    ReportValue("example", lambda of: 3, Metric(COUNTER, "examples", "An example."), sum),
""",
    "PATH: Final[tuple[ReportValue[PathSource], ...]] = (\n": """\
    ReportValue("number", lambda of: of.number + 7, Metric(GAUGE, "number", "Another example.")),
""",
}
USER = """
import asyncio
import urllib.request
from dlcpd.core.endpoint import Endpoint, PeerSpec
from dlcpd.core.paths.pacing import Pacer
from dlcpd.core.send_scheduler import SendScheduler
from dlcpd.daemon.condition import Condition
from dlcpd.daemon.engine_reports import add_part, joined
from dlcpd.daemon.metrics.server import MetricsServer
from dlcpd.io.discovery.mtu import MtuDiscovery
from dlcpd.io.report import report_parts

endpoint = Endpoint(1024, 1 << 20, SendScheduler(Pacer(0)))
endpoint.open_session(1, 0, [PeerSpec(1, "there", 1, 2, 2)], peer_timeout=1.0)
mtu = MtuDiscovery(endpoint, [], 1024, lambda _news: None)
def engine():
    whole = {}
    for part in report_parts(endpoint, [], mtu, {}, 0):
        add_part(whole, part)
    return whole

link = {"rank": 1, "host": "there", "state": "up"}
session = {"session": 1, "job": "j-1", "title": "j", "rank": 0, "state": "open"}
session |= {"broken_code": "", "peers": [link]}
control = {"version": "0", "features": {}, "sessions": [session], "counters": {}}
control |= {"commit": "", "messages": [1], "peers": [1]}
control |= {"cordoned": "", "pending": [], "unreachable": ""}
report = control | {"engine": joined({0: engine(), 1: engine()}, of=2)}

async def page():
    async def ask():
        return report

    server = MetricsServer(("127.0.0.1", 0), asyncio.get_running_loop(), ask, Condition(0.0))
    url = "http://%s:%d/metrics" % server.address
    text = await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())
    await server.close()
    return text

print(asyncio.run(page()))
"""


def test_one_row_adds_a_metric(tmp_path: Path) -> None:
    shutil.copytree(
        ROOT / "dlcpd", tmp_path / "dlcpd", ignore=shutil.ignore_patterns("__pycache__")
    )
    file = tmp_path / "dlcpd/io/report_rows.py"
    text = file.read_text()
    for after, row in ROWS.items():
        assert text.count(after) == 1
        text = text.replace(after, after + row)
    file.write_text(text)
    (tmp_path / "reader_of_metrics.py").write_text(USER)
    done = subprocess.run(
        [sys.executable, "-P", str(tmp_path / "dlcpd/starter.py"), "reader_of_metrics"],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    page = done.stdout.splitlines()
    assert "# HELP dlcpd_session_examples_total An example." in page
    assert 'dlcpd_session_examples_total{job_name="j",rank="0"} 6.0' in page  # of two engines
    whose = 'job_name="j",path="{}",peer_host="there"'
    for path, value in (("0", 7.0), ("1", 8.0), ("2", 7.0), ("3", 8.0)):
        assert f"dlcpd_path_number{{{whose.format(path)}}} {value}" in page
