"""Errors as PyTorch's callers expect them: each is a DlcpError and a DistBackendError in one."""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, cast

import torch.distributed as dist

from dlcpd.contract.errors import NOBODY, DeadlineExceeded, DlcpError, Peer, PeerLost, made

# Words by which tools, torchft's tests among them, know what became of Gloo's or NCCL's operation.
WORDS: Final[dict[type[DlcpError], str]] = {
    DeadlineExceeded: "timed out", PeerLost: "Connection closed by peer",
}  # fmt: skip


@cache
def _twin(kind: Hashable) -> type[DlcpError]:
    """The class `kind`, as one that `except RuntimeError` and DistBackendError catch as well."""
    base = cast("type[DlcpError]", kind)

    def reduced(error: DlcpError) -> tuple[Any, ...]:  # a class that pickle finds by no name
        return _unpickled, (base, str(error), error.peer)

    members = {"__doc__": base.__doc__, "__reduce__": reduced}
    return type(base.__name__, (base, dist.DistBackendError), members)


def _unpickled(kind: Hashable, text: str, peer: Peer) -> DlcpError:
    return made(_twin(kind), text, peer)


def as_torch(error: Exception) -> DlcpError:
    """`error` as one that is both; a TimeoutError becomes DeadlineExceeded."""
    if isinstance(error, DlcpError) and isinstance(error, dist.DistBackendError):
        return error
    kind = type(error) if isinstance(error, DlcpError) else DeadlineExceeded
    text, peer = str(error), error.peer if isinstance(error, DlcpError) else NOBODY
    if kind is DeadlineExceeded or (kind is PeerLost and peer != NOBODY):
        text = f"{WORDS[kind]}: {text}"
    if kind is DeadlineExceeded or "deadline" in text:
        text += "; in torch.distributed the timeout of the group or call counts: timeout="
    return made(_twin(cast("Hashable", kind)), text, peer)


@contextmanager
def torch_errors() -> Iterator[None]:
    """Raise what is raised inside as PyTorch expects it."""
    try:
        yield
    except (DlcpError, TimeoutError) as exc:
        raise as_torch(exc) from exc
