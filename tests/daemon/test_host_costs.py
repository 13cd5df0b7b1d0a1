"""The CPU costs of a host's engines: measured once per boot, kept, and never waited for."""

import asyncio
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlcpd.daemon import log
from dlcpd.daemon.config.effective import resolved
from dlcpd.daemon.config.tables import Config
from dlcpd.daemon.host_costs import MEASURE, HostCosts, named
from dlcpd.io import kept_costs
from dlcpd.schedules.network import MAX_COST, TYPICAL, Costs

FEATURES = {"transfer": "compiled", "gso": True}
KEY = kept_costs.key_of(FEATURES)
OWN = Costs(27_000, 800, 80_000, 100_000)
FAILS = ("false",)
WAITS = ("sleep", "600")
# Takes the place of the measurement: writes OWN, as that does.
WRITES = ("sh", "-c", f"""printf '{{"key": "%s", "costs": {list(OWN)}}}' "$1" > "$0" """)


@pytest.fixture
def said() -> Iterator[list[tuple[str, str]]]:
    """Events of the log above `info`, with their texts."""
    found = list[tuple[str, str]]()

    class Keep(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            if record.levelno > logging.INFO:
                found.append((record.getMessage(), str(record.__dict__["dlcpd"]["text"])))

    log.configure("info", "text")
    logger, handler = logging.getLogger("dlcpd"), Keep()
    logger.addHandler(handler)
    yield found
    logger.removeHandler(handler)


def host_costs(file: Path | None) -> HostCosts:
    return HostCosts(file, resolved(Config()), FEATURES, os.environ)


async def wanted(costs: HostCosts, command: tuple[str, ...]) -> Costs:
    """The costs once all work for them is done."""
    costs.want(after=0.0, command=command)
    assert costs.present == TYPICAL  # nothing waits for it
    costs.want(after=0.0, command=FAILS)  # no effect
    await asyncio.gather(*asyncio.all_tasks() - {asyncio.current_task()})
    return costs.present


def content(key: str = KEY, costs: Any = tuple(OWN), **more: Any) -> bytes:
    return json.dumps({"key": key, "costs": costs, **more}).encode()


@pytest.mark.processes
def test_they_are_measured_once(tmp_path: Path, said: list[tuple[str, str]]) -> None:
    """By the real process. Another daemon of this boot reads the file."""
    file = tmp_path / "d.sock.costs"
    costs = asyncio.run(wanted(host_costs(file), MEASURE))
    assert costs != TYPICAL and costs.latency_ns == TYPICAL.latency_ns
    assert 0 < sum(named(costs).values()) <= 3 * MAX_COST
    assert set(named(costs)) == {"transfer_ns", "datagram_ns", "wake_up_ns"}
    assert asyncio.run(wanted(host_costs(file), FAILS)) == costs
    assert not said


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (b"", "has no costs: "),
        (b"\xff\xfe", "has no costs: "),
        (content()[:-5], "has no costs: "),
        (content(costs=[1, 2, 3]), "has no costs: "),
        (content(costs=[1, 2, 3, -1]), "has no costs: "),
        (content(costs=[1, MAX_COST + 1, 3, 4]), "has no costs: "),
        (content(other=1), "has no costs: "),
        (content(key="x" * 5000), "is longer than 4096 bytes"),
        (content(key=kept_costs.key_of({})), ""),  # of an engine with other features
    ],
)
def test_a_file_that_is_damaged_or_foreign_is_replaced(
    tmp_path: Path, said: list[tuple[str, str]], found: bytes, why: str
) -> None:
    file = tmp_path / "costs"
    file.write_bytes(found)
    assert asyncio.run(wanted(host_costs(file), WRITES)) == OWN
    assert [event for event, _ in said] == ["costs_damaged"] * bool(why)
    assert all(why in text for _, text in said)


def test_what_cannot_be_measured_is_said_once(tmp_path: Path, said: list[tuple[str, str]]) -> None:
    for command in FAILS, ("/nowhere/measure",):
        assert asyncio.run(wanted(host_costs(tmp_path / "costs"), command)) == TYPICAL
    file = tmp_path / "costs"
    file.mkdir()
    assert asyncio.run(wanted(host_costs(file), FAILS)) == TYPICAL
    events = ["costs_unknown", "costs_unknown", "costs_damaged", "costs_unknown"]
    assert [event for event, _ in said] == events
    assert "typical ones are used" in said[0][1] and "/nowhere/measure" in said[1][1]


def test_the_measurement_ends_with_the_daemon(tmp_path: Path) -> None:
    """And the costs that jobs tell meanwhile are there at once."""

    async def ends() -> bool:
        costs = host_costs(tmp_path / "costs")
        costs.want(after=0.0, command=WAITS)
        while not (found := children()):
            await asyncio.sleep(0)
        assert costs.present == TYPICAL
        costs.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.gather(*others, return_exceptions=True)
        while found & children():
            await asyncio.sleep(0.01)
        return True

    def children() -> set[str]:
        text = Path(f"/proc/{os.getpid()}/task/{os.getpid()}/children").read_text()
        return set(text.split()) - before

    before: set[str] = set()
    before |= children()
    assert asyncio.run(ends())


def test_a_private_daemon_keeps_nothing() -> None:
    assert asyncio.run(wanted(host_costs(None), WRITES)) == TYPICAL


def test_the_key_is_that_of_a_boot_a_processor_a_version_and_features(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    boot, cpus, other = tmp_path / "boot", tmp_path / "cpus", tmp_path / "other"
    boot.write_text("a\n")
    cpus.write_text("processor : 0\nmodel name : x\ncpu MHz : 1000\n")
    other.write_text("processor : 0\nmodel name : x\ncpu MHz : 2000\n")
    key = kept_costs.key_of(FEATURES, boot, cpus)
    assert key == kept_costs.key_of(dict(reversed(FEATURES.items())), boot, other)
    other.write_text("processor : 0\nmodel name : y\n")
    keys = [key, kept_costs.key_of(FEATURES, cpus, cpus), kept_costs.key_of(FEATURES, boot, other)]
    keys += [kept_costs.key_of(FEATURES | {"gso": False}, boot, cpus)]
    keys += [kept_costs.key_of(FEATURES, tmp_path / "none", tmp_path / "none")]
    monkeypatch.setattr(kept_costs, "__version__", "0")
    keys += [kept_costs.key_of(FEATURES, boot, cpus)]
    assert len(set(keys)) == 6
