"""Errors as PyTorch's callers expect them: each is both a DlcpError and a DistBackendError."""

from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any, Final, cast

import torch.distributed as dist

from dlcpd.contract.errors import NOBODY, DeadlineExceeded, DlcpError, Peer, PeerLost, made

# Phrases of Gloo and NCCL that tools, such as torchft's tests, search for in an error.
WORDS: Final[dict[type[DlcpError], str]] = {
    DeadlineExceeded: "timed out", PeerLost: "Connection closed by peer",
}  # fmt: skip


@cache
def _twin(kind: Hashable) -> type[DlcpError]:
    """A subclass of `kind` that `except RuntimeError` and DistBackendError catch too."""
    base = cast("type[DlcpError]", kind)

    def reduced(error: DlcpError) -> tuple[Any, ...]:  # pickle cannot find the class by name
        return _unpickled, (base, str(error), error.peer)

    members = {"__doc__": base.__doc__, "__reduce__": reduced}
    return type(base.__name__, (base, dist.DistBackendError), members)


def _unpickled(kind: Hashable, text: str, peer: Peer) -> DlcpError:
    return made(_twin(kind), text, peer)


def as_torch(error: Exception) -> DlcpError:
    """`error` as both kinds of error; a TimeoutError becomes DeadlineExceeded."""
    if isinstance(error, DlcpError) and isinstance(error, dist.DistBackendError):
        return error
    kind = type(error) if isinstance(error, DlcpError) else DeadlineExceeded
    text, peer = str(error), error.peer if isinstance(error, DlcpError) else NOBODY
    if kind is DeadlineExceeded or (kind is PeerLost and peer != NOBODY):
        text = f"{WORDS[kind]}: {text}"
    if kind is DeadlineExceeded or "deadline" in text:
        text += "; in torch.distributed, the timeout of the group or of the call applies: timeout="
    return made(_twin(cast("Hashable", kind)), text, peer)


@contextmanager
def torch_errors() -> Iterator[None]:
    """Convert errors that are raised inside to those that PyTorch expects."""
    try:
        yield
    except (DlcpError, TimeoutError) as exc:
        raise as_torch(exc) from exc
