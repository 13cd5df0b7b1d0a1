"""What this machine brings to a measurement."""

from pathlib import Path


def tcp_congestion_control() -> str:
    """What new namespaces inherit; on loss it decides what Gloo is worth."""
    try:
        return Path("/proc/sys/net/ipv4/tcp_congestion_control").read_text().strip()
    except OSError:
        return "of unknown congestion control"
