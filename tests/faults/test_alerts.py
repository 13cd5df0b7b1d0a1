"""Faults of the drill are alerts: the project's rules, over what real daemons serve in the fault.

A scrape stands for 15 s of Prometheus' time, whatever it took here: rules ask how long a state
lasts, and a fault lasts as long as it is scraped.
"""

import json
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import pytest
from prometheus_client.parser import text_string_to_metric_families

from dlcp_lab.faults.catalog import make
from dlcp_lab.faults.cluster import Cluster, TrainerJob, raise_unless
from dlcp_lab.faults.kinds import Fault
from dlcp_lab.faults.network import METRICS_PORT

pytestmark = [
    pytest.mark.timeout(400),  # daemons and trainers start, on a machine that tests load
    pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool (prometheus) is missing"),
]

ALERTS: Final = Path(__file__).parents[2] / "deploy" / "prometheus" / "alerts.yml"
PEER_TIMEOUT: Final = 4.0  # seconds; see test_matrix
INTERVAL: Final = 15  # seconds of Prometheus' time from scrape to scrape
CALM: Final = 10  # scrapes before the fault
PATIENCE: Final = 120.0  # seconds until a fault must be an alert; never a measure of anything
LOOK: Final = 0.2  # seconds between two scrapes in a fault
ANSWER, NO_ANSWER = 30.0, 0.3  # seconds for a scrape: of a host that runs, and of a stopped one
COUNT: Final = 1 << 14  # elements of an operation
DEADLINE: Final = 60.0  # seconds of an operation
FIRING: Final = 'ALERTS{{alertstate="firing"{}}}'
HOSTS: Final = 2
VICTIM: Final = 1


class Scrapes:
    """What Prometheus would have of the hosts: by series, a value for each scrape."""

    def __init__(self, cluster: Cluster) -> None:
        self._urls = [
            f"http://{cluster.network.address(host)}:{METRICS_PORT}/metrics"
            for host in range(HOSTS)
        ]
        self.count = 0
        self.series: dict[str, list[str]] = {}

    def scrape(self, stopped: int | None = None) -> None:
        """All hosts; `stopped`: a host that need not answer."""
        for host, url in enumerate(self._urls):
            try:
                limit = NO_ANSWER if host == stopped else ANSWER
                with urllib.request.urlopen(url, timeout=limit) as page:  # noqa: S310  # http
                    text = page.read().decode()
            except OSError:
                text = ""
            self._add("up", {"job": "dlcpd", "instance": f"host{host}"}, float(bool(text)))
            for family in text_string_to_metric_families(text):
                for name, labels, value, *_ in family.samples:
                    if not name.endswith("_bucket"):
                        self._add(name, labels | {"instance": f"host{host}"}, value)
        self.count += 1
        for values in self.series.values():
            if len(values) < self.count:  # Prometheus marks the end of a series
                values.append("stale" if values[-1] not in ("stale", "_") else "_")

    def _add(self, name: str, labels: dict[str, str], value: float) -> None:
        pairs = ",".join(f"{key}={json.dumps(text)}" for key, text in sorted(labels.items()))
        values = self.series.setdefault(f"{name}{{{pairs}}}", ["_"] * self.count)
        values.append(repr(value))

    def firing(self, matchers: str, until: int, folder: Path) -> bool:
        """Whether an alert with these labels fires in the scrapes before number `until`."""
        span = f"[{(until + 1) * INTERVAL}s]"
        asked = FIRING.format(f",{matchers}" if matchers else "")
        case = {
            "interval": f"{INTERVAL}s",
            "input_series": [
                {"series": name, "values": " ".join(values)} for name, values in self.series.items()
            ],
            "promql_expr_test": [
                {
                    "expr": f"count(count_over_time({asked}{span}))",
                    "eval_time": f"{(until - 1) * INTERVAL}s",
                    "exp_samples": [],
                }
            ],
        }
        file = folder / "scraped.yml"
        head = {"rule_files": [str(ALERTS)], "evaluation_interval": f"{INTERVAL}s"}
        file.write_text(json.dumps(head | {"tests": [case]}))  # JSON is YAML
        done = subprocess.run(
            ["promtool", "test", "rules", str(file)], capture_output=True, text=True, check=False
        )
        said = done.stdout + done.stderr
        assert done.returncode == 0 or "exp:" in said, said
        return done.returncode != 0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(HOSTS, 2, peer_timeout=PEER_TIMEOUT, metrics=True) as made:
        yield made


def reduce(job: TrainerJob, number: int) -> None:
    """An operation of all ranks, which has its result."""
    raise_unless(job.all("reduce", number=number, count=COUNT, deadline=DEADLINE))


def until(fires: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE
    while not fires():
        assert time.monotonic() < end, "the fault is no alert"


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (
            Fault.CUT_PATH,
            ['alertname="DlcpdPathDown",instance="host0",peer_host="host1",path="0"'],
        ),
        (
            Fault.KILL_TRAINER,
            ['alertname="DlcpdRankEnded",instance="host1"'],
        ),
        (
            Fault.PAUSE_HOST,
            [
                'alertname="DlcpdDown",instance="host1"',
                'alertname="DlcpdJobFailed",instance="host0",code="peer_lost"',
            ],
        ),
    ],
    ids=["cut_path", "killed_rank", "lost_host"],
)
def test_a_fault_is_an_alert_and_none_fires_before_it(
    fault: Fault, expected: list[str], cluster: Cluster, tmp_path: Path
) -> None:
    cluster.repair()
    job = TrainerJob(cluster, str(fault).replace(" ", "-"))
    injection = make(fault, cluster, job, VICTIM)
    scrapes = Scrapes(cluster)
    try:
        job.join()
        for number in range(CALM):
            reduce(job, number)
            scrapes.scrape()
        assert not scrapes.firing("", CALM, tmp_path)
        injection.begin()
        if fault is not Fault.CUT_PATH:  # its rank waits for the lost one
            job.trainers[0].ask("reduce", number=CALM, count=COUNT, deadline=DEADLINE)

        def fires() -> bool:
            if fault is Fault.CUT_PATH:
                reduce(job, scrapes.count)
            scrapes.scrape(stopped=VICTIM if fault is Fault.PAUSE_HOST else None)
            time.sleep(LOOK)
            return scrapes.count % 4 == 0 and all(
                scrapes.firing(alert, scrapes.count, tmp_path) for alert in expected
            )

        until(fires)
    finally:
        injection.end()
        job.end()
        cluster.jobs.remove(job)
