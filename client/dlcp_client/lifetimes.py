"""Closes open sessions at the end of the process, and abandons them after a fork."""

import atexit
import os
import sys
import threading
from typing import Protocol


class Resource(Protocol):
    """The interface of a session at exit and after a fork."""

    def close(self) -> None:
        """End the session in good order."""

    def abandon(self) -> None:
        """In a forked child: leave the session to the parent."""


# Strong references: a session lives until it is closed, or the process ends. In order of opening:
# the last one, which may need the earlier ones, is closed first.
_open: dict[Resource, None] = {}
_lock = threading.Lock()
_finalizes = False  # multiprocessing closes the sessions of this process


def opened(resource: Resource) -> None:
    """Close `resource` when the interpreter ends, and abandon it in forked children."""
    with _lock:
        _open[resource] = None
        _close_in_child()


def closed(resource: Resource) -> None:
    """Remove a closed resource."""
    with _lock:
        _open.pop(resource, None)


def _close_in_child() -> None:
    """Forked children of multiprocessing end by os._exit, after finalizers of its own."""
    global _finalizes  # noqa: PLW0603  # once a process
    process = sys.modules.get("multiprocessing.process")  # a child of it has both
    util = sys.modules.get("multiprocessing.util")
    if not _finalizes and process and util and process.parent_process() is not None:
        _finalizes = True
        util.Finalize(None, _close_all, exitpriority=0)


def _close_all() -> None:
    for resource in reversed(list(_open)):
        resource.close()


def _abandon_all() -> None:
    # a thread that does not exist here may hold the parent's lock; finalizers are the parent's too
    global _lock, _finalizes
    _lock, _finalizes = threading.Lock(), False
    for resource in list(_open):
        resource.abandon()
    _open.clear()


atexit.register(_close_all)
os.register_at_fork(after_in_child=_abandon_all)
