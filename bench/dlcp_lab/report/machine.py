"""Properties of this machine that affect a measurement."""

import os
import platform
from pathlib import Path
from typing import Any


def tcp_congestion_control() -> str:
    """TCP congestion control of new namespaces; under loss it decides how fast Gloo is."""
    try:
        return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    except OSError:
        return "of unknown congestion control"


def tcp_congestion_controls() -> list[str]:
    """The TCP congestion controls that this kernel has loaded."""
    try:
        return Path("/proc/sys/net/ipv4/tcp_available_congestion_control").read_text().split()
    except OSError:
        return []


def properties() -> dict[str, Any]:
    """Properties that do not change during a measurement, for --json."""
    return {
        "cpus": len(os.sched_getaffinity(0)),
        "model": _model(),
        "kernel": platform.release(),
        "python": platform.python_version(),
        "tcp_congestion_control": tcp_congestion_control(),
    }


def _model() -> str:
    """The name of the CPU; its architecture where the kernel tells no name."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.machine()
