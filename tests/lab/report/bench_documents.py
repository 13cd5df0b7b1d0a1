"""Documents of benchmarks, as --json writes them."""

import argparse
from dataclasses import asdict
from typing import Any

from dlcp_lab.bench.all_reduce import rows_of
from dlcpd.ctl.report.parts import Section

SAMPLES = [0.011, 0.01, 0.012, 0.03]
OPTIONS = argparse.Namespace(dtype="float32", op="sum", mode="exact")


def series(times: list[float]) -> dict[str, Any]:
    """Measurements of one transport on one rank."""
    counts = {
        "sent": 60,
        "retransmitted": 1,
        "waived": 0,
        "reapplied": 0,
        "wrong": 0,
        "segment_size": 8896,
        "headers": 68,
    }
    return counts | {"times": times}


def measured() -> list[dict[str, Any]]:
    """Rows as bench all-reduce writes them; 1 MiB, two ranks."""
    rank = {"dlcpd": series(SAMPLES), "gloo": series(SAMPLES[::-1])}
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
