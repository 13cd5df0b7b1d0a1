"""dlcpd: a per-host gradient transport daemon for data-parallel training."""

__version__ = "0.1.0"
