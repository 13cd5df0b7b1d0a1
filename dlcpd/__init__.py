"""dlcpd: a per-host gradient transport daemon for data-parallel training."""

from dlcpd import transfer_form as _transfer_form  # noqa: F401  # before any module that it finds

__version__ = "0.1.0"
