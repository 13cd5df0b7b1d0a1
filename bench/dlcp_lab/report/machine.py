"""Properties of this machine that affect a measurement."""

from pathlib import Path


def tcp_congestion_control() -> str:
    """TCP congestion control of new namespaces; under loss it decides how fast Gloo is."""
    try:
        return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    except OSError:
        return "of unknown congestion control"
