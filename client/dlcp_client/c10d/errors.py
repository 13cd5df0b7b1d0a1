"""Errors as PyTorch's callers expect them: each is a DlcpError and a DistBackendError in one."""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import cast

import torch.distributed as dist

from dlcpd.contract.errors import NOBODY, DeadlineExceeded, DlcpError, made


@cache
def _twin(kind: Hashable) -> type[DlcpError]:
    """The class `kind`, as one that `except RuntimeError` and DistBackendError catch as well."""
    base = cast("type[DlcpError]", kind)
    return type(base.__name__, (base, dist.DistBackendError), {"__doc__": base.__doc__})


def as_torch(error: Exception) -> DlcpError:
    """`error` as one that is both; a TimeoutError becomes DeadlineExceeded."""
    if isinstance(error, DlcpError) and isinstance(error, dist.DistBackendError):
        return error
    kind = type(error) if isinstance(error, DlcpError) else DeadlineExceeded
    text = str(error)
    if kind is DeadlineExceeded:  # the words that tools look for
        text = f"timed out: {text}"
    if kind is DeadlineExceeded or "deadline" in text:
        text += "; in torch.distributed the timeout of the group or call counts: timeout="
    peer = error.peer if isinstance(error, DlcpError) else NOBODY
    return made(_twin(cast("Hashable", kind)), text, peer)


@contextmanager
def torch_errors() -> Iterator[None]:
    """Raise what is raised inside as PyTorch expects it."""
    try:
        yield
    except (DlcpError, TimeoutError) as exc:
        raise as_torch(exc) from exc
