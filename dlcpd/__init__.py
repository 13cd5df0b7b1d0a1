"""dlcpd: a per-host gradient transport daemon for data-parallel training."""

# `dlcpd.starter` is imported before sys.path is in order: nothing else may be imported here.
__version__: str

__all__ = ["__version__"]


def __getattr__(name: str) -> str:
    if name != "__version__":
        raise AttributeError(f"module 'dlcpd' has no attribute {name!r}")
    from dlcpd.build import VERSION  # noqa: PLC0415  # see above

    return VERSION
