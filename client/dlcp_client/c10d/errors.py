"""Errors as PyTorch's callers expect them: each is a DlcpError and a DistBackendError in one."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch.distributed as dist

from dlcpd.contract.errors import DeadlineExceeded, DlcpError


@cache
def _twin(kind: type[DlcpError]) -> type[DlcpError]:
    """`kind`, which `except RuntimeError` and `except dist.DistBackendError` catch as well."""
    return type(kind.__name__, (kind, dist.DistBackendError), {"__doc__": kind.__doc__})


def as_torch(error: Exception) -> DlcpError:
    """`error` as one that is both; a TimeoutError becomes DeadlineExceeded."""
    kind = type(error) if isinstance(error, DlcpError) else DeadlineExceeded
    if issubclass(kind, dist.DistBackendError):
        kind = kind.__bases__[0]
    made = DlcpError.__new__(_twin(kind))
    Exception.__init__(made, str(error))
    return made


@contextmanager
def torch_errors() -> Iterator[None]:
    """Raise what is raised inside as PyTorch expects it."""
    try:
        yield
    except (DlcpError, TimeoutError) as exc:
        raise as_torch(exc) from exc
