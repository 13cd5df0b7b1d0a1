"""dlcpd: a per-host gradient transport daemon for data-parallel training."""

from dlcpd.build import VERSION as __version__

__all__ = ["__version__"]
